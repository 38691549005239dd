/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/dfa_build.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

/* ---- growing ---- */

static bool no_memory(Error *error)
{
    return error_set(error, ERR_NO_MEMORY, "no memory for an automaton");
}

/* Room for one more. */
static bool reserve(void *array, uint32_t *capacity, uint32_t n, size_t size, Error *error)
{
    return array_reserve(array, capacity, (uint64_t)n + 1, UINT32_MAX, size) || no_memory(error);
}

void dfa_builder_init(DfaBuilder *builder, Error *error)
{
    *builder = (DfaBuilder){.error = error};
}

void dfa_builder_done(DfaBuilder *builder)
{
    free(builder->begin);
    free(builder->labels);
    free(builder->edges);
    *builder = (DfaBuilder){0};
}

bool dfa_builder_state(DfaBuilder *builder, uint64_t label)
{
    if (builder->n_states >= DFA_MAX_STATES)
        return error_set(builder->error, ERR_TOO_LARGE, "an automaton needs more than %d states", DFA_MAX_STATES);
    uint32_t capacity = builder->states_capacity, n = builder->n_states;
    if (!reserve(&builder->begin, &capacity, n, sizeof *builder->begin, builder->error) ||
        !reserve(&builder->labels, &builder->states_capacity, n, sizeof *builder->labels, builder->error))
        return false;
    builder->begin[builder->n_states] = builder->n_edges;
    builder->labels[builder->n_states++] = label;
    return true;
}

bool dfa_builder_edge(DfaBuilder *builder, uint32_t first, uint32_t last, uint32_t to)
{
    uint32_t begin = builder->begin[builder->n_states - 1];
    if (builder->n_edges > begin) {
        DfaEdge *before = &builder->edges[builder->n_edges - 1];
        if (before->to == to && before->last + 1 == first) {
            before->last = last;
            return true;
        }
    }
    if (builder->n_edges >= DFA_MAX_EDGES)
        return error_set(builder->error, ERR_TOO_LARGE, "an automaton needs more than %d edges", DFA_MAX_EDGES);
    if (!reserve(&builder->edges, &builder->edges_capacity, builder->n_edges, sizeof *builder->edges, builder->error))
        return false;
    builder->edges[builder->n_edges++] = (DfaEdge){first, last, to};
    return true;
}

/* ---- trimming ---- */

static uint32_t edges_end(const DfaBuilder *builder, uint32_t state)
{
    return state + 1 < builder->n_states ? builder->begin[state + 1] : builder->n_edges;
}

typedef struct Reverse {
    uint32_t *begin; /* [n_states + 1] */
    uint32_t *from;  /* [n_edges] */
} Reverse;

static void reverse_fill(const DfaBuilder *builder, Reverse *reverse)
{
    uint32_t n = builder->n_states;
    memset(reverse->begin, 0, (n + 1) * sizeof *reverse->begin);
    for (uint32_t i = 0; i < builder->n_edges; i++) reverse->begin[builder->edges[i].to]++;
    uint32_t total = 0;
    for (uint32_t s = 0; s <= n; s++) {
        uint32_t count = s < n ? reverse->begin[s] : 0;
        total += count;
        reverse->begin[s] = total;
    }
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t i = builder->begin[s]; i < edges_end(builder, s); i++)
            reverse->from[--reverse->begin[builder->edges[i].to]] = s;
}

/* number[s]: 1 for states that lead to an end. */
static void mark_live(const DfaBuilder *builder, const Reverse *reverse, uint32_t *stack, uint32_t *number)
{
    uint32_t depth = 0;
    for (uint32_t s = 0; s < builder->n_states; s++) {
        number[s] = builder->labels[s] != 0;
        if (number[s]) stack[depth++] = s;
    }
    while (depth) {
        uint32_t s = stack[--depth];
        for (uint32_t i = reverse->begin[s]; i < reverse->begin[s + 1]; i++) {
            uint32_t from = reverse->from[i];
            if (number[from]) continue;
            number[from] = 1;
            stack[depth++] = from;
        }
    }
}

/* From 1 for live and reached to an order in which the start is first; UINT32_MAX for the rest. */
static uint32_t renumber(const DfaBuilder *builder, uint32_t *order, uint32_t *number)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < builder->n_states; s++) number[s] = number[s] ? UINT32_MAX - 1 : UINT32_MAX;
    if (!builder->n_states || number[0] == UINT32_MAX) return 0;
    number[0] = 0;
    order[n++] = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t e = builder->begin[order[i]]; e < edges_end(builder, order[i]); e++) {
            uint32_t to = builder->edges[e].to;
            if (number[to] != UINT32_MAX - 1) continue;
            number[to] = n;
            order[n++] = to;
        }
    return n;
}

