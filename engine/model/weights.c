/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/weights.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TENSORS_PER_LAYER = 32, MAX_GLOBAL_TENSORS = 8, ARENA_BLOCK_BYTES = 64 << 10 };

void bind_layer_name(char name[TENSOR_NAME_BYTES], uint32_t layer, const char *suffix)
{
    snprintf(name, TENSOR_NAME_BYTES, "blk.%u.%s", layer, suffix);
}

/* Blocks hold 2-byte scales, so that is what a kernel may load directly. */
static size_t type_alignment(DType type)
{
    return type == DTYPE_F32 ? 4 : 2;
}

/* NULL: the error is set. */
static const GgufTensor *take_tensor(WeightBinder *binder, const char *name, Error *error)
{
    const GgufTensor *tensor = gguf_tensor(binder->gguf, name);
    if (!tensor) {
        error_set_param(error, ERR_INVALID, name, "tensor '%s' is missing (architecture %s)", name,
                        binder->shape->architecture);
        return NULL;
    }
    if ((uintptr_t)tensor->view.data % type_alignment(tensor->view.type) != 0) {
        error_set_param(error, ERR_INVALID, name, "tensor '%s' at offset %llu is not aligned for its type", name,
                        (unsigned long long)tensor->file_offset);
        return NULL;
    }
    assert(binder->n_taken < binder->max_taken);
    binder->taken[binder->n_taken++] = tensor;
    return tensor;
}

bool bind_matrix(WeightBinder *binder, const char *name, uint32_t n_rows, uint32_t n_cols, Matrix *ret_matrix,
                 Error *error)
{
    const GgufTensor *tensor = take_tensor(binder, name, error);
    if (!tensor) return false;
    const TensorView *view = &tensor->view;
    if (view->n_dims != 2 || view->dim[0] != n_cols || view->dim[1] != n_rows)
        return error_set_param(error, ERR_INVALID, name,
                               "tensor '%s' at offset %llu has shape [%llu, %llu] in %u dimensions, not [%u, %u]", name,
                               (unsigned long long)tensor->file_offset, (unsigned long long)view->dim[0],
                               (unsigned long long)view->dim[1], view->n_dims, n_cols, n_rows);
    *ret_matrix = (Matrix){view->data, view->type, n_rows, n_cols};
    return true;
}

bool bind_vector(WeightBinder *binder, const char *name, uint32_t n, const float **ret_vector, Error *error)
{
    const GgufTensor *tensor = take_tensor(binder, name, error);
    if (!tensor) return false;
    const TensorView *view = &tensor->view;
    if (view->type != DTYPE_F32)
        return error_set_param(error, ERR_UNSUPPORTED, name,
                               "tensor '%s' at offset %llu is %s; norms and biases must be F32", name,
                               (unsigned long long)tensor->file_offset, dtype_info(view->type)->name);
    if (view->n_dims != 1 || view->dim[0] != n)
        return error_set_param(
            error, ERR_INVALID, name, "tensor '%s' at offset %llu has %llu elements in %u dimensions, not %u", name,
            (unsigned long long)tensor->file_offset, (unsigned long long)view->dim[0], view->n_dims, n);
    *ret_vector = view->data;
    return true;
}

bool bind_optional_vector(WeightBinder *binder, const char *name, uint32_t n, const float **ret_vector, Error *error)
{
    if (gguf_tensor(binder->gguf, name)) return bind_vector(binder, name, n, ret_vector, error);
    *ret_vector = NULL;
    return true;
}

static const RopeOrder *rope_of_layer(const WeightBinder *binder, uint32_t layer)
{
    return shape_layer_window(binder->shape, layer) ? &binder->weights->window_rope : &binder->weights->rope;
}

bool bind_reorder_vector(WeightBinder *binder, uint32_t layer, uint32_t n_heads, const float **vector, Error *error)
{
    if (!*vector) return true;
    float *moved = arena_array(&binder->weights->arena, (size_t)n_heads * binder->shape->head_dim, sizeof *moved);
    if (!moved) return error_set(error, ERR_NO_MEMORY, "no memory for the reordered biases and norms of Q and K");
    rope_order_apply(rope_of_layer(binder, layer), binder->shape->head_dim, n_heads, *vector, sizeof *moved, moved);
    *vector = moved;
    return true;
}

bool bind_reorder_heads(WeightBinder *binder, uint32_t layer, uint32_t n_heads, Matrix *matrix, const float **bias,
                        Error *error)
{
    size_t row_bytes = dtype_row_bytes(matrix->type, matrix->n_cols);
    void *rows = arena_array(&binder->weights->arena, matrix->n_rows, row_bytes);
    if (!rows) return error_set(error, ERR_NO_MEMORY, "no memory for the reordered rows of Q and K");
    rope_order_apply(rope_of_layer(binder, layer), binder->shape->head_dim, n_heads, matrix->data, row_bytes, rows);
    matrix->data = rows;
    return bind_reorder_vector(binder, layer, n_heads, bias, error);
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (const GgufTensor *const *)a, y = (uintptr_t) * (const GgufTensor *const *)b;
    return x < y ? -1 : x > y;
}

