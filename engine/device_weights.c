/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/device_weights.h"

#include "kernels/linear/device_layout.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 256, STAGE_BYTES = 32 << 20, N_STAGES = 2, ARENA_BLOCK_BYTES = 64 << 10, RAW_PIECE = 64 << 10 };
enum { MAX_GLOBALS = 8, MAX_PER_LAYER = 16 };

/* One array on its way to the device. */
typedef struct Upload {
    const void *from;
    DType type;
    uint32_t n_rows, n_cols;
    bool is_packed;
    uint64_t offset, bytes; /* in the device's memory */
    const void **address;   /* where the device's address goes */
} Upload;

typedef struct UploadList {
    Upload *items; /* [n] */
    size_t n;
    uint64_t bytes;
} UploadList;

static bool add(UploadList *list, Upload item, Error *error)
{
    if (item.is_packed) item.bytes = device_matrix_bytes(item.type, item.n_rows, item.n_cols);
    if (item.bytes == 0)
        return error_set_param(error, ERR_UNSUPPORTED, "device", "weights of type %s have no form on the device",
                               dtype_name(item.type).text);
    item.offset = list->bytes;
    list->bytes += (item.bytes + ALIGN - 1) / ALIGN * ALIGN;
    list->items[list->n++] = item;
    return true;
}

static bool add_matrix(UploadList *list, Matrix *matrix, Error *error)
{
    return add(list,
               (Upload){.from = matrix->data,
                        .type = matrix->type,
                        .n_rows = matrix->n_rows,
                        .n_cols = matrix->n_cols,
                        .is_packed = true,
                        .address = &matrix->data},
               error);
}

/* As it is; NULL stays. */
static bool add_raw(UploadList *list, const void **array, uint64_t bytes, Error *error)
{
    return !*array || add(list, (Upload){.from = *array, .bytes = bytes, .address = array}, error);
}

static bool add_floats(UploadList *list, const float **array, uint32_t n, Error *error)
{
    return add_raw(list, (const void **)array, n * sizeof **array, error);
}

static bool add_layer(UploadList *list, const ModelShape *shape, LayerWeights *w, Error *error)
{
    Matrix *const matrices[] = {&w->q, &w->k, &w->v, &w->o, &w->gate, &w->up, &w->down};
    const struct {
        const float **array;
        uint32_t n;
    } vectors[] = {
        {&w->attn_norm, shape->n_embd},     {&w->ffn_norm, shape->n_embd}, {&w->attn_post_norm, shape->n_embd},
        {&w->ffn_post_norm, shape->n_embd}, {&w->q_norm, shape->head_dim}, {&w->k_norm, shape->head_dim},
        {&w->q_bias, w->q.n_rows},          {&w->k_bias, w->k.n_rows},     {&w->v_bias, w->v.n_rows},
    };
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        if (!add_matrix(list, matrices[i], error)) return false;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        if (!add_floats(list, vectors[i].array, vectors[i].n, error)) return false;
    return true;
}

/* All of weights, whose pointers are those that will be changed. */
static bool list_all(UploadList *list, const ModelShape *shape, ModelWeights *weights, Error *error)
{
    Matrix *embd = &weights->token_embd;
    uint64_t embd_bytes = embd->n_rows * (uint64_t)dtype_row_bytes(embd->type, embd->n_cols);
    uint64_t rope_bytes = shape->rope_dim / 2 * sizeof(double);
    bool ok = add_raw(list, &embd->data, embd_bytes, error) && add_matrix(list, &weights->output, error) &&
              add_floats(list, &weights->output_norm, shape->n_embd, error) &&
              (!rope_bytes || (add_raw(list, (const void **)(void *)&weights->rope.theta, rope_bytes, error) &&
                               add_raw(list, (const void **)(void *)&weights->window_rope.theta, rope_bytes, error)));
    for (uint32_t i = 0; ok && i < shape->n_layers; i++) ok = add_layer(list, shape, &weights->layers[i], error);
    return ok;
}

/* A copy whose layers are its own. */
static bool copy_weights(const ModelShape *shape, const ModelWeights *weights, ModelWeights *ret, UploadList *list,
                         Error *error)
{
    *ret = *weights;
    arena_init(&ret->arena, ARENA_BLOCK_BYTES, SIZE_MAX);
    ret->layers = arena_array(&ret->arena, shape->n_layers, sizeof *ret->layers);
    *list = (UploadList){0};
    if (ret->layers)
        list->items = arena_array(&ret->arena, (size_t)shape->n_layers * MAX_PER_LAYER + MAX_GLOBALS, sizeof(Upload));
    if (!list->items) {
        arena_done(&ret->arena);
        return error_set(error, ERR_NO_MEMORY, "no memory for the table of weights");
    }
    memcpy(ret->layers, weights->layers, shape->n_layers * sizeof *ret->layers);
    if (list_all(list, shape, ret, error)) return true;
    arena_done(&ret->arena);
    return false;
}

bool device_weights_bytes(const ModelShape *shape, const ModelWeights *weights, uint64_t *ret_bytes, Error *error)
{
    ModelWeights copy;
    UploadList list;
    if (!copy_weights(shape, weights, &copy, &list, error)) return false;
    *ret_bytes = list.bytes;
    arena_done(&copy.arena);
    return true;
}

