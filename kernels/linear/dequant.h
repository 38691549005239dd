/* SPDX-License-Identifier: Apache-2.0 */
/* One row of a GGUF block format to fp32: the definition of every format (block layouts in blocks.h). */
#pragma once
#include "base/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

/* n is a multiple of the type's block. False: no row for this type. */
bool dequant_row_ref(DType type, const void *blocks, float *y, size_t n);

#ifdef __cplusplus
}
#endif
