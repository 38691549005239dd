/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/device_logits.h"
#include "engine/device_plans.h"
#include "engine/device_step.h"
#include "engine/engine_state.h"

static bool fill_rope_table(const Engine *engine, const Pass *pass, const RopeOrder *order, const uint32_t *positions,
                            float *cos_sin)
{
    const RopeTableParams rope = {.theta = order->theta,
                                  .positions = positions,
                                  .cos_sin = cos_sin,
                                  .n_tokens = pass->n_rows,
                                  .n_pairs = engine->shape.rope_dim / 2,
                                  .magnitude = engine->shape.rope_magnitude};
    return engine->kernels->rope_table(&rope, engine->stream);
}

bool forward_embed(const Engine *engine, const Pass *pass, const uint32_t *ids, const uint32_t *positions)
{
    const ModelWeights *weights = engine->run_weights;
    const Matrix *table = &weights->token_embd;
    const EmbedParams embed = {.table = table->data,
                               .type = table->type,
                               .ids = ids,
                               .y = pass->x,
                               .n_tokens = pass->n_rows,
                               .n = table->n_cols,
                               .scale = engine->shape.embed_scale};
    return engine->kernels->embed(&embed, engine->stream) &&
           fill_rope_table(engine, pass, &weights->rope, positions, pass->cos_sin) &&
           (!pass->window_cos_sin ||
            fill_rope_table(engine, pass, &weights->window_rope, positions, pass->window_cos_sin));
}

/* Bands go by the page of a row, and a device's kernels by that of a span: of those that bands cut each page's rows are
 * one, the last one in the place of all. Returns how many there are. */
static uint32_t cut_spans(const Engine *engine, uint32_t n)
{
    PieceSpan *spans = engine->piece_spans;
    uint32_t n_all = n;
    for (uint32_t i = 0; i < n; i++) {
        PieceSpan left = spans[i];
        if (!device_plans_cut(engine, &left)) continue;
        for (uint32_t at = i; left.n_rows;) {
            PieceSpan part = left;
            uint32_t in_page = (left.first_pos + left.n_rows - 1) % KV_PAGE_TOKENS + 1;
            if (in_page < part.n_rows) part.n_rows = in_page;
            left.n_rows -= part.n_rows;
            part.first_row += left.n_rows;
            part.first_pos += left.n_rows;
            spans[at] = part;
            if (left.n_rows) at = n_all++;
        }
    }
    return n_all;
}

/* The part of each span that lies in rows [first, end); returns how many there are. */
static uint32_t clip_spans(const Engine *engine, const Pass *pass, uint32_t first, uint32_t end)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < pass->n_spans; i++) {
        const BatchSpan *span = &pass->spans[i];
        uint32_t from = span->first_row > first ? span->first_row : first;
        uint32_t to = span->first_row + span->n_rows < end ? span->first_row + span->n_rows : end;
        if (from >= to || span->seq == SEQ_NONE) continue;
        engine->piece_spans[n++] = (PieceSpan){.seq = span->seq,
                                               .kind = span->kind,
                                               .first_row = from - first,
                                               .n_rows = to - from,
                                               .first_pos = span->first_pos + (from - span->first_row)};
    }
    return n;
}

bool forward_piece(Engine *engine, const Pass *pass, const WorkItem *item, Piece *ret_piece)
{
    uint32_t n = clip_spans(engine, pass, item->first_row, item->first_row + item->n_rows);
    if (engine->step)
        return device_step_piece(engine, cut_spans(engine, n), item->first_layer, item->n_layers, ret_piece);
    *ret_piece = (Piece){.n_spans = n, .first_layer = item->first_layer, .spans = engine->spans};
    return true;
}

/* For the kernels of the host: of one layer. */
static void set_spans(const Engine *engine, const Piece *piece, uint32_t layer)
{
    size_t at = (size_t)layer * engine->shape.n_kv_heads;
    for (uint32_t i = 0; i < piece->n_spans; i++) {
        const PieceSpan *span = &engine->piece_spans[i];
        uint32_t slot = policy_slot(kv_seq_policy(engine->seqs, span->seq));
        const AttnPlan *plans = engine_plans(engine, slot, span->kind) + at;
        engine->span_seqs[i] = span->seq;
        engine->span_plans[i] = (SpanPlans){plans, &engine->policies[slot].policy, span->kind};
        engine->spans[i] = (KvSpan){.classes = kv_seq_views(engine->seqs, span->seq),
                                    .heads = engine->classes.policies[slot].heads + at,
                                    .plans = plans,
                                    .first_row = span->first_row,
                                    .n_rows = span->n_rows,
                                    .first_pos = span->first_pos};
    }
}

/* What rows of a device select in any layer. */
static SelectParams selection_of(const Engine *engine, const Piece *piece, uint32_t layer)
{
    const ModelShape *shape = &engine->shape;
    return (SelectParams){.jobs = piece->jobs + (size_t)(layer - piece->first_layer) * piece->layer_stride,
                          .n_heads = shape->n_heads,
                          .n_kv_heads = shape->n_kv_heads,
                          .k_dim = shape->head_dim,
                          .n_channels = scan_bounds_width(&engine->turns, shape->head_dim),
                          .max_spans = engine->params.max_sequences,
                          .max_pages = kv_n_pages(engine->params.context),
                          .turns = &engine->device_turns,
                          .scratch = engine->select_scratch};
}

bool forward_bounds(const Engine *engine, const Piece *piece, uint32_t n_layers)
{
    const KvBoundsParams params = {.spans = piece->spans,
                                   .n_spans = piece->n_spans,
                                   .n_kv_heads = engine->shape.n_kv_heads,
                                   .k_dim = engine->shape.head_dim,
                                   .turns = &engine->device_turns,
                                   .n_layers = n_layers,
                                   .layer_stride = piece->layer_stride,
                                   .max_pages = piece->n_closed};
    return !engine_bounds_on_device(engine) || engine->kernels->kv_bounds(&params, engine->stream);
}

