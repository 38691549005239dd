/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/ref_llama.h"
#include "kernels/linear/dequant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *need(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size);
    if (!p) abort();
    return p;
}

/* [rows, columns] of a tensor as the file has it; NULL when it is not there. */
static float *load(const Gguf *gguf, const char *name)
{
    const GgufTensor *tensor = gguf_tensor(gguf, name);
    if (!tensor) return NULL;
    size_t n_cols = tensor->view.dim[0], n_rows = tensor->view.n_dims > 1 ? tensor->view.dim[1] : 1;
    size_t row_bytes = dtype_row_bytes(tensor->view.type, n_cols);
    float *x = need(n_rows * n_cols, sizeof *x);
    for (size_t r = 0; r < n_rows; r++)
        if (!dequant_row_ref(tensor->view.type, (const char *)tensor->view.data + r * row_bytes, x + r * n_cols,
                             n_cols))
            abort();
    return x;
}

static float *load_of_layer(const Gguf *gguf, uint32_t layer, const char *suffix)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", layer, suffix);
    return load(gguf, name);
}

/* y[t, r] += sum_c w[r, c] x[t, c] + bias[r]; consumes w and bias. */
static void add_product(const double *x, uint32_t n_tokens, uint32_t n_rows, uint32_t n_cols, float *w, float *bias,
                        double *y)
{
    if (!w) abort();
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t r = 0; r < n_rows; r++) {
            double sum = bias ? (double)bias[r] : 0;
            for (uint32_t c = 0; c < n_cols; c++) sum += (double)w[(size_t)r * n_cols + c] * x[(size_t)t * n_cols + c];
            y[(size_t)t * n_rows + r] += sum;
        }
    free(w);
    free(bias);
}

static void norm_rows(const double *x, uint32_t n_rows, uint32_t n, double eps, float *weight, double *y)
{
    if (!weight) abort();
    for (uint32_t r = 0; r < n_rows; r++, x += n, y += n) {
        double sum = 0;
        for (uint32_t i = 0; i < n; i++) sum += x[i] * x[i];
        for (uint32_t i = 0; i < n; i++) y[i] = x[i] / sqrt(sum / n + eps) * (double)weight[i];
    }
    free(weight);
}

static void rotate(const ModelShape *s, const Gguf *gguf, uint32_t n_tokens, uint32_t n_heads, double *x)
{
    float *divisors = load(gguf, "rope_freqs.weight");
    uint32_t n_pairs = s->rope_dim / 2;
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t h = 0; h < n_heads; h++, x += s->head_dim)
            for (uint32_t r = 0; r < n_pairs; r++) {
                double theta = pow(s->rope_base, -2.0 * r / s->rope_dim) / s->rope_linear_factor;
                double angle = t * (divisors ? theta / (double)divisors[r] : theta);
                double *a = s->rope_layout == ROPE_INTERLEAVED ? &x[2 * r] : &x[r];
                double *b = s->rope_layout == ROPE_INTERLEAVED ? &x[2 * r + 1] : &x[r + n_pairs];
                double a0 = *a, b0 = *b;
                *a = a0 * cos(angle) - b0 * sin(angle);
                *b = a0 * sin(angle) + b0 * cos(angle);
            }
    free(divisors);
}

/* One query over the keys 0..t of its KV head. */
static void attend_row(const ModelShape *s, uint32_t t, const double *q, const double *k, const double *v, double *out)
{
    uint32_t k_stride = s->n_kv_heads * s->head_dim, v_stride = s->n_kv_heads * s->v_dim;
    double *p = need(t + 1, sizeof *p);
    for (uint32_t j = 0; j <= t; j++) {
        for (uint32_t c = 0; c < s->head_dim; c++) p[j] += q[c] * k[(size_t)j * k_stride + c];
        p[j] *= (double)s->attention_scale;
    }
    ref_log_softmax(p, t + 1);
    for (uint32_t j = 0; j <= t; j++)
        for (uint32_t c = 0; c < s->v_dim; c++) out[c] += exp(p[j]) * v[(size_t)j * v_stride + c];
    free(p);
}

