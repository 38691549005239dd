/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/counts.h"

#include "engine/select/attention_count.h"

static void count_span(CountTrace *counting, const LayerTrace *trace, const KvSpan *span)
{
    const ModelShape *shape = counting->shape;
    bool has_window = shape_layer_window(shape, trace->layer);
    for (uint32_t h = 0; h < shape->n_kv_heads; h++) {
        AttentionStats stats = {0};
        const KvLayout *layout = &span->classes[span->heads[h].class_index].pool->layout;
        AttnPlan plan = span->plans[h];
        if (trace->device) plan.list = NULL; /* which is not the host's */
        for (uint32_t r = 0; r < span->n_rows; r++) attention_count(&plan, span->first_pos + r, layout, 1, &stats);
        counting->counts.kv_bytes += stats.kv_bytes;
        /* Behind a window the model's own attention reads no more. */
        counting->counts.dense_bytes += has_window ? stats.kv_bytes : stats.context_bytes;
    }
}

void counts_look(void *count_trace, const LayerTrace *trace)
{
    for (uint32_t i = 0; i < trace->n_spans; i++) count_span(count_trace, trace, &trace->spans[i]);
}
