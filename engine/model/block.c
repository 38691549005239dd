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

static bool norm(const ForwardPass *pass, const float *weight)
{
    const RmsNormParams params = {.x = pass->buf->x,
                                  .weight = weight,
                                  .y = pass->buf->normed,
                                  .n_rows = pass->n_rows,
                                  .n = pass->shape->n_embd,
                                  .eps = pass->shape->norm_eps};
    return pass->kernels->rmsnorm(&params, pass->stream);
}

static MatmulParams matmul_of(const ForwardPass *pass, const float *x, uint32_t n_cols)
{
    return (MatmulParams){.x = x,
                          .x_stride = n_cols,
                          .n_tokens = pass->n_rows,
                          .n_cols = n_cols,
                          .scratch = pass->buf->matmul_scratch};
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

static bool rotate(const ForwardPass *pass, float *x, uint32_t n_heads)
{
    const RopeParams params = {.x = x,
                               .cos_sin = pass->buf->cos_sin,
                               .n_tokens = pass->n_rows,
                               .n_heads = n_heads,
                               .head_dim = pass->shape->head_dim,
                               .n_pairs = pass->shape->rope_dim / 2};
    return pass->kernels->rope(&params, pass->stream);
}

static bool attend(const ForwardPass *pass, uint32_t layer)
{
    const StepBuffers *buf = pass->buf;
    for (uint32_t i = 0; i < pass->n_spans; i++) pass->spans[i].kv = kv_seq_view(pass->kv, pass->seqs[i], layer);
    const KvAppendParams append = {.k = buf->k, .v = buf->v, .spans = pass->spans, .n_spans = pass->n_spans};
    const AttentionParams attention = {.q = buf->q,
                                       .out = buf->attn,
                                       .spans = pass->spans,
                                       .n_spans = pass->n_spans,
                                       .n_heads = pass->shape->n_heads,
                                       .scale = pass->shape->attention_scale,
                                       .scratch = buf->attention_scratch};
    return pass->kernels->kv_append(&append, pass->stream) && pass->kernels->attention(&attention, pass->stream);
}

static bool add_projection(const ForwardPass *pass, const Matrix *matrix, const float *x)
{
    MatmulParams params = matmul_of(pass, x, matrix->n_cols);
    params.n_out = 1;
    params.out[0] = block_matmul_out(matrix, NULL, pass->buf->x, true);
    return pass->kernels->matmul(&params, pass->stream);
}

bool block_attention(const ForwardPass *pass, uint32_t layer)
{
    const LayerWeights *w = &pass->weights->layers[layer];
    return norm(pass, w->attn_norm) && project_qkv(pass, w) && rotate(pass, pass->buf->q, pass->shape->n_heads) &&
           rotate(pass, pass->buf->k, pass->shape->n_kv_heads) && attend(pass, layer) &&
           add_projection(pass, &w->o, pass->buf->attn);
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
           pass->kernels->glu(&glu, pass->stream) && add_projection(pass, &w->down, buf->gate);
}
