/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine_state.h"

#include <string.h>

static bool fill_rope_table(const Engine *engine, const Pass *pass, const RopeOrder *order, float *cos_sin)
{
    const RopeTableParams rope = {.theta = order->theta,
                                  .positions = pass->positions,
                                  .cos_sin = cos_sin,
                                  .n_tokens = pass->n_rows,
                                  .n_pairs = engine->shape.rope_dim / 2,
                                  .magnitude = engine->shape.rope_magnitude};
    return engine->kernels->rope_table(&rope, engine->stream);
}

bool forward_embed(const Engine *engine, const Pass *pass, const uint32_t *tokens)
{
    const Matrix *table = &engine->weights.token_embd;
    const EmbedParams embed = {.table = table->data,
                               .type = table->type,
                               .ids = tokens,
                               .y = pass->x,
                               .n_tokens = pass->n_rows,
                               .n = table->n_cols,
                               .scale = engine->shape.embed_scale};
    return engine->kernels->embed(&embed, engine->stream) &&
           fill_rope_table(engine, pass, &engine->weights.rope, pass->cos_sin) &&
           (!pass->window_cos_sin || fill_rope_table(engine, pass, &engine->weights.window_rope, pass->window_cos_sin));
}

/* The part of each span that lies in rows [first, end), rows counted from first; returns how many there are. */
static uint32_t clip_spans(const Engine *engine, const Pass *pass, uint32_t first, uint32_t end)
{
    size_t n_heads = (size_t)engine->shape.n_layers * engine->shape.n_kv_heads;
    uint32_t n = 0;
    for (uint32_t i = 0; i < pass->n_spans; i++) {
        const BatchSpan *span = &pass->spans[i];
        uint32_t from = span->first_row > first ? span->first_row : first;
        uint32_t to = span->first_row + span->n_rows < end ? span->first_row + span->n_rows : end;
        if (from >= to || span->seq == SEQ_NONE) continue;
        PolicyId policy = kv_seq_policy(engine->seqs, span->seq);
        engine->span_seqs[n] = span->seq;
        engine->span_heads[n] = (SpanHeads){.heads = engine->classes.policies[policy].heads,
                                            .plans = engine->plans + (policy * N_ROW_KINDS + span->kind) * n_heads};
        engine->spans[n++] = (KvSpan){.classes = kv_seq_views(engine->seqs, span->seq),
                                      .first_row = from - first,
                                      .n_rows = to - from,
                                      .first_pos = span->first_pos + (from - span->first_row)};
    }
    return n;
}

bool forward_layer(const Engine *engine, const Pass *pass, uint32_t layer, uint32_t first_row, uint32_t n_rows)
{
    size_t table_row = engine->shape.rope_dim;
    StepBuffers buf = engine->buf;
    buf.x = pass->x + (size_t)first_row * engine->shape.n_embd;
    buf.cos_sin = pass->cos_sin + first_row * table_row;
    buf.window_cos_sin = pass->window_cos_sin ? pass->window_cos_sin + first_row * table_row : NULL;
    const ForwardPass piece = {.kernels = engine->kernels,
                               .stream = engine->stream,
                               .shape = &engine->shape,
                               .weights = &engine->weights,
                               .buf = &buf,
                               .spans = engine->spans,
                               .span_heads = engine->span_heads,
                               .n_spans = clip_spans(engine, pass, first_row, first_row + n_rows),
                               .n_rows = n_rows,
                               .span_seqs = engine->span_seqs,
                               .trace = engine->trace,
                               .trace_arg = engine->trace_arg};
    return engine->family->forward_layer(&piece, layer);
}

/* Collects the rows that want logits; returns how many. */
static uint32_t gather_hidden(const Engine *engine, const Pass *pass)
{
    size_t n_embd = engine->shape.n_embd;
    uint32_t n = 0;
    for (uint32_t i = 0; i < pass->n_spans; i++) {
        uint32_t wanted = span_logit_rows(&pass->spans[i]);
        size_t first = pass->spans[i].first_row + pass->spans[i].n_rows - wanted;
        memcpy(engine->hidden + n * n_embd, pass->x + first * n_embd, wanted * n_embd * sizeof(float));
        n += wanted;
    }
    return n;
}

bool forward_logits(const Engine *engine, const Pass *pass)
{
    uint32_t n_rows = gather_hidden(engine, pass);
    const RmsNormParams norm = {.x = engine->hidden,
                                .weight = engine->weights.output_norm,
                                .y = engine->hidden,
                                .n_rows = n_rows,
                                .n = engine->shape.n_embd,
                                .eps = engine->shape.norm_eps};
    const MatmulParams matmul = {.x = engine->hidden,
                                 .x_stride = engine->shape.n_embd,
                                 .n_tokens = n_rows,
                                 .n_cols = engine->shape.n_embd,
                                 .n_out = 1,
                                 .out = {block_matmul_out(&engine->weights.output, NULL, engine->logits, false)},
                                 .scratch = engine->buf.matmul_scratch};
    const SoftcapParams cap = {.x = engine->logits,
                               .y = engine->logits,
                               .n = (size_t)n_rows * engine->shape.n_vocab,
                               .cap = engine->shape.final_softcap};
    return n_rows == 0 ||
           (engine->kernels->rmsnorm(&norm, engine->stream) && engine->kernels->matmul(&matmul, engine->stream) &&
            (cap.cap == 0 || engine->kernels->softcap(&cap, engine->stream)));
}