/* A piece of an array that fits a stage: tiles of a matrix, or bytes. */
typedef struct Piece {
    const Upload *item;
    uint64_t first, n; /* tiles, or pieces of RAW_PIECE bytes */
    char *to;
} Piece;

static uint64_t unit_bytes(const Upload *item)
{
    return item->is_packed ? device_tile_bytes(item->type, item->n_cols) : RAW_PIECE;
}

static void fill_part(void *arg, uint32_t worker, uint32_t n_workers)
{
    const Piece *piece = arg;
    const Upload *item = piece->item;
    uint64_t from = piece->n * worker / n_workers, end = piece->n * (worker + 1) / n_workers, unit = unit_bytes(item);
    if (from == end) return;
    char *to = piece->to + from * unit;
    uint64_t at = (piece->first + from) * unit;
    if (item->is_packed) {
        /* A type without a layout was refused when the list was made. */
        (void)device_matrix_pack(item->type, item->from, item->n_rows, item->n_cols, (uint32_t)(piece->first + from),
                                 (uint32_t)(end - from), to);
    } else {
        uint64_t n = (end - from) * unit;
        memcpy(to, (const char *)item->from + at, n < item->bytes - at ? n : item->bytes - at);
    }
}

typedef struct Uploader {
    Device *device;
    ThreadPool *pool;
    char *stages, *memory;
    uint32_t n_pieces;
    uint64_t sent_bytes, all_bytes;
    BindProgress progress;
} Uploader;

/* Packing into one stage goes on while the other one is copied. */
static bool send_piece(Uploader *up, const Upload *item, uint64_t first, uint64_t n)
{
    Device *device = up->device;
    uint32_t stage = up->n_pieces % N_STAGES;
    if (up->n_pieces >= N_STAGES && !device->ops->wait(device, stage)) return false;
    Piece piece = {item, first, n, up->stages + (size_t)stage * STAGE_BYTES};
    threads_run(up->pool, fill_part, &piece);
    uint64_t at = first * unit_bytes(item), bytes = n * unit_bytes(item);
    if (bytes > item->bytes - at) bytes = item->bytes - at;
    if (!device_copy(device, up->memory + item->offset + at, piece.to, bytes) || !device->ops->fence(device, stage))
        return false;
    up->n_pieces++;
    up->sent_bytes += bytes;
    if (up->progress.fn) up->progress.fn(up->progress.arg, (double)up->sent_bytes / (double)up->all_bytes);
    return true;
}

static bool send_all(Uploader *up, const UploadList *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const Upload *item = &list->items[i];
        uint64_t unit = unit_bytes(item), n_units = (item->bytes + unit - 1) / unit, most = STAGE_BYTES / unit;
        for (uint64_t at = 0; at < n_units; at += most)
            if (!send_piece(up, item, at, n_units - at < most ? n_units - at : most)) return false;
    }
    return device_sync(up->device);
}

static bool check_tiles(const UploadList *list, Error *error)
{
    for (size_t i = 0; i < list->n; i++)
        if (unit_bytes(&list->items[i]) > STAGE_BYTES)
            return error_set_param(error, ERR_TOO_LARGE, "device", "a matrix of %u columns is too wide for the device",
                                   list->items[i].n_cols);
    return true;
}

bool device_weights_init(Device *device, ThreadPool *pool, const ModelShape *shape, const ModelWeights *weights,
                         BindProgress progress, DeviceWeights *ret_weights, Error *error)
{
    DeviceWeights made = {0};
    UploadList list;
    if (!copy_weights(shape, weights, &made.weights, &list, error)) return false;
    Uploader up = {.device = device, .pool = pool, .progress = progress, .all_bytes = list.bytes};
    bool ok = check_tiles(&list, error);
    if (ok) {
        up.stages = device->ops->pin(device, (size_t)N_STAGES * STAGE_BYTES);
        up.memory = device->ops->alloc(device, list.bytes);
        ok = (up.stages && up.memory) ||
             error_set_param(error, ERR_NO_MEMORY, "gpu_memory", "%s has no %llu MiB left for the weights",
                             device->name, (unsigned long long)(list.bytes >> 20));
    }
    ok = ok &&
         (send_all(&up, &list) || error_set(error, ERR_DEVICE, "%s failed while taking the weights", device->name));
    device->ops->unpin(device, up.stages, (size_t)N_STAGES * STAGE_BYTES);
    if (!ok) {
        device->ops->free(device, up.memory, list.bytes);
        arena_done(&made.weights.arena);
        return false;
    }
    for (size_t i = 0; i < list.n; i++) *list.items[i].address = up.memory + list.items[i].offset;
    made.memory = up.memory;
    made.bytes = list.bytes;
    *ret_weights = made;
    return true;
}

void device_weights_done(Device *device, DeviceWeights *weights)
{
    if (!weights->memory) return;
    device->ops->free(device, weights->memory, weights->bytes);
    arena_done(&weights->weights.arena);
    *weights = (DeviceWeights){0};
}
