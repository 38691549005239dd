/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many times our own code asked for memory since the start: malloc and its like and mmap64 are wrapped at link time,
 * in the unit tests only. Any thread.
 */
#pragma once
#include <stdint.h>

uint64_t alloc_count(void);
