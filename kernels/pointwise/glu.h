/* SPDX-License-Identifier: Apache-2.0 */
/* Gated linear unit: y = act(gate) * up, elementwise in fp32. y may be gate or up. */
#pragma once
#include "kernels/stream.h"
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum GluActivation {
    GLU_SILU,      /* x / (1 + exp(-x)) */
    GLU_GELU_TANH, /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
} GluActivation;

typedef struct GluParams {
    const float *gate, *up; /* [n] */
    float *y;               /* [n] */
    size_t n;
    GluActivation activation;
} GluParams;

bool glu_ref(const GluParams *params);
bool glu_cuda(const GluParams *params, Stream stream);

#ifdef __cplusplus
}
#endif
