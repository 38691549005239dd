/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a mapped file that shrinks, or a disk that fails, does to the process: without a guard the next read ends it
 * (SIGBUS). With one, zeros take the place of what is lost, and whoever computes asks afterwards whether it was
 * disturbed. One for the process; add and remove on any thread.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* Handles SIGBUS from now on; faults elsewhere end the process as before. */
void gguf_guard_install(void);
/* Watches [base, base + n). Past the last place it is not watched, and a fault there ends the process. */
void gguf_guard_add(const void *base, size_t n);
/* Before it is unmapped. */
void gguf_guard_remove(const void *base);
/* Has anything of the mapping at base been lost? */
bool gguf_guard_is_hit(const void *base);
