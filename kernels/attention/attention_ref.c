/* SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"
#include "kernels/attention/attention.h"

#include <math.h>

static float load(DType type, const void *base, size_t i)
{
    if (type == DTYPE_F32) return ((const float *)base)[i];
    uint16_t bits = ((const uint16_t *)base)[i];
    return type == DTYPE_F16 ? f32_from_f16(bits) : f32_from_bf16(bits);
}

static double score(const AttentionParams *params, const KvView *kv, const float *q, size_t key)
{
    double sum = 0;
    for (uint32_t c = 0; c < kv->k_dim; c++) sum += (double)q[c] * load(kv->type, kv->k, key * kv->k_dim + c);
    double scaled = params->scale * sum, cap = params->softcap;
    return cap > 0 ? cap * tanh(scaled / cap) : scaled;
}

/* One query head at position pos; scores are formed twice so that no array of the context's length is needed. */
static void attend(const AttentionParams *params, const AttnSpan *span, const float *q, float *out, uint32_t kv_head,
                   uint32_t pos)
{
    const KvView *kv = &span->kv;
    size_t first = (size_t)kv_head * kv->capacity;
    uint32_t begin = attn_first_key(params->window, pos);
    double max = -INFINITY, sum = 0;
    for (uint32_t p = begin; p <= pos; p++) max = fmax(max, score(params, kv, q, first + p));
    for (uint32_t c = 0; c < kv->v_dim; c++) out[c] = 0;
    for (uint32_t p = begin; p <= pos; p++) {
        double weight = exp(score(params, kv, q, first + p) - max);
        sum += weight;
        for (uint32_t c = 0; c < kv->v_dim; c++)
            out[c] += (float)weight * load(kv->type, kv->v, (first + p) * kv->v_dim + c);
    }
    for (uint32_t c = 0; c < kv->v_dim; c++) out[c] = (float)(out[c] / sum);
}

static bool attend_span(const AttentionParams *params, const AttnSpan *span)
{
    const KvView *kv = &span->kv;
    if (kv->type != DTYPE_F32 && kv->type != DTYPE_F16 && kv->type != DTYPE_BF16) return false;
    uint32_t group = params->n_heads / kv->n_kv_heads;
    for (uint32_t i = 0; i < span->n_rows; i++) {
        for (uint32_t h = 0; h < params->n_heads; h++) {
            size_t row = (size_t)(span->first_row + i) * params->n_heads + h;
            attend(params, span, params->q + row * kv->k_dim, params->out + row * kv->v_dim, h / group,
                   span->first_pos + i);
        }
    }
    return true;
}

bool attention_ref(const AttentionParams *params)
{
    for (uint32_t i = 0; i < params->n_spans; i++)
        if (!attend_span(params, &params->spans[i])) return false;
    return true;
}