static bool copy_out(const DfaBuilder *builder, const uint32_t *order, const uint32_t *number, uint32_t n, Arena *arena,
                     const Dfa **ret_dfa)
{
    uint32_t n_edges = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t e = builder->begin[order[i]]; e < edges_end(builder, order[i]); e++)
            n_edges += number[builder->edges[e].to] != UINT32_MAX;
    Dfa *dfa = arena_alloc(arena, sizeof *dfa);
    uint32_t *begin = arena_array(arena, n + 1, sizeof *begin);
    uint64_t *labels = arena_array(arena, n, sizeof *labels);
    DfaEdge *edges = arena_array(arena, n_edges, sizeof *edges);
    if (!dfa || !begin || !labels || !edges) return no_memory(builder->error);
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        labels[i] = builder->labels[order[i]];
        for (uint32_t e = builder->begin[order[i]]; e < edges_end(builder, order[i]); e++) {
            DfaEdge edge = builder->edges[e];
            if (number[edge.to] != UINT32_MAX) edges[at++] = (DfaEdge){edge.first, edge.last, number[edge.to]};
        }
        begin[i + 1] = at;
    }
    *dfa = (Dfa){.n_states = n, .begin = begin, .edges = edges, .labels = labels};
    *ret_dfa = dfa;
    return true;
}

bool dfa_builder_finish(DfaBuilder *builder, Arena *arena, const Dfa **ret_dfa)
{
    uint32_t n = builder->n_states;
    size_t words = 3 * ((size_t)n + 1) + builder->n_edges;
    uint32_t *memory = malloc(words * sizeof *memory);
    if (!memory) return no_memory(builder->error);
    uint32_t *stack = memory, *number = stack + n + 1;
    Reverse reverse = {.begin = number + n + 1, .from = number + 2 * ((size_t)n + 1)};
    reverse_fill(builder, &reverse);
    mark_live(builder, &reverse, stack, number);
    uint32_t kept = renumber(builder, stack, number);
    bool ok = copy_out(builder, stack, number, kept, arena, ret_dfa);
    free(memory);
    return ok;
}

/* ---- keys ---- */

void key_table_init(KeyTable *table, uint32_t width)
{
    *table = (KeyTable){.width = width};
}

void key_table_done(KeyTable *table)
{
    free(table->words);
    free(table->slots);
    *table = (KeyTable){.width = table->width};
}

static uint32_t hash_of(const KeyTable *table, const uint32_t *key)
{
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (uint32_t i = 0; i < table->width; i++) {
        hash = (hash ^ key[i]) * 0xFF51AFD7ED558CCDu;
        hash ^= hash >> 32;
    }
    return (uint32_t)hash;
}

static uint32_t *find_slot(const KeyTable *table, const uint32_t *key)
{
    uint32_t mask = table->n_slots - 1;
    for (uint32_t i = hash_of(table, key) & mask;; i = (i + 1) & mask) {
        uint32_t number = table->slots[i];
        if (!number || !memcmp(table->words + (size_t)(number - 1) * table->width, key, table->width * sizeof *key))
            return &table->slots[i];
    }
}

static bool rehash(KeyTable *table, Error *error)
{
    uint32_t n_slots = table->n_slots ? table->n_slots * 2 : 128;
    uint32_t *slots = calloc(n_slots, sizeof *slots);
    if (!slots) return no_memory(error);
    free(table->slots);
    table->slots = slots;
    table->n_slots = n_slots;
    for (uint32_t i = 0; i < table->n_keys; i++) *find_slot(table, table->words + (size_t)i * table->width) = i + 1;
    return true;
}

bool key_table_number(KeyTable *table, const uint32_t *key, uint32_t max_keys, uint32_t *ret_number, Error *error)
{
    if (table->n_keys * 2 >= table->n_slots && !rehash(table, error)) return false;
    uint32_t *slot = find_slot(table, key);
    if (!*slot) {
        if (table->n_keys >= max_keys)
            return error_set(error, ERR_TOO_LARGE, "an automaton needs more than %u states", max_keys);
        if (!reserve(&table->words, &table->keys_capacity, table->n_keys, table->width * sizeof *key, error))
            return false;
        memcpy(table->words + (size_t)table->n_keys * table->width, key, table->width * sizeof *key);
        *slot = ++table->n_keys;
    }
    *ret_number = *slot - 1;
    return true;
}
