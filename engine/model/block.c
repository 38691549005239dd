/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/block.h"

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

static bool norm(const ForwardPass *pass, const float *weight)
{
    return norm_rows(pass, pass->buf->x, weight, pass->buf->normed, pass->n_rows, pass->shape->n_embd);
}

static MatmulParams matmul_of(const ForwardPass *pass, const float *x, uint32_t n_cols)
{
    return (MatmulParams){
        .x = x, .x_stride = n_cols, .n_tokens = pass->n_rows, .n_cols = n_cols, .scratch = pass->buf->matmul_scratch};
}

static bool project_qkv(const ForwardPass *pass, const LayerWeights *w)
{
    const StepBuffers *buf = pass->buf;
    MatmulParams params = matmul_of(pass, buf->normed, pass->shape->n_embd);
    params.n_out = 3;
    params.out[0] = block_matmul_out(&w->q, w->q_bias, buf->q, false);
    params.out[1] = block_matmul_out(&w->k, w->k_bias, buf->k, false);
    params.out[2] = block_matmul_out(&w->v, w->v_bias, buf->v, false);
    return pass->kernels->matmul(&params, pass->stream);
}

/* Normalises each head where there are weights for it, then turns it. */
static bool place_heads(const ForwardPass *pass, uint32_t layer, float *x, uint32_t n_heads, const float *head_norm)
{
    const StepBuffers *buf = pass->buf;
    bool is_window = shape_layer_window(pass->shape, layer) && buf->window_cos_sin;
    const RopeParams params = {.x = x,
                               .cos_sin = is_window ? buf->window_cos_sin : buf->cos_sin,
                               .n_tokens = pass->n_rows,
                               .n_heads = n_heads,
                               .head_dim = pass->shape->head_dim,
                               .n_pairs = pass->shape->rope_dim / 2};
    return (!head_norm || norm_rows(pass, x, head_norm, x, pass->n_rows * n_heads, pass->shape->head_dim)) &&
           pass->kernels->rope(&params, pass->stream);
}

static void trace_layer(const ForwardPass *pass, uint32_t layer)
{
    if (!pass->trace) return;
    const LayerTrace trace = {.layer = layer,
                              .n_rows = pass->n_rows,
                              .n_spans = pass->n_spans,
                              .q = pass->buf->q,
                              .spans = pass->spans,
                              .seqs = pass->span_seqs};
    pass->trace(pass->trace_arg, &trace);
}

static bool attend(const ForwardPass *pass, uint32_t layer)
{
    const StepBuffers *buf = pass->buf;
    const ModelShape *shape = pass->shape;
    for (uint32_t i = 0; i < pass->n_spans; i++) {
        pass->spans[i].heads = pass->span_heads[i].heads + (size_t)layer * shape->n_kv_heads;
        pass->spans[i].plans = pass->span_heads[i].plans + (size_t)layer * shape->n_kv_heads;
    }
    const KvStoreParams store = {.k = buf->k,
                                 .v = buf->v,
                                 .spans = pass->spans,
                                 .n_spans = pass->n_spans,
                                 .n_kv_heads = shape->n_kv_heads,
                                 .k_dim = shape->head_dim,
                                 .v_dim = shape->v_dim};
    const AttendParams params = {.q = buf->q,
                                 .out = buf->attn,
                                 .spans = pass->spans,
                                 .n_spans = pass->n_spans,
                                 .n_heads = shape->n_heads,
                                 .n_kv_heads = shape->n_kv_heads,
                                 .k_dim = shape->head_dim,
                                 .v_dim = shape->v_dim,
                                 .scale = shape->attention_scale,
                                 .softcap = shape->attention_softcap,
                                 .scratch = buf->attention_scratch};
    if (!pass->kernels->kv_store(&store, pass->stream)) return false;
    trace_layer(pass, layer);
    return pass->kernels->attend(&params, pass->stream);
}

/* Adds matrix x to the residual stream, after a norm where there is one. */
static bool add_projection(const ForwardPass *pass, const Matrix *matrix, const float *x, const float *post_norm)
{
    const StepBuffers *buf = pass->buf;
    MatmulParams params = matmul_of(pass, x, matrix->n_cols);
    params.n_out = 1;
    params.out[0] = block_matmul_out(matrix, NULL, post_norm ? buf->normed : buf->x, !post_norm);
    if (!pass->kernels->matmul(&params, pass->stream)) return false;
    if (!post_norm) return true;
    const VectorAddParams add = {
        .x = buf->x, .y = buf->normed, .z = buf->x, .n = (size_t)pass->n_rows * pass->shape->n_embd};
    return norm_rows(pass, buf->normed, post_norm, buf->normed, pass->n_rows, pass->shape->n_embd) &&
           pass->kernels->vector_add(&add, pass->stream);
}

bool block_attention(const ForwardPass *pass, uint32_t layer)
{
    const LayerWeights *w = &pass->weights->layers[layer];
    return norm(pass, w->attn_norm) && project_qkv(pass, w) &&
           place_heads(pass, layer, pass->buf->q, pass->shape->n_heads, w->q_norm) &&
           place_heads(pass, layer, pass->buf->k, pass->shape->n_kv_heads, w->k_norm) && attend(pass, layer) &&
           add_projection(pass, &w->o, pass->buf->attn, w->attn_post_norm);
}

bool block_gated_mlp(const ForwardPass *pass, uint32_t layer, GluActivation activation)
{
    const LayerWeights *w = &pass->weights->layers[layer];
    const StepBuffers *buf = pass->buf;
    MatmulParams project = matmul_of(pass, buf->normed, pass->shape->n_embd);
    project.n_out = 2;
    project.out[0] = block_matmul_out(&w->gate, NULL, buf->gate, false);
    project.out[1] = block_matmul_out(&w->up, NULL, buf->up, false);
    const GluParams glu = {.gate = buf->gate,
                           .up = buf->up,
                           .y = buf->gate,
                           .n = (size_t)pass->n_rows * pass->shape->n_ff,
                           .activation = activation};
    return norm(pass, w->ffn_norm) && pass->kernels->matmul(&project, pass->stream) &&
           pass->kernels->glu(&glu, pass->stream) && add_projection(pass, &w->down, buf->gate, w->ffn_post_norm);
}
