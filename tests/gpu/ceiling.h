/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that only reads, for the ceiling that other kernels are measured against. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Reads x [bytes] on a cudaStream_t; ret_word keeps the compiler from dropping the loads. */
bool ceiling_read(const void *x, size_t bytes, void *ret_word, void *stream);

#ifdef __cplusplus
}
#endif
