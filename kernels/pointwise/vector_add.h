/* SPDX-License-Identifier: Apache-2.0 */
/* z = x + y, elementwise in fp32: the residual connection. z may be x or y. */
#pragma once
#include "kernels/stream.h"
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct VectorAddParams {
    const float *x, *y; /* [n] */
    float *z;           /* [n] */
    size_t n;
} VectorAddParams;

bool vector_add_ref(const VectorAddParams *params);
bool vector_add_cuda(const VectorAddParams *params, Stream stream);

#ifdef __cplusplus
}
#endif
