/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain quantisers for tests: nearest values, nothing clever. They are written from the formats alone, so that they
 * also check the kernels' reading of a block. Any thread.
 */
#pragma once
#include "base/tensor.h"

uint16_t f32_to_f16(float value); /* nearest, ties to even; overflow becomes infinity */
float f16_to_f32(uint16_t value);
uint16_t f32_to_bf16(float value); /* nearest, ties to even */

/* x: [n], n a multiple of the type's block; out: dtype_row_bytes(type, n) bytes. */
void quantize_row(DType type, const float *x, size_t n, void *out);
