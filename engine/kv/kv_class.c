/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv/kv_class.h"
#include "engine/select/list_need.h"
#include "kernels/attention/kv_bounds.h"

#include <stdio.h>
#include <string.h>

_Static_assert((int)KV_N_KINDS == (int)KV_MAX_CLASSES, "a policy has a class of each kind at most");
enum { ARENA_BLOCK_BYTES = 1 << 16, OS_PAGE_BYTES = 4096 };

static const char *const kind_names[KV_N_KINDS] = {"full", "stream", "window"};

static bool find_kind(const char *text, size_t n, KvKind *ret_kind)
{
    for (KvKind kind = 0; kind < KV_N_KINDS; kind++)
        if (strlen(kind_names[kind]) == n && !memcmp(kind_names[kind], text, n)) {
            *ret_kind = kind;
            return true;
        }
    return false;
}

static bool find_type(const char *text, size_t n, KvType *ret_type, Error *error)
{
    char names[96] = "";
    for (KvType type = 0; type < KV_N_TYPES; type++) {
        const char *name = kv_type_info(type)->name;
        if (strlen(name) == n && !memcmp(name, text, n)) {
            *ret_type = type;
            return true;
        }
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", name);
    }
    return error_set_param(error, ERR_INVALID, "kv_type", "'%.*s' is not one of: %s", (int)(n < 80 ? n : 80), text,
                           names);
}

/* One "kind=type" of n bytes; seen has a bit for each kind that came before. */
static bool parse_pair(const char *text, size_t n, KvTypes *types, uint32_t *seen, Error *error)
{
    const char *equals = memchr(text, '=', n);
    size_t n_kind = equals ? (size_t)(equals - text) : 0;
    KvKind kind;
    if (!equals || !find_kind(text, n_kind, &kind))
        return error_set_param(error, ERR_INVALID, "kv_type",
                               "'%.*s' is not CLASS=TYPE with a class of: full, stream, window", (int)(n < 80 ? n : 80),
                               text);
    if (*seen & 1u << kind)
        return error_set_param(error, ERR_INVALID, "kv_type", "class '%s' is given twice", kind_names[kind]);
    *seen |= 1u << kind;
    return find_type(equals + 1, n - n_kind - 1, &types->of[kind], error);
}

bool kv_types_parse(const char *text, KvTypes *ret_types, Error *error)
{
    KvTypes types = kv_types_all(KV_F16);
    uint32_t seen = 0;
    if (!strchr(text, '=')) {
        KvType type;
        if (!find_type(text, strlen(text), &type, error)) return false;
        *ret_types = kv_types_all(type);
        return true;
    }
    for (const char *at = text; at;) {
        size_t n = strcspn(at, ",");
        if (!parse_pair(at, n, &types, &seen, error)) return false;
        at = at[n] ? at + n + 1 : NULL;
    }
    *ret_types = types;
    return true;
}

/* n tokens of the layers that see everything, and n_window of the others. */
static uint64_t bytes_of(const ModelShape *shape, const KvTypes *types, uint64_t n, uint64_t n_window)
{
    uint64_t bytes = 0;
    for (uint32_t layer = 0; layer < shape->n_layers; layer++) {
        bool is_window = shape_layer_window(shape, layer);
        KvLayout layout = kv_layout(types->of[is_window ? KV_WINDOW : KV_FULL], shape->head_dim, shape->v_dim);
        bytes += (is_window ? n_window : n) * shape->n_kv_heads * (layout.sector_bytes / KV_SECTOR_TOKENS);
    }
    return bytes;
}

uint64_t kv_token_bytes(const ModelShape *shape, const KvTypes *types)
{
    return bytes_of(shape, types, 1, 1);
}

uint64_t kv_tokens_bytes(const ModelShape *shape, const KvTypes *types, uint64_t n_tokens)
{
    bool is_longer = shape->window_tokens && n_tokens > shape->window_tokens;
    return bytes_of(shape, types, n_tokens, is_longer ? shape->window_tokens : n_tokens);
}

