/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/weights.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Error error;

/* A tiny file with one tensor dropped, renamed, added, or given as another shape or type. */
typedef struct Change {
    const char *tensor; /* "" for none */
    const char *as;     /* its new name; NULL: it stays away */
    uint64_t dim[2];    /* 0: as it was */
    bool as_f16;
} Change;

typedef struct File {
    Buffer bytes;
    Gguf *gguf;
    const ModelFamily *family;
    ModelShape shape;
} File;

static void open_file(const Buffer *bytes, File *file)
{
    cr_assert(gguf_open_memory(bytes->data, bytes->n, "test", &file->gguf, &error), "%s", error.text);
    cr_assert(family_find(file->gguf, &file->family, &error), "%s", error.text);
    cr_assert(family_read_shape(file->family, file->gguf, &file->shape, &error), "%s", error.text);
}

static void build_file(const TinyModel *model, File *file)
{
    *file = (File){0};
    buffer_init(&file->bytes, 1 << 24);
    cr_assert(tiny_model_build(model, &file->bytes, &error), "%s", error.text);
    open_file(&file->bytes, file);
}

static void close_file(File *file)
{
    gguf_close(file->gguf);
    buffer_done(&file->bytes);
}

static void copy_tensor(GgufWriter *writer, const GgufTensor *tensor, const Change *change)
{
    char name[96];
    snprintf(name, sizeof name, "%.*s", (int)tensor->name.n, tensor->name.data);
    DType type = tensor->view.type;
    uint64_t dim[2] = {tensor->view.dim[0], tensor->view.dim[1]};
    if (!strcmp(name, change->tensor)) {
        if (!change->as) return;
        snprintf(name, sizeof name, "%s", change->as);
        for (int d = 0; d < 2; d++)
            if (change->dim[d]) dim[d] = change->dim[d];
        if (change->as_f16) type = DTYPE_F16;
    }
    size_t n_bytes = dtype_row_bytes(type, dim[0] * dim[1]);
    uint32_t n_dims = tensor->view.n_dims == 1 && dim[1] > 1 ? 2 : tensor->view.n_dims;
    void *data = calloc(1, n_bytes);
    memcpy(data, tensor->view.data, n_bytes < tensor->n_bytes ? n_bytes : tensor->n_bytes);
    gguf_writer_tensor(writer, name, type, n_dims, dim, data, n_bytes);
    free(data);
}

/* Binding the changed file; the shape is that of the file as it was. */
static bool bind_changed(const Change *change)
{
    TinyModel model = tiny_model_default();
    File file, changed = {0};
    GgufWriter writer;
    Buffer bytes;
    ModelWeights weights;
    build_file(&model, &file);
    gguf_writer_init(&writer);
    buffer_init(&bytes, 1 << 24);
    for (size_t i = 0; i < gguf_n_tensors(file.gguf); i++) copy_tensor(&writer, gguf_tensor_at(file.gguf, i), change);
    gguf_writer_finish(&writer, &bytes);
    cr_assert(gguf_open_memory(bytes.data, bytes.n, "changed", &changed.gguf, &error), "%s", error.text);
    bool ok = weights_bind(file.family, &file.shape, changed.gguf, (BindProgress){0}, &weights, &error);
    if (ok) weights_done(&weights);
    gguf_close(changed.gguf);
    gguf_writer_done(&writer);
    buffer_done(&bytes);
    close_file(&file);
    return ok;
}

Test(test_weights, the_unchanged_file_binds)
{
    cr_assert(bind_changed(&(Change){""}), "%s", error.text);
}

Test(test_weights, faults_are_named)
{
    static const Change changes[] = {
        {"token_embd.weight", NULL, {0}, false},
        {"output_norm.weight", NULL, {0}, false},
        {"blk.0.attn_q.weight", NULL, {0}, false},
        {"blk.1.ffn_down.weight", NULL, {0}, false},
        {"blk.1.attn_norm.weight", NULL, {0}, false},
        {"blk.0.attn_q.weight", "blk.0.attn_q.weight", {32, 0}, false},
        {"blk.0.attn_k.weight", "blk.0.attn_k.weight", {0, 64}, false},
        {"blk.0.ffn_gate.weight", "blk.0.ffn_gate.weight", {128, 64}, false},
        {"blk.0.attn_norm.weight", "blk.0.attn_norm.weight", {32, 0}, false},
        {"blk.0.attn_norm.weight", "blk.0.attn_norm.weight", {0, 2}, false},
        {"blk.0.attn_norm.weight", "blk.0.attn_norm.weight", {0}, true},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        cr_assert_not(bind_changed(&changes[i]), "change %zu", i);
        cr_assert(strstr(error.text, changes[i].tensor), "'%s' does not name %s", error.text, changes[i].tensor);
    }
}