bool forward_layer(const Engine *engine, const Pass *pass, const Piece *piece, uint32_t layer, uint32_t first_row,
                   uint32_t n_rows)
{
    size_t table_row = engine->shape.rope_dim;
    StepBuffers buf = engine->buf;
    buf.x = pass->x + (size_t)first_row * engine->shape.n_embd;
    buf.cos_sin = pass->cos_sin + first_row * table_row;
    buf.window_cos_sin = pass->window_cos_sin ? pass->window_cos_sin + first_row * table_row : NULL;
    if (!piece->layer_stride) set_spans(engine, piece, layer);
    ForwardPass forward = {.kernels = engine->kernels,
                           .stream = engine->stream,
                           .shape = &engine->shape,
                           .weights = engine->run_weights,
                           .buf = &buf,
                           .spans = piece->spans + (size_t)(layer - piece->first_layer) * piece->layer_stride,
                           .n_spans = piece->n_spans,
                           .n_rows = n_rows,
                           .launch = piece->launch,
                           .is_deterministic = engine->params.is_deterministic,
                           .span_seqs = engine->span_seqs,
                           .span_plans = engine->span_plans,
                           .turns = &engine->turns,
                           .window_turns = &engine->window_turns,
                           .trace = engine->trace,
                           .trace_arg = engine->trace_arg};
    SelectParams select;
    LayerTrace shown;
    if (engine->trace && engine->step) {
        shown = device_step_trace(engine, piece, layer);
        forward.device_trace = &shown;
    }
    if (piece->jobs && (layer >= 64 || piece->due_layers >> layer & 1)) {
        select = selection_of(engine, piece, layer);
        forward.select = &select;
    }
    for (uint32_t i = 0; i < piece->n_spans && !piece->layer_stride; i++) {
        const AttnPolicy *policy = engine->span_plans[i].policy;
        if (selector_serves(policy)) forward.selector = engine->selector;
        forward.has_bounds |= policy_reads_bounds(policy);
    }
    return engine->family->forward_layer(&forward, layer);
}

bool forward_store(const Engine *engine, const Piece *piece, uint32_t layer)
{
    if (!piece->layer_stride) set_spans(engine, piece, layer);
    const KvStoreParams store = {.k = engine->buf.k,
                                 .v = engine->buf.v,
                                 .spans = piece->spans + (size_t)(layer - piece->first_layer) * piece->layer_stride,
                                 .n_spans = piece->n_spans,
                                 .n_kv_heads = engine->shape.n_kv_heads,
                                 .k_dim = engine->shape.head_dim,
                                 .v_dim = engine->shape.v_dim,
                                 .launch = piece->launch};
    return engine->kernels->kv_store(&store, engine->stream);
}

bool forward_output(const Engine *engine, const float *x, uint32_t n_rows)
{
    const ModelWeights *weights = engine->run_weights;
    const RmsNormParams norm = {.x = x,
                                .weight = weights->output_norm,
                                .y = engine->hidden,
                                .n_rows = n_rows,
                                .n = engine->shape.n_embd,
                                .eps = engine->shape.norm_eps};
    bool fuses = engine->kernels->matmul_fuses;
    const MatmulParams matmul = {.x = fuses ? x : engine->hidden,
                                 .x_stride = engine->shape.n_embd,
                                 .n_tokens = n_rows,
                                 .n_cols = engine->shape.n_embd,
                                 .n_out = 1,
                                 .out = {block_matmul_out(&weights->output, NULL, engine->logits, false)},
                                 .scratch = engine->buf.matmul_scratch,
                                 .norm_weight = fuses ? norm.weight : NULL,
                                 .norm_eps = norm.eps,
                                 .is_deterministic = engine->params.is_deterministic};
    const SoftcapParams cap = {.x = engine->logits,
                               .y = engine->logits,
                               .n = (size_t)n_rows * engine->shape.n_vocab,
                               .cap = engine->shape.final_softcap};
    return (fuses || engine->kernels->rmsnorm(&norm, engine->stream)) &&
           engine->kernels->matmul(&matmul, engine->stream) &&
           (cap.cap == 0 || engine->kernels->softcap(&cap, engine->stream));
}

/* Collects the rows that want logits, those that lie together in one piece. */
static bool gather_hidden(const Engine *engine, const Pass *pass, uint32_t *ret_n)
{
    size_t n_embd = engine->shape.n_embd, run_first = 0, run = 0, n = 0;
    for (uint32_t i = 0; i <= pass->n_spans; i++) {
        uint32_t wanted = i < pass->n_spans ? span_logit_rows(&pass->spans[i]) : 0;
        size_t first = i < pass->n_spans ? pass->spans[i].first_row + pass->spans[i].n_rows - wanted : 0;
        if (wanted && run && first == run_first + run) {
            run += wanted;
            continue;
        }
        if (i < pass->n_spans && !wanted) continue;
        if (!device_copy(engine->device, engine->hidden + n * n_embd, pass->x + run_first * n_embd,
                         run * n_embd * sizeof(float)))
            return false;
        n += run;
        run_first = first;
        run = wanted;
    }
    *ret_n = (uint32_t)n;
    return true;
}

bool forward_logits(Engine *engine, const Pass *pass)
{
    uint32_t n_rows = pass->n_rows;
    if (!pass->has_logits) {
        if (!gather_hidden(engine, pass, &n_rows)) return false;
        if (n_rows && !forward_output(engine, engine->hidden, n_rows)) return false;
    }
    return !engine->step || device_logits_bring(engine, pass, n_rows);
}
