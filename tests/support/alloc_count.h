/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts, fails and watches the calls by which our own code asks for memory: malloc and its like, mmap64, and what
 * libraries make for us (strdup, fopen, threads, PCRE2's objects). All are wrapped at link time, in tests only. Any
 * thread.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Such calls since the start. */
uint64_t alloc_count(void);

/* The n-th call from now on (1: the next one) fails as when memory is out, and only that one; 0: none. */
void alloc_fail_at(uint64_t n);
/* Name of the function that failed since alloc_fail_at; NULL: none did. */
const char *alloc_failed(void);

/* Forgets what is allocated; from now on it is written down what comes and goes. */
void alloc_watch(void);
/* Ends that; how many allocations are left over. */
size_t alloc_watch_end(void);
