/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine_state.h"

#include <stdlib.h>

/* Uniform in [-1, 1): xorshift64*. */
static float next_number(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (float)(int32_t)((*state * 2685821657736338717u) >> 32) * 0x1p-31f;
}

static bool send_numbers(Engine *engine, float *to, size_t n, uint64_t seed)
{
    float *numbers = malloc(n * sizeof *numbers);
    if (!numbers) return false;
    uint64_t state = seed * 2 + 1;
    for (size_t i = 0; i < n; i++) numbers[i] = next_number(&state);
    bool ok = device_copy(engine->device, to, numbers, n * sizeof *numbers) && device_sync(engine->device);
    free(numbers);
    return ok;
}

/* The same keys and values for all layers: what is timed does not depend on them. */
static bool store_rows(Engine *engine, SeqId seq, uint32_t n)
{
    BatchSpan span = {.seq = seq, .n_rows = n, .first_pos = kv_seq_tokens(engine->seqs, seq)};
    const Pass pass = {.n_rows = n, .n_spans = 1, .spans = &span};
    const WorkItem all = {.n_layers = engine->shape.n_layers, .n_rows = n};
    Piece piece;
    if (!forward_piece(engine, &pass, &all, &piece)) return false;
    for (uint32_t layer = 0; layer < all.n_layers; layer++)
        if (!forward_store(engine, &piece, layer)) return false;
    if (engine->step && !forward_bounds(engine, &piece, all.n_layers)) return false;
    kv_seq_advance(engine->seqs, seq, n);
    return true;
}

bool engine_seq_fill(Engine *engine, SeqId seq, uint32_t n_tokens, uint64_t seed, Error *error)
{
    const ModelShape *s = &engine->shape;
    uint32_t chunk = engine->params.max_batch_rows;
    size_t n_k = (size_t)chunk * s->n_kv_heads * s->head_dim, n_v = (size_t)chunk * s->n_kv_heads * s->v_dim;
    device_use(engine->device);
    if (!send_numbers(engine, engine->buf.k, n_k, seed) || !send_numbers(engine, engine->buf.v, n_v, seed + 1))
        return error_set(error, ERR_NO_MEMORY, "no memory for random keys and values");
    while (n_tokens > 0) {
        uint32_t n = n_tokens < chunk ? n_tokens : chunk;
        if (!engine_seq_reserve(engine, seq, n, error)) return false;
        if (!store_rows(engine, seq, n))
            return error_set(error, ERR_DEVICE, "a kernel of '%s' failed", engine->kernels->name);
        n_tokens -= n;
    }
    return device_sync(engine->device) || error_set(error, ERR_DEVICE, "%s failed", engine->device->name);
}