static void attention(const Gguf *gguf, const ModelShape *s, uint32_t layer, uint32_t n, const double *normed,
                      double *x)
{
    uint32_t q_rows = s->n_heads * s->head_dim, k_rows = s->n_kv_heads * s->head_dim, v_rows = s->n_kv_heads * s->v_dim;
    double *q = need((size_t)n * q_rows, sizeof *q), *k = need((size_t)n * k_rows, sizeof *k);
    double *v = need((size_t)n * v_rows, sizeof *v), *out = need((size_t)n * s->n_heads * s->v_dim, sizeof *out);
    add_product(normed, n, q_rows, s->n_embd, load_of_layer(gguf, layer, "attn_q.weight"),
                load_of_layer(gguf, layer, "attn_q.bias"), q);
    add_product(normed, n, k_rows, s->n_embd, load_of_layer(gguf, layer, "attn_k.weight"),
                load_of_layer(gguf, layer, "attn_k.bias"), k);
    add_product(normed, n, v_rows, s->n_embd, load_of_layer(gguf, layer, "attn_v.weight"),
                load_of_layer(gguf, layer, "attn_v.bias"), v);
    rotate(s, gguf, n, s->n_heads, q);
    rotate(s, gguf, n, s->n_kv_heads, k);
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t h = 0; h < s->n_heads; h++) {
            uint32_t kv_head = h / (s->n_heads / s->n_kv_heads);
            attend_row(s, t, q + (size_t)t * q_rows + h * s->head_dim, k + kv_head * s->head_dim,
                       v + kv_head * s->v_dim, out + ((size_t)t * s->n_heads + h) * s->v_dim);
        }
    add_product(out, n, s->n_embd, s->n_heads * s->v_dim, load_of_layer(gguf, layer, "attn_output.weight"), NULL, x);
    free(q);
    free(k);
    free(v);
    free(out);
}

static void mlp(const Gguf *gguf, const ModelShape *s, uint32_t layer, uint32_t n, const double *normed, double *x)
{
    size_t n_inner = (size_t)n * s->n_ff;
    double *gate = need(n_inner, sizeof *gate), *up = need(n_inner, sizeof *up);
    add_product(normed, n, s->n_ff, s->n_embd, load_of_layer(gguf, layer, "ffn_gate.weight"), NULL, gate);
    add_product(normed, n, s->n_ff, s->n_embd, load_of_layer(gguf, layer, "ffn_up.weight"), NULL, up);
    for (size_t i = 0; i < n_inner; i++) gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    add_product(gate, n, s->n_embd, s->n_ff, load_of_layer(gguf, layer, "ffn_down.weight"), NULL, x);
    free(gate);
    free(up);
}

void ref_llama_logits(const Gguf *gguf, const ModelShape *shape, const uint32_t *tokens, uint32_t n_tokens,
                      double *ret_logits)
{
    size_t n = (size_t)n_tokens * shape->n_embd;
    double *x = need(n, sizeof *x), *normed = need(n, sizeof *normed);
    float *table = load(gguf, "token_embd.weight"), *output = load(gguf, "output.weight");
    for (size_t i = 0; i < n; i++)
        x[i] = (double)table[(size_t)tokens[i / shape->n_embd] * shape->n_embd + i % shape->n_embd];
    for (uint32_t layer = 0; layer < shape->n_layers; layer++) {
        norm_rows(x, n_tokens, shape->n_embd, shape->norm_eps, load_of_layer(gguf, layer, "attn_norm.weight"), normed);
        attention(gguf, shape, layer, n_tokens, normed, x);
        norm_rows(x, n_tokens, shape->n_embd, shape->norm_eps, load_of_layer(gguf, layer, "ffn_norm.weight"), normed);
        mlp(gguf, shape, layer, n_tokens, normed, x);
    }
    norm_rows(x, n_tokens, shape->n_embd, shape->norm_eps, load(gguf, "output_norm.weight"), normed);
    memset(ret_logits, 0, (size_t)n_tokens * shape->n_vocab * sizeof *ret_logits);
    add_product(normed, n_tokens, shape->n_vocab, shape->n_embd, output ? output : load(gguf, "token_embd.weight"),
                NULL, ret_logits);
    free(table);
    free(x);
    free(normed);
}

void ref_log_softmax(double *x, uint32_t n)
{
    double max = x[0], sum = 0;
    for (uint32_t i = 1; i < n; i++) max = fmax(max, x[i]);
    for (uint32_t i = 0; i < n; i++) sum += exp(x[i] - max);
    for (uint32_t i = 0; i < n; i++) x[i] -= max + log(sum);
}
