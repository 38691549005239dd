/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/block.h"
#include "engine/select/selector.h"

MatmulOut block_matmul_out(const Matrix *matrix, const float *bias, float *y, bool accumulate)
{
    return (MatmulOut){.w = matrix->data,
                       .type = matrix->type,
                       .n_rows = matrix->n_rows,
                       .y = y,
                       .y_stride = matrix->n_rows,
                       .bias = bias,
                       .accumulate = accumulate};
}

static bool norm_rows(const ForwardPass *pass, const float *x, const float *weight, float *y, uint32_t n_rows,
                      uint32_t n)
{
    const RmsNormParams params = {
        .x = x, .weight = weight, .y = y, .n_rows = n_rows, .n = n, .eps = pass->shape->norm_eps};
    return pass->kernels->rmsnorm(&params, pass->stream);
}

static MatmulParams matmul_of(const ForwardPass *pass, const float *x, uint32_t n_cols)
{
    return (MatmulParams){.x = x,
                          .x_stride = n_cols,
                          .n_tokens = pass->n_rows,
                          .n_cols = n_cols,
                          .scratch = pass->buf->matmul_scratch,
                          .is_deterministic = pass->is_deterministic};
}

/* Multiplies with norm(x): within the product where that can do it. params.x is buf->normed. */
static bool normed_matmul(const ForwardPass *pass, const float *weight, MatmulParams *params)
{
    const StepBuffers *buf = pass->buf;
    if (pass->kernels->matmul_fuses) {
        params->x = buf->x;
        params->norm_weight = weight;
        params->norm_eps = pass->shape->norm_eps;
    } else if (!norm_rows(pass, buf->x, weight, buf->normed, pass->n_rows, pass->shape->n_embd)) {
        return false;
    }
    return pass->kernels->matmul(params, pass->stream);
}

static bool project_qkv(const ForwardPass *pass, const LayerWeights *w)
{
    const StepBuffers *buf = pass->buf;
    MatmulParams params = matmul_of(pass, buf->normed, pass->shape->n_embd);
    params.n_out = 3;
    params.out[0] = block_matmul_out(&w->q, w->q_bias, buf->q, false);
    params.out[1] = block_matmul_out(&w->k, w->k_bias, buf->k, false);
    params.out[2] = block_matmul_out(&w->v, w->v_bias, buf->v, false);
    return normed_matmul(pass, w->attn_norm, &params);
}

static const float *angles_of(const ForwardPass *pass, uint32_t layer)
{
    const StepBuffers *buf = pass->buf;
    return shape_layer_window(pass->shape, layer) && buf->window_cos_sin ? buf->window_cos_sin : buf->cos_sin;
}

/* Normalises each head where there are weights for it, then turns it. */
static bool place_heads(const ForwardPass *pass, uint32_t layer, float *x, uint32_t n_heads, const float *head_norm)
{
    const RopeParams params = {.x = x,
                               .cos_sin = angles_of(pass, layer),
                               .n_tokens = pass->n_rows,
                               .n_heads = n_heads,
                               .head_dim = pass->shape->head_dim,
                               .n_pairs = pass->shape->rope_dim / 2};
    return (!head_norm || norm_rows(pass, x, head_norm, x, pass->n_rows * n_heads, pass->shape->head_dim)) &&
           pass->kernels->rope(&params, pass->stream);
}

/* Both, unless kv_store does it. */
static bool place_qk(const ForwardPass *pass, uint32_t layer)
{
    const LayerWeights *w = &pass->weights->layers[layer];
    return pass->kernels->kv_store_turns ||
           (place_heads(pass, layer, pass->buf->q, pass->shape->n_heads, w->q_norm) &&
            place_heads(pass, layer, pass->buf->k, pass->shape->n_kv_heads, w->k_norm));
}

static KvTurn turn_of(const ForwardPass *pass, uint32_t layer)
{
    const LayerWeights *w = &pass->weights->layers[layer];
    if (!pass->kernels->kv_store_turns) return (KvTurn){0};
    return (KvTurn){.q = pass->buf->q,
                    .cos_sin = angles_of(pass, layer),
                    .q_norm = w->q_norm,
                    .k_norm = w->k_norm,
                    .norm_eps = pass->shape->norm_eps,
                    .n_heads = pass->shape->n_heads,
                    .n_pairs = pass->shape->rope_dim / 2};
}

void block_trace(const ForwardPass *pass, uint32_t layer, const KvSpan *spans, const SeqId *seqs, uint32_t n_spans)
{
    if (!pass->trace) return;
    LayerTrace trace = {.n_spans = n_spans, .spans = spans, .seqs = seqs};
    if (pass->device_trace) trace = *pass->device_trace;
    trace.layer = layer;
    trace.n_rows = pass->n_rows;
    trace.q = pass->buf->q;
    pass->trace(pass->trace_arg, &trace);
}

/* New keys and values go into the cache, where they are needed their bounds too. */
static bool store(const ForwardPass *pass, uint32_t layer, const RopeTurns *turns)
{
    const ModelShape *shape = pass->shape;
    const KvStoreParams params = {.k = pass->buf->k,
                                  .v = pass->buf->v,
                                  .spans = pass->spans,
                                  .n_spans = pass->n_spans,
                                  .n_kv_heads = shape->n_kv_heads,
                                  .k_dim = shape->head_dim,
                                  .v_dim = shape->v_dim,
                                  .turn = turn_of(pass, layer),
                                  .launch = pass->launch};
    const KvBoundsParams bounds = {.spans = pass->spans,
                                   .n_spans = pass->n_spans,
                                   .n_kv_heads = shape->n_kv_heads,
                                   .k_dim = shape->head_dim,
                                   .turns = turns};
    return pass->kernels->kv_store(&params, pass->stream) &&
           (!pass->has_bounds || pass->kernels->kv_bounds(&bounds, pass->stream));
}