Test(test_weights, a_tensor_without_a_place_is_an_error)
{
    TinyModel model = tiny_model_default();
    File file;
    ModelWeights weights;
    model.tied = false;
    build_file(&model, &file);
    file.shape.tied_output = true; /* nothing reads output.weight then */
    cr_assert_not(weights_bind(file.family, &file.shape, file.gguf, (BindProgress){0}, &weights, &error));
    cr_assert_eq(error.code, ERR_UNSUPPORTED);
    cr_assert(strstr(error.text, "output.weight"), "%s", error.text);
    close_file(&file);
}

static void count_progress(void *arg, double fraction)
{
    double *seen = arg;
    cr_assert(fraction > *seen && fraction <= 1);
    *seen = fraction;
}

static bool inside(const Buffer *bytes, const void *p)
{
    return (const char *)p >= bytes->data && (const char *)p < bytes->data + bytes->n;
}

Test(test_weights, only_q_and_k_are_copied)
{
    TinyModel model = tiny_model_default();
    File file;
    ModelWeights weights;
    double progress = 0;
    model.tied = false;
    model.qkv_bias = true;
    build_file(&model, &file);
    cr_assert(
        weights_bind(file.family, &file.shape, file.gguf, (BindProgress){count_progress, &progress}, &weights, &error),
        "%s", error.text);
    cr_assert_eq(progress, 1);
    cr_assert(inside(&file.bytes, weights.token_embd.data) && inside(&file.bytes, weights.output.data));
    cr_assert_neq(weights.token_embd.data, weights.output.data);
    for (uint32_t i = 0; i < file.shape.n_layers; i++) {
        const LayerWeights *w = &weights.layers[i];
        const void *in_place[] = {w->attn_norm, w->ffn_norm, w->v.data,    w->o.data,
                                  w->gate.data, w->up.data,  w->down.data, w->v_bias};
        for (size_t j = 0; j < sizeof in_place / sizeof *in_place; j++) cr_assert(inside(&file.bytes, in_place[j]));
        cr_assert_not(inside(&file.bytes, w->q.data) || inside(&file.bytes, w->k.data));
        cr_assert_not(inside(&file.bytes, w->q_bias) || inside(&file.bytes, w->k_bias));
    }
    weights_done(&weights);
    close_file(&file);
}

/*
 * Row of the half-split file that holds row i of the interleaved one: pair (2r, 2r+1) moves to (r, r + head_dim / 2).
 */
static size_t half_split_row(size_t i, size_t head_dim)
{
    size_t head = i / head_dim, c = i % head_dim;
    return head * head_dim + (c % 2 ? head_dim / 2 : 0) + c / 2;
}

static void make_half_split(File *file, const char *name, size_t head_dim)
{
    const GgufTensor *tensor = gguf_tensor(file->gguf, name);
    size_t n_rows = tensor->view.n_dims == 1 ? tensor->view.dim[0] : tensor->view.dim[1];
    size_t row_bytes = tensor->n_bytes / n_rows;
    char *rows = malloc(tensor->n_bytes);
    memcpy(rows, tensor->view.data, tensor->n_bytes);
    char *to = file->bytes.data + tensor->file_offset;
    for (size_t i = 0; i < n_rows; i++)
        memcpy(to + half_split_row(i, head_dim) * row_bytes, rows + i * row_bytes, row_bytes);
    free(rows);
}

/* Both conventions of the same model must end in the same rows, bit by bit, for every type. */
Test(test_weights, both_layouts_end_in_one_order)
{
    static const DType types[] = {DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0,
                                  DTYPE_Q4_1, DTYPE_Q2_K, DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_MXFP4};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        TinyModel model = tiny_model_default();
        File a, b;
        ModelWeights x, y;
        model.type = types[t];
        model.n_embd = 256;
        model.qkv_bias = true;
        model.n_ff = 256;
        model.n_heads = 16;
        build_file(&model, &a);
        build_file(&model, &b);
        const char *const names[] = {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_q.bias",
                                     "blk.0.attn_k.bias",   "blk.1.attn_q.weight", "blk.1.attn_k.weight",
                                     "blk.1.attn_q.bias",   "blk.1.attn_k.bias"};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) make_half_split(&b, names[i], model.head_dim);
        b.shape.rope_layout = ROPE_HALF_SPLIT;
        cr_assert(weights_bind(a.family, &a.shape, a.gguf, (BindProgress){0}, &x, &error), "%s", error.text);
        cr_assert(weights_bind(b.family, &b.shape, b.gguf, (BindProgress){0}, &y, &error), "%s", error.text);
        for (uint32_t i = 0; i < a.shape.n_layers; i++) {
            const LayerWeights *v = &x.layers[i], *w = &y.layers[i];
            size_t row_bytes = dtype_row_bytes(types[t], model.n_embd);
            cr_assert_arr_eq(v->q.data, w->q.data, v->q.n_rows * row_bytes);
            cr_assert_arr_eq(v->k.data, w->k.data, v->k.n_rows * row_bytes);
            cr_assert_arr_eq(v->q_bias, w->q_bias, v->q.n_rows * sizeof(float));
            cr_assert_arr_eq(v->k_bias, w->k_bias, v->k.n_rows * sizeof(float));
        }
        weights_done(&x);
        weights_done(&y);
        close_file(&a);
        close_file(&b);
    }
}
