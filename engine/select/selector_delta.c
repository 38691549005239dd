/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/selector_impl.h"

/* 0: nothing is to be corrected. */
static uint32_t stride_of(const LayerCall *call, uint32_t span)
{
    const Wave *wave = &call->selector->wave;
    uint32_t n_kv_heads = call->pass->shape->n_kv_heads;
    bool is_prompt = wave->from[span] && wave->from[span]->kind == ROWS_PREFILL, selects = false;
    for (uint32_t h = 0; is_prompt && h < n_kv_heads; h++)
        selects |= wave->heads[(size_t)span * n_kv_heads + h].selects;
    return selects ? wave->from[span]->policy->selection.delta_stride : 0;
}

/* Rows of the span whose position is a multiple of the stride: the first; others follow, a stride apart. */
static uint32_t first_dense(const KvSpan *span, uint32_t stride)
{
    return (stride - span->first_pos % stride) % stride;
}

static uint32_t add_dense_rows(const LayerCall *call, uint32_t span, uint32_t n_more)
{
    Selector *selector = call->selector;
    const Wave *wave = &selector->wave;
    const KvSpan *at = &wave->spans[span];
    uint32_t stride = stride_of(call, span);
    for (uint32_t row = first_dense(at, stride); row < at->n_rows; row += stride) {
        KvSpan *more = &selector->more_spans[n_more++];
        *more = *at;
        more->first_row += row;
        more->first_pos += row;
        more->n_rows = 1;
        more->plans = wave->from[span]->plans;
    }
    return n_more;
}

/* Row i of a stride gets what the dense one of it, the first, lacked; that one becomes the dense one. */
static void correct_rows(const LayerCall *call, uint32_t span)
{
    const ModelShape *shape = call->pass->shape;
    const KvSpan *at = &call->selector->wave.spans[span];
    size_t n = (size_t)shape->n_heads * shape->v_dim;
    uint32_t stride = stride_of(call, span);
    for (uint32_t row = first_dense(at, stride); row < at->n_rows; row += stride) {
        float *first = call->params->out + (at->first_row + row) * n;
        float *delta = call->selector->more_out + (at->first_row + row) * n;
        for (size_t c = 0; c < n; c++) {
            float dense = delta[c];
            delta[c] -= first[c];
            first[c] = dense;
        }
        for (uint32_t r = row + 1; r < row + stride && r < at->n_rows; r++)
            for (size_t c = 0; c < n; c++) call->params->out[(at->first_row + r) * n + c] += delta[c];
    }
}

/* What the dense rows of a span have read beside its own. */
static void count_dense_rows(const LayerCall *call, uint32_t span)
{
    const Wave *wave = &call->selector->wave;
    const KvSpan *at = &wave->spans[span];
    const AttnPlan *plans = wave->from[span]->plans;
    AttentionStats more = {0};
    for (uint32_t row = first_dense(at, stride_of(call, span)); row < at->n_rows; row += stride_of(call, span))
        for (uint32_t h = 0; h < call->pass->shape->n_kv_heads; h++)
            attention_count(&plans[h], at->first_pos + row, &at->classes[at->heads[h].class_index].pool->layout, 1,
                            &more);
    select_state_seq(call->selector->state, wave->seqs[span])->stats[ROWS_PREFILL].select_bytes += more.kv_bytes;
}

bool selector_correct(const LayerCall *call)
{
    const Wave *wave = &call->selector->wave;
    uint32_t n_more = 0;
    for (uint32_t i = 0; i < wave->n_spans; i++)
        if (stride_of(call, i)) n_more = add_dense_rows(call, i, n_more);
    if (n_more == 0) return true;
    AttendParams params = *call->params;
    params.spans = call->selector->more_spans;
    params.n_spans = n_more;
    params.out = call->selector->more_out;
    if (!call->pass->kernels->attend(&params, call->pass->stream)) return false;
    for (uint32_t i = 0; i < wave->n_spans; i++) {
        if (!stride_of(call, i)) continue;
        correct_rows(call, i);
        count_dense_rows(call, i);
    }
    return true;
}
