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
    AttnPolicy *policy = &capacity->policies[capacity->budget.n_policies++];
    *policy = *params->policy;
    policy->roles = roles;
    policy->sink = params->sink;
    policy->recent_prefill = params->recent_prefill;
    policy->recent_decode = params->recent;
    capacity->policy = capacity->budget.n_policies - 1;
    return true;
}

bool capacity_init(const CapacityParams *params, Capacity *ret_capacity, Error *error)
{
    Capacity capacity = {.policies = {*params->policy},
                         .on_device = params->on_device,
                         .budget = {.n_policies = 1,
                                    .max_rows = params->max_rows,
                                    .max_passes = params->max_passes,
                                    .max_sequences = params->max_sequences}};
    arena_init(&capacity.arena, ARENA_BLOCK_BYTES, ARENA_MAX_BYTES);
    bool (*init)(const ModelShape *, const AttnPolicy *, uint32_t, const KvTypes *, KvClassTable *, Error *) =
        params->on_device ? kv_classes_init_shared : kv_classes_init;
    if (make_roles(params, &capacity, error) && init(params->shape, capacity.policies, capacity.budget.n_policies,
                                                     &params->kv_types, &capacity.classes, error)) {
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
    return kv_classes_need_bytes(&capacity->classes, capacity->policy, n_tokens, 1);
}

static uint64_t reading_bytes(const Capacity *capacity, uint32_t n_tokens)
{
    return kv_classes_need_bytes(&capacity->classes, capacity->policy, n_tokens, capacity->budget.max_rows);
}

static KvBudget budget_of(const Capacity *capacity)
{
    KvBudget budget = capacity->budget;
    budget.classes = &capacity->classes;
    return budget;
}

/* As an engine of this context shares a device out: what the class that is short has room for. */
static uint64_t device_sequences(const Capacity *capacity, uint64_t bytes, uint32_t context, uint32_t n_tokens)
{
    KvShare shares[KV_MAX_PAGE_CLASSES];
    const KvBudget budget = budget_of(capacity);
    const KvPolicyMap *map = &capacity->classes.policies[policy_slot(capacity->policy)];
    uint32_t longest = kv_budget_longest(&budget, context, bytes, shares);
    if (longest < n_tokens) return 0;
    KvBytes need = kv_budget_need_in(&budget, longest, bytes, shares);
    kv_budget_scale(&budget, need.pages, bytes - need.images, shares);
    uint64_t fewest = UINT64_MAX;
    for (uint32_t c = 0; c < map->n_classes; c++) {
        uint64_t has = shares[map->classes[c].class_id].n_pages;
        uint64_t first = kv_class_need(&capacity->classes, capacity->policy, c, n_tokens, budget.max_rows).n_pages;
        uint64_t each = kv_class_need(&capacity->classes, capacity->policy, c, n_tokens, 1).n_pages;
        uint64_t n = has < first ? 0 : 1 + (has - first) / each;
        if (n < fewest) fewest = n;
    }
    return fewest;
}

uint64_t capacity_sequences(const Capacity *capacity, uint64_t bytes, uint32_t context, uint32_t n_tokens)
{
    if (capacity->on_device) return device_sequences(capacity, bytes, context, n_tokens);
    uint64_t first = reading_bytes(capacity, n_tokens), each = capacity_sequence_bytes(capacity, n_tokens);
    return !each || bytes < first ? 0 : 1 + (bytes - first) / each;
}

uint32_t capacity_longest(const Capacity *capacity, uint64_t bytes, uint32_t limit)
{
    KvShare needs[KV_MAX_PAGE_CLASSES];
    const KvBudget budget = budget_of(capacity);
    if (capacity->on_device) return kv_budget_longest(&budget, limit, bytes, needs);
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