/* Decode steps whose keys stay as they are written need no launch for that; who looks wants queries turned before. */
static bool attend_stores(const ForwardPass *pass)
{
    const KvLaunch *launch = &pass->launch;
    return pass->kernels->attend_stores && !pass->trace && launch->split_rows == 1 && !launch->tiled_rows &&
           !(launch->types & ~(1u << KV_F16 | 1u << KV_BF16));
}

/* Rows' lists, on a device; queries may be turned yet or not. */
static bool select_keys(const ForwardPass *pass, const KvTurn *turn)
{
    SelectParams params = *pass->select;
    params.q = pass->buf->q;
    params.spans = pass->spans;
    params.n_spans = pass->n_spans < params.max_spans ? pass->n_spans : params.max_spans; /* others cannot select */
    params.turn = *turn;
    params.launch = pass->launch;
    return pass->kernels->select(&params, pass->stream);
}

static bool attend(const ForwardPass *pass, uint32_t layer)
{
    const StepBuffers *buf = pass->buf;
    const ModelShape *shape = pass->shape;
    bool has_window = shape_layer_window(shape, layer);
    const RopeTurns *turns = has_window ? pass->window_turns : pass->turns;
    AttendParams params = {.q = buf->q,
                           .out = buf->attn,
                           .spans = pass->spans,
                           .n_spans = pass->n_spans,
                           .n_heads = shape->n_heads,
                           .n_kv_heads = shape->n_kv_heads,
                           .k_dim = shape->head_dim,
                           .v_dim = shape->v_dim,
                           .scale = shape->attention_scale,
                           .softcap = shape->attention_softcap,
                           .turns = turns,
                           .scratch = buf->attention_scratch,
                           .launch = pass->launch};
    if (attend_stores(pass)) {
        params.k = buf->k;
        params.v = buf->v;
        params.turn = turn_of(pass, layer);
    } else if (!store(pass, layer, turns)) {
        return false;
    }
    if (pass->select && !has_window) {
        if (!select_keys(pass, &params.turn)) return false;
        params.launch.is_early = false; /* it reads lists */
    }
    if (pass->selector && !has_window) return selector_attend(pass->selector, pass, layer, &params);
    block_trace(pass, layer, pass->spans, pass->span_seqs, pass->n_spans);
    return pass->kernels->attend(&params, pass->stream);
}

/* Adds a product to the residual stream, after a norm where there is one. params.n_out is set here. */
static bool add_projection(const ForwardPass *pass, const Matrix *matrix, MatmulParams *params, const float *post_norm)
{
    const StepBuffers *buf = pass->buf;
    params->n_out = 1;
    params->out[0] = block_matmul_out(matrix, NULL, post_norm ? buf->normed : buf->x, !post_norm);
    if (!pass->kernels->matmul(params, pass->stream)) return false;
    if (!post_norm) return true;
    const VectorAddParams add = {
        .x = buf->x, .y = buf->normed, .z = buf->x, .n = (size_t)pass->n_rows * pass->shape->n_embd};
    return norm_rows(pass, buf->normed, post_norm, buf->normed, pass->n_rows, pass->shape->n_embd) &&
           pass->kernels->vector_add(&add, pass->stream);
}

bool block_attention(const ForwardPass *pass, uint32_t layer)
{
    const LayerWeights *w = &pass->weights->layers[layer];
    MatmulParams project = matmul_of(pass, pass->buf->attn, w->o.n_cols);
    return project_qkv(pass, w) && place_qk(pass, layer) && attend(pass, layer) &&
           add_projection(pass, &w->o, &project, w->attn_post_norm);
}

/* gate becomes act(gate) * up, unless the product has made that of it. */
static bool gate_up(const ForwardPass *pass, GluActivation activation)
{
    const StepBuffers *buf = pass->buf;
    const GluParams glu = {.gate = buf->gate,
                           .up = buf->up,
                           .y = buf->gate,
                           .n = (size_t)pass->n_rows * pass->shape->n_ff,
                           .activation = activation};
    return pass->kernels->matmul_fuses || pass->kernels->glu(&glu, pass->stream);
}

bool block_gated_mlp(const ForwardPass *pass, uint32_t layer, GluActivation activation)
{
    const LayerWeights *w = &pass->weights->layers[layer];
    const StepBuffers *buf = pass->buf;
    MatmulParams project = matmul_of(pass, buf->normed, pass->shape->n_embd);
    MatmulParams down = matmul_of(pass, buf->gate, w->down.n_cols);
    project.n_out = 2;
    project.out[0] = block_matmul_out(&w->gate, NULL, buf->gate, false);
    project.out[1] = block_matmul_out(&w->up, NULL, buf->up, false);
    project.is_gated = pass->kernels->matmul_fuses;
    project.glu_activation = activation;
    return normed_matmul(pass, w->ffn_norm, &project) && gate_up(pass, activation) &&
           add_projection(pass, &w->down, &down, w->ffn_post_norm);
}