static KvKind kind_of(const ModelShape *shape, const AttnPolicy *policy, uint32_t layer, uint32_t head)
{
    if (shape_layer_window(shape, layer)) return KV_WINDOW;
    bool streams = policy->roles && policy->roles->streams[(size_t)layer * shape->n_kv_heads + head];
    return streams ? KV_STREAM : KV_FULL;
}

static bool check_policy(const ModelShape *shape, const AttnPolicy *policy, Error *error)
{
    if (!policy->roles) return true;
    const uint32_t tokens[] = {policy->sink, policy->recent_prefill, policy->recent_decode};
    for (uint32_t i = 0; i < 3; i++)
        if (tokens[i] % KV_PAGE_TOKENS || tokens[i] > PLAN_ALL / 4 || (i > 0 && !tokens[i]))
            return error_set_param(error, ERR_INVALID, "roles",
                                   "'%s': sink %u and recent %u and %u tokens have to be multiples of %d",
                                   policy->roles->name, tokens[0], tokens[1], tokens[2], KV_PAGE_TOKENS);
    for (uint32_t layer = 0; layer < shape->n_layers; layer++)
        for (uint32_t head = 0; head < shape->n_kv_heads; head++)
            if (policy->roles->streams[(size_t)layer * shape->n_kv_heads + head] && shape_layer_window(shape, layer))
                return error_set_param(error, ERR_INVALID, "roles",
                                       "'%s': layer %u has a sliding window, its heads cannot stream",
                                       policy->roles->name, layer);
    return true;
}

static size_t padded_page_bytes(const KvClass *class, KvType type, bool with_bounds)
{
    size_t bytes = class->n_slots * kv_layout(type, class->k_dim, class->v_dim).slot_bytes;
    if (with_bounds) bytes += class->n_slots * kv_bounds_bytes(class->k_dim);
    return (bytes + OS_PAGE_BYTES - 1) / OS_PAGE_BYTES * OS_PAGE_BYTES;
}

/* The class of one kind under a policy; slots are [n_layers, n_kv_heads]. No slot: there is no such class. */
static KvClass make_class(const ModelShape *shape, const AttnPolicy *policy, KvKind kind, KvType type, bool with_bounds,
                          uint32_t *slots)
{
    KvClass class = {.kind = kind, .type = type, .window = PLAN_ALL, .k_dim = shape->head_dim, .v_dim = shape->v_dim};
    for (uint32_t layer = 0; layer < shape->n_layers; layer++)
        for (uint32_t head = 0; head < shape->n_kv_heads; head++)
            slots[(size_t)layer * shape->n_kv_heads + head] =
                kind_of(shape, policy, layer, head) == kind ? class.n_slots++ : KV_NO_SLOT;
    if (kind == KV_WINDOW) class.window = shape->window_tokens;
    if (kind == KV_STREAM) {
        bool prefill_sees_more = policy->recent_prefill > policy->recent_decode;
        class.sink = policy->sink;
        class.window = prefill_sees_more ? policy->recent_prefill : policy->recent_decode;
    }
    class.slots = slots;
    with_bounds &= kind == KV_FULL;
    class.page_bytes = padded_page_bytes(&class, type, with_bounds);
    if (with_bounds) class.bounds_offset = class.n_slots * kv_layout(type, class.k_dim, class.v_dim).slot_bytes;
    if (kv_type_info(type)->is_quantised) class.image_bytes = padded_page_bytes(&class, KV_BF16, false);
    return class;
}

static bool same_class(const KvClass *a, const KvClass *b, size_t n_heads)
{
    return a->kind == b->kind && a->type == b->type && a->sink == b->sink && a->window == b->window &&
           a->bounds_offset == b->bounds_offset && !memcmp(a->slots, b->slots, n_heads * sizeof *a->slots);
}

static uint32_t find_class(const KvClassTable *table, const KvClass *class, size_t n_heads)
{
    uint32_t i = 0;
    while (i < table->n_classes && !same_class(&table->classes[i], class, n_heads)) i++;
    return i;
}

static KvClassInfo info_of(const KvClass *class, uint32_t class_id)
{
    return (KvClassInfo){.class_id = class_id,
                         .name = kind_names[class->kind],
                         .sink = class->sink,
                         .window = class->window,
                         .is_quantised = class->image_bytes != 0,
                         .n_slots = class->n_slots,
                         .page_bytes = class->page_bytes};
}

