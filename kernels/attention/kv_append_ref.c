/* SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"
#include "kernels/attention/kv_append.h"

static bool store(DType type, void *base, size_t first, const float *x, uint32_t n)
{
    switch (type) {
    case DTYPE_F32:
        memcpy((float *)base + first, x, n * sizeof *x);
        return true;
    case DTYPE_F16:
        for (uint32_t i = 0; i < n; i++) ((uint16_t *)base)[first + i] = f16_from_f32(x[i]);
        return true;
    case DTYPE_BF16:
        for (uint32_t i = 0; i < n; i++) ((uint16_t *)base)[first + i] = bf16_from_f32(x[i]);
        return true;
    default:
        return false;
    }
}

static bool append_span(const KvAppendParams *params, const AttnSpan *span)
{
    const KvView *kv = &span->kv;
    for (uint32_t i = 0; i < span->n_rows; i++) {
        for (uint32_t h = 0; h < kv->n_kv_heads; h++) {
            size_t from = (size_t)(span->first_row + i) * kv->n_kv_heads + h;
            size_t to = (size_t)h * kv->capacity + span->first_pos + i;
            if (!store(kv->type, kv->k, to * kv->k_dim, params->k + from * kv->k_dim, kv->k_dim)) return false;
            if (!store(kv->type, kv->v, to * kv->v_dim, params->v + from * kv->v_dim, kv->v_dim)) return false;
        }
    }
    return true;
}

bool kv_append_ref(const KvAppendParams *params)
{
    for (uint32_t i = 0; i < params->n_spans; i++)
        if (!append_span(params, &params->spans[i])) return false;
    return true;
}
