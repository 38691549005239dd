/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/capacity.h"

#include <math.h>
#include <stdlib.h>

enum { ARENA_BLOCK_BYTES = 4096, ARENA_MAX_BYTES = 1 << 24 };

/* Which heads stream does not matter to memory, so the first ones of each layer do. */
static bool make_roles(const CapacityParams *params, Capacity *capacity, Error *error)
{
    const ModelShape *shape = params->shape;
    uint32_t n_streams = (uint32_t)lround(params->streaming * shape->n_kv_heads);
    if (!n_streams) return true;
    HeadRoles *roles = arena_array(&capacity->arena, 1, sizeof *roles);
    uint8_t *streams = arena_array(&capacity->arena, (size_t)shape->n_layers * shape->n_kv_heads, sizeof *streams);
    if (!roles || !streams) return error_set(error, ERR_NO_MEMORY, "no memory to reckon with");
    for (uint32_t layer = 0; layer < shape->n_layers; layer++)
        for (uint32_t head = 0; head < shape->n_kv_heads; head++)
            streams[layer * shape->n_kv_heads + head] = head < n_streams && !shape_layer_window(shape, layer);
    *roles = (HeadRoles){.name = "streaming", .streams = streams};
    capacity->policy.roles = roles;
    capacity->policy.sink = params->sink;
    capacity->policy.recent_prefill = params->recent_prefill;
    capacity->policy.recent_decode = params->recent;
    return true;
}

bool capacity_init(const CapacityParams *params, Capacity *ret_capacity, Error *error)
{
    Capacity capacity = {.policy = *params->policy, .max_rows = params->max_rows};
    arena_init(&capacity.arena, ARENA_BLOCK_BYTES, ARENA_MAX_BYTES);
    if (make_roles(params, &capacity, error) &&
        kv_classes_init(params->shape, &capacity.policy, 1, &params->kv_types, &capacity.classes, error)) {
        *ret_capacity = capacity;
        return true;
    }
    arena_done(&capacity.arena);
    return false;
}

void capacity_done(Capacity *capacity)
{
    kv_classes_done(&capacity->classes);
    arena_done(&capacity->arena);
}

uint64_t capacity_sequence_bytes(const Capacity *capacity, uint32_t n_tokens)
{
    return kv_classes_need_bytes(&capacity->classes, 0, n_tokens, 1);
}

static uint64_t reading_bytes(const Capacity *capacity, uint32_t n_tokens)
{
    return kv_classes_need_bytes(&capacity->classes, 0, n_tokens, capacity->max_rows);
}

uint64_t capacity_sequences(const Capacity *capacity, uint64_t bytes, uint32_t n_tokens)
{
    uint64_t first = reading_bytes(capacity, n_tokens), each = capacity_sequence_bytes(capacity, n_tokens);
    return !each || bytes < first ? 0 : 1 + (bytes - first) / each;
}

uint32_t capacity_longest(const Capacity *capacity, uint64_t bytes, uint32_t limit)
{
    uint32_t fits = 0;
    for (uint32_t step = 1u << 31; step; step >>= 1)
        if (step <= limit - fits && reading_bytes(capacity, fits + step) <= bytes) fits += step;
    return fits;
}

uint64_t capacity_buffer_bytes(const ModelShape *shape, uint32_t n_passes, uint32_t max_rows, uint32_t max_logit_rows)
{
    uint64_t of_pass = (uint64_t)shape->n_embd + shape->rope_dim;
    uint64_t q = (uint64_t)shape->n_heads * shape->head_dim, k = (uint64_t)shape->n_kv_heads * shape->head_dim;
    uint64_t v = (uint64_t)shape->n_kv_heads * shape->v_dim, out = (uint64_t)shape->n_heads * shape->v_dim;
    uint64_t shared = shape->n_embd + q + k + v + out + 2 * (uint64_t)shape->n_ff;
    uint64_t scratch = shape->n_ff > shape->n_embd ? shape->n_ff : shape->n_embd;
    return ((of_pass * n_passes + shared + scratch) * max_rows +
            ((uint64_t)shape->n_vocab + shape->n_embd) * max_logit_rows) *
           sizeof(float);
}