/* What a policy's classes are made from. */
typedef struct ClassMaker {
    const ModelShape *shape;
    const AttnPolicy *policy;
    const KvTypes *types;
    bool with_bounds;
} ClassMaker;

/* Adds the class of one kind, if the policy has heads of it, to the table, the map and its heads. */
static bool add_class(const ClassMaker *maker, KvKind kind, KvHead *heads, KvPolicyMap *map, KvClassTable *table)
{
    size_t n_heads = (size_t)maker->shape->n_layers * maker->shape->n_kv_heads;
    uint32_t *slots = arena_array(&table->arena, n_heads, sizeof *slots);
    if (!slots) return false;
    KvClass class = make_class(maker->shape, maker->policy, kind, maker->types->of[kind], maker->with_bounds, slots);
    if (!class.n_slots) return true;
    uint32_t id = find_class(table, &class, n_heads);
    if (id == table->n_classes) table->classes[table->n_classes++] = class;
    for (size_t i = 0; i < n_heads; i++)
        if (slots[i] != KV_NO_SLOT) heads[i] = (KvHead){.class_index = map->n_classes, .slot = slots[i]};
    map->classes[map->n_classes++] = info_of(&class, id);
    return true;
}

static bool add_policy(const ClassMaker *maker, KvPolicyMap *map, KvClassTable *table)
{
    KvHead *heads =
        arena_array(&table->arena, (size_t)maker->shape->n_layers * maker->shape->n_kv_heads, sizeof *heads);
    if (!heads) return false;
    for (KvKind kind = 0; kind < KV_N_KINDS; kind++)
        if (!add_class(maker, kind, heads, map, table)) return false;
    map->heads = heads;
    return true;
}

/* Heads that see everything select; streaming ones and those with a window have nothing to choose. */
static void set_lists(const KvClassTable *table, const AttnPolicy *policy, KvPolicyMap *map)
{
    map->selection = policy->selection;
    map->n_selecting[0] = map->n_selecting[1] = 0;
    if (table->is_shared) return; /* what they take is there from the start */
    for (uint32_t i = 0; i < table->n_layers * table->n_kv_heads; i++) {
        uint32_t class_id = map->classes[map->heads[i].class_index].class_id;
        if (table->classes[class_id].kind == KV_FULL)
            map->n_selecting[selection_is_early(&map->selection, i / table->n_kv_heads)]++;
    }
}

static bool no_memory(Error *error)
{
    return error_set(error, ERR_NO_MEMORY, "no memory for the classes of KV pages");
}

/* What a table is made from. */
typedef struct TableMaker {
    const ModelShape *shape;
    const AttnPolicy *policies;
    uint32_t n_policies;
    const KvTypes *types;
    bool is_shared;
} TableMaker;

static bool reads_bounds(const TableMaker *from, const AttnPolicy *policy)
{
    bool found = policy_reads_bounds(policy);
    for (uint32_t i = 0; from->is_shared && i < from->n_policies; i++)
        found = found || policy_reads_bounds(&from->policies[i]);
    return found;
}

static bool make_table(const TableMaker *from, KvClassTable *ret_table, Error *error)
{
    const ModelShape *shape = from->shape;
    for (uint32_t i = 0; i < from->n_policies; i++)
        if (!check_policy(shape, &from->policies[i], error)) return false;
    KvClassTable table = {.n_layers = shape->n_layers, .n_kv_heads = shape->n_kv_heads, .is_shared = from->is_shared};
    arena_init(&table.arena, ARENA_BLOCK_BYTES, SIZE_MAX);
    /* Those with key bounds that may come beside them, too. */
    table.classes = arena_array(&table.arena, (size_t)from->n_policies * (KV_N_KINDS + 1), sizeof *table.classes);
    table.policies = arena_array(&table.arena, from->n_policies + POLICY_MAX_SLOTS, sizeof *table.policies);
    bool ok = table.classes && table.policies;
    for (; ok && table.n_policies < from->n_policies; table.n_policies++) {
        const AttnPolicy *policy = &from->policies[table.n_policies];
        const ClassMaker maker = {shape, policy, from->types, reads_bounds(from, policy)};
        ok = add_policy(&maker, &table.policies[table.n_policies], &table);
        if (ok) set_lists(&table, policy, &table.policies[table.n_policies]);
    }
    if (!ok) {
        kv_classes_done(&table);
        return no_memory(error);
    }
    table.n_needed = table.n_classes;
    *ret_table = table;
    return true;
}