/* A tensor that nothing reads would mean an answer that is silently wrong. */
static bool check_all_taken(WeightBinder *binder, Error *error)
{
    qsort(binder->taken, binder->n_taken, sizeof *binder->taken, by_address);
    for (size_t i = 0; i < gguf_n_tensors(binder->gguf); i++) {
        const GgufTensor *tensor = gguf_tensor_at(binder->gguf, i);
        if (bsearch(&tensor, binder->taken, binder->n_taken, sizeof tensor, by_address)) continue;
        char name[TENSOR_NAME_BYTES];
        gguf_printable(name, sizeof name, tensor->name);
        return error_set(error, ERR_UNSUPPORTED, "tensor '%s' at offset %llu has no place in architecture %s", name,
                         (unsigned long long)tensor->file_offset, binder->shape->architecture);
    }
    return true;
}

/* LongRoPE's factors come in pairs; rope_order.h has read the ones that count. */
static bool take_rope_factors(WeightBinder *binder, Error *error)
{
    const char *const names[] = {"rope_factors_long.weight", "rope_factors_short.weight"};
    uint32_t n_pairs = binder->shape->rope_dim / 2;
    const float *unused;
    if (!bind_optional_vector(binder, "rope_freqs.weight", n_pairs, &unused, error)) return false;
    if (!gguf_tensor(binder->gguf, names[0]) && !gguf_tensor(binder->gguf, names[1])) return true;
    return bind_vector(binder, names[0], n_pairs, &unused, error) &&
           bind_vector(binder, names[1], n_pairs, &unused, error);
}

static bool bind_globals(WeightBinder *binder, Error *error)
{
    const ModelShape *shape = binder->shape;
    ModelWeights *weights = binder->weights;
    if (!bind_matrix(binder, "token_embd.weight", shape->n_vocab, shape->n_embd, &weights->token_embd, error) ||
        !bind_vector(binder, "output_norm.weight", shape->n_embd, &weights->output_norm, error) ||
        !take_rope_factors(binder, error))
        return false;
    weights->output = weights->token_embd;
    return shape->tied_output ||
           bind_matrix(binder, "output.weight", shape->n_vocab, shape->n_embd, &weights->output, error);
}

static bool bind_all(const ModelFamily *family, WeightBinder *binder, BindProgress progress, Error *error)
{
    uint32_t n_layers = binder->shape->n_layers;
    if (!bind_globals(binder, error)) return false;
    for (uint32_t i = 0; i < n_layers; i++) {
        if (!family->bind_layer(binder, i, error)) return false;
        if (progress.fn) progress.fn(progress.arg, (i + 1.0) / n_layers);
    }
    return check_all_taken(binder, error);
}

bool weights_check_types(const Gguf *gguf, Error *error)
{
    for (size_t i = 0; i < gguf_n_tensors(gguf); i++) {
        const GgufTensor *tensor = gguf_tensor_at(gguf, i);
        uint32_t type = tensor->view.type;
        if (dtype_info((DType)type)) continue;
        char name[TENSOR_NAME_BYTES];
        gguf_printable(name, sizeof name, tensor->name);
        return error_set_param(error, ERR_UNSUPPORTED, name,
                               "tensor '%s' at offset %llu has type %s (%u), which is not supported", name,
                               (unsigned long long)tensor->file_offset, dtype_name(type).text, type);
    }
    return true;
}

static bool make_ropes(const ModelShape *shape, const Gguf *gguf, ModelWeights *weights, Error *error)
{
    if (!rope_order_make(shape, gguf, &weights->arena, &weights->rope, error)) return false;
    weights->window_rope = weights->rope;
    if (!shape->window_rope_base) return true;
    ModelShape window_shape = shape_of_window_layers(shape);
    return rope_order_make(&window_shape, NULL, &weights->arena, &weights->window_rope, error);
}

bool weights_bind(const ModelFamily *family, const ModelShape *shape, const Gguf *gguf, BindProgress progress,
                  ModelWeights *ret_weights, Error *error)
{
    ModelWeights weights = {0};
    WeightBinder binder = {.gguf = gguf, .shape = shape, .weights = &weights};
    arena_init(&weights.arena, ARENA_BLOCK_BYTES, SIZE_MAX);
    binder.max_taken = (size_t)shape->n_layers * MAX_TENSORS_PER_LAYER + MAX_GLOBAL_TENSORS;
    binder.taken = calloc(binder.max_taken, sizeof(const GgufTensor *));
    weights.layers = arena_array(&weights.arena, shape->n_layers, sizeof *weights.layers);
    bool ok = binder.taken && weights.layers;
    if (!ok) error_set(error, ERR_NO_MEMORY, "no memory for the tensor table");
    ok = ok && weights_check_types(gguf, error) && make_ropes(shape, gguf, &weights, error) &&
         bind_all(family, &binder, progress, error);
    free(binder.taken);
    if (!ok) {
        arena_done(&weights.arena);
        return false;
    }
    *ret_weights = weights;
    return true;
}

void weights_done(ModelWeights *weights)
{
    arena_done(&weights->arena);
}
