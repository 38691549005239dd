/* SPDX-License-Identifier: Apache-2.0 */
/* Soft cap of logits: y = cap * tanh(x / cap), elementwise in fp32; cap > 0. y may be x. */
#pragma once
#include "kernels/stream.h"
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct SoftcapParams {
    const float *x; /* [n] */
    float *y;       /* [n] */
    size_t n;
    float cap;
} SoftcapParams;

bool softcap_ref(const SoftcapParams *params);
bool softcap_cuda(const SoftcapParams *params, Stream stream);

#ifdef __cplusplus
}
#endif