bool kv_classes_init(const ModelShape *shape, const AttnPolicy *policies, uint32_t n_policies, const KvTypes *types,
                     KvClassTable *ret_table, Error *error)
{
    return make_table(&(TableMaker){shape, policies, n_policies, types, false}, ret_table, error);
}

bool kv_classes_init_shared(const ModelShape *shape, const AttnPolicy *policies, uint32_t n_policies,
                            const KvTypes *types, KvClassTable *ret_table, Error *error)
{
    return make_table(&(TableMaker){shape, policies, n_policies, types, true}, ret_table, error);
}

bool kv_classes_have_bounds(const KvClassTable *table)
{
    bool found = false;
    for (uint32_t i = 0; i < table->n_classes; i++) found |= table->classes[i].bounds_offset > 0;
    return found;
}

bool kv_classes_add_bounded(const ModelShape *shape, const AttnPolicy *policies, const KvTypes *types,
                            KvClassTable *table, Error *error)
{
    table->bounded = arena_array(&table->arena, table->n_policies, sizeof *table->bounded);
    if (!table->bounded) return no_memory(error);
    for (; table->n_bounded < table->n_policies; table->n_bounded++) {
        const ClassMaker maker = {shape, &policies[table->n_bounded], types, true};
        if (!add_policy(&maker, &table->bounded[table->n_bounded], table)) return no_memory(error);
    }
    return true;
}

void kv_classes_set(KvClassTable *table, uint32_t slot, uint32_t like, const AttnPolicy *policy)
{
    bool is_other = policy_reads_bounds(policy) && !table->is_shared;
    table->policies[slot] = is_other ? table->bounded[like] : table->policies[like];
    set_lists(table, policy, &table->policies[slot]);
    if (slot >= table->n_policies) table->n_policies = slot + 1;
}

void kv_classes_done(KvClassTable *table)
{
    arena_done(&table->arena);
    *table = (KvClassTable){0};
}

KvShare kv_class_need(const KvClassTable *table, PolicyId policy, uint32_t c, uint32_t n_tokens, uint32_t max_rows)
{
    const KvClass *class = &table->classes[table->policies[policy_slot(policy)].classes[c].class_id];
    uint64_t n_total = kv_n_pages(n_tokens), n_written = (uint64_t)kv_n_pages(max_rows) + 1;
    KvShare need = {n_total, !class->image_bytes ? 0 : n_written < n_total ? n_written : n_total};
    if (class->window == PLAN_ALL) return need;
    uint64_t n_seen = class->sink / KV_PAGE_TOKENS + (uint64_t)kv_n_pages(class->window) + 1 + n_written;
    if (n_seen < need.n_pages) need.n_pages = n_seen;
    return need;
}

uint64_t kv_lists_bytes(const KvPolicyMap *map, uint32_t n_tokens)
{
    return map->n_selecting[0] * list_need_bytes(&map->selection, false, n_tokens) +
           map->n_selecting[1] * list_need_bytes(&map->selection, true, n_tokens);
}

uint64_t kv_classes_need_bytes(const KvClassTable *table, PolicyId policy, uint32_t n_tokens, uint32_t max_rows)
{
    const KvPolicyMap *map = &table->policies[policy_slot(policy)];
    uint64_t bytes = kv_lists_bytes(map, n_tokens);
    for (uint32_t c = 0; c < map->n_classes; c++) {
        const KvClass *class = &table->classes[map->classes[c].class_id];
        KvShare need = kv_class_need(table, policy, c, n_tokens, max_rows);
        bytes += need.n_pages * class->page_bytes + need.n_images * class->image_bytes;
    }
    return bytes;
}
