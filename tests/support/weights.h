/* SPDX-License-Identifier: Apache-2.0 */
/* Pseudo-random test data from a seed: the same on every machine. */
#pragma once
#include "base/tensor.h"
#include <stdint.h>

/* Uniform in [-1, 1); advances *seed. */
float random_float(uint64_t *seed);
void random_floats(uint64_t *seed, float *x, size_t n, float scale);
/* Each of 0..n-1 once; free() it. Aborts when memory is out. */
uint32_t *random_order(uint64_t *seed, uint32_t n);
/* Valid blocks of a weight format for n elements: any quants, scales that give values of about 1. */
void random_weights(uint64_t *seed, DType type, void *blocks, size_t n);
