/* SPDX-License-Identifier: Apache-2.0 */
/* From the nondeterministic automaton of one rule to a deterministic one: subsets of its states. */
#include "engine/sample/grammar/automaton.h"

#include "base/array.h"
#include "base/numbers.h"

#include <stdlib.h>
#include <string.h>

typedef struct Subset {
    uint32_t first, n; /* of the members */
    uint32_t hash;
} Subset;

typedef struct Subsets {
    Automaton *automaton;
    const Nfa *nfa;
    uint32_t end;  /* of the rule, in the nfa */
    uint32_t base; /* the state of the first subset */
    Subset *list;  /* [n] in the order in which they were found, which is that of their states */
    uint32_t n, max;
    uint32_t *members; /* [n_members] states of the nfa, sorted */
    uint32_t n_members, max_members;
    IdTable by_members;
    uint32_t *mark; /* [n_states of the nfa] the last closure that holds it */
    uint32_t n_marks;
    uint32_t *closure; /* [n_closure] of n_states */
    uint32_t n_closure;
    NfaEdge *edges; /* [n_edges] that leave the subset in hand */
    uint32_t n_edges, max_edges;
} Subsets;

static bool no_memory(Error *error)
{
    return error_set(error, ERR_NO_MEMORY, "no memory for the automaton of a grammar");
}

/* Room for n more of size bytes in *array. */
static bool reserve(void *array, uint32_t *max, uint32_t n_used, uint32_t n, size_t size, Error *error)
{
    return array_reserve(array, max, (uint64_t)n_used + n, UINT32_MAX, size) || no_memory(error);
}

/* ---- subsets ---- */

static void close_over(Subsets *subsets, uint32_t state)
{
    uint32_t n_done = subsets->n_closure;
    if (subsets->mark[state] == subsets->n_marks) return;
    subsets->mark[state] = subsets->n_marks;
    subsets->closure[subsets->n_closure++] = state;
    for (; n_done < subsets->n_closure; n_done++)
        for (uint32_t i = subsets->nfa->heads[subsets->closure[n_done]]; i != NFA_NO_EDGE;) {
            const NfaEdge *edge = &subsets->nfa->edges[i];
            i = edge->next;
            if (edge->kind != EDGE_EMPTY || subsets->mark[edge->to] == subsets->n_marks) continue;
            subsets->mark[edge->to] = subsets->n_marks;
            subsets->closure[subsets->n_closure++] = edge->to;
        }
}

/* What only leads on without a byte says nothing. */
static bool is_telling(const Subsets *subsets, uint32_t state)
{
    if (state == subsets->end) return true;
    for (uint32_t i = subsets->nfa->heads[state]; i != NFA_NO_EDGE; i = subsets->nfa->edges[i].next)
        if (subsets->nfa->edges[i].kind != EDGE_EMPTY) return true;
    return false;
}

static bool is_same_subset(const void *owner, uint32_t id, const void *key)
{
    const Subsets *subsets = owner;
    const Subset *a = &subsets->list[id], *b = key;
    return a->n == b->n && !memcmp(&subsets->members[a->first], &subsets->members[b->first], a->n * sizeof(uint32_t));
}

static uint32_t hash_of_subset(const void *owner, uint32_t id)
{
    return ((const Subsets *)owner)->list[id].hash;
}

/* The subset of the closure in hand, new unless it is there. */
static bool find_subset(Subsets *subsets, uint32_t *ret_id, Error *error)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < subsets->n_closure; i++)
        if (is_telling(subsets, subsets->closure[i])) subsets->closure[n++] = subsets->closure[i];
    if (!automaton_count_steps(subsets->automaton, subsets->n_closure, error) ||
        !reserve(&subsets->members, &subsets->max_members, subsets->n_members, n + 1, sizeof(uint32_t), error) ||
        !reserve(&subsets->list, &subsets->max, subsets->n, 1, sizeof(Subset), error))
        return false;
    uint32_t *members = &subsets->members[subsets->n_members];
    qsort(subsets->closure, n, sizeof(uint32_t), compare_u32);
    if (n) memcpy(members, subsets->closure, n * sizeof *members);
    Subset subset = {subsets->n_members, n, hash_bytes(2166136261u, members, n * sizeof *members)};
    if (!id_table_reserve(&subsets->by_members, hash_of_subset, subsets)) return no_memory(error);
    uint32_t *slot = id_table_find(&subsets->by_members, subset.hash, is_same_subset, subsets, &subset);
    if (!*slot) {
        if (subsets->base + subsets->n >= GRAMMAR_MAX_STATES)
            return error_set(error, ERR_TOO_LARGE, "more than %d states", GRAMMAR_MAX_STATES);
        subsets->list[subsets->n] = subset;
        subsets->n_members += n;
        id_table_fill(&subsets->by_members, slot, subsets->n++);
    }
    *ret_id = *slot - 1;
    return true;
}

static void begin_closure(Subsets *subsets)
{
    subsets->n_closure = 0;
    subsets->n_marks++;
}

/* ---- edges ---- */

static int compare_edges(const void *a, const void *b)
{
    const NfaEdge *left = a, *right = b;
    if (left->kind != right->kind) return left->kind < right->kind ? -1 : 1;
    uint32_t l = left->kind == EDGE_BYTES ? left->first : left->value;
    uint32_t r = right->kind == EDGE_BYTES ? right->first : right->value;
    return (l > r) - (l < r);
}

static bool gather_edges(Subsets *subsets, uint32_t id, Error *error)
{
    subsets->n_edges = 0;
    for (uint32_t i = 0; i < subsets->list[id].n; i++) {
        uint32_t state = subsets->members[subsets->list[id].first + i];
        for (uint32_t j = subsets->nfa->heads[state]; j != NFA_NO_EDGE; j = subsets->nfa->edges[j].next) {
            if (subsets->nfa->edges[j].kind == EDGE_EMPTY) continue;
            if (!reserve(&subsets->edges, &subsets->max_edges, subsets->n_edges, 1, sizeof(NfaEdge), error))
                return false;
            subsets->edges[subsets->n_edges++] = subsets->nfa->edges[j];
        }
    }
    if (subsets->n_edges) qsort(subsets->edges, subsets->n_edges, sizeof(NfaEdge), compare_edges);
    return automaton_count_steps(subsets->automaton, subsets->n_edges, error);
}

static bool put_byte_edge(Subsets *subsets, uint32_t first, uint32_t last, uint32_t to, Error *error)
{
    Automaton *automaton = subsets->automaton;
    uint32_t n_before = automaton->states[automaton->n_states].first_byte;
    if (automaton->n_bytes > n_before) {
        ByteEdge *before = &automaton->bytes[automaton->n_bytes - 1];
        if (before->to == to && before->last + 1u == first) {
            before->last = (uint8_t)last;
            return true;
        }
    }
    if (!reserve(&automaton->bytes, &automaton->max_bytes, automaton->n_bytes, 1, sizeof(ByteEdge), error))
        return false;
    automaton->bytes[automaton->n_bytes++] = (ByteEdge){to, (uint8_t)first, (uint8_t)last};
    return true;
}

/* The edges [n], sorted by their first byte, cut where any of them begins or ends. */
static bool add_byte_edges(Subsets *subsets, uint32_t n, Error *error)
{
    const NfaEdge *edges = subsets->edges;
    bool begins[257] = {false};
    for (uint32_t i = 0; i < n; i++) begins[edges[i].first] = begins[edges[i].last + 1] = true;
    for (uint32_t byte = 0, next, low = 0, i; byte < 256; byte = next) {
        for (next = byte + 1; next < 256 && !begins[next]; next++) continue;
        uint32_t id;
        begin_closure(subsets);
        while (low < n && edges[low].last < byte) low++;
        for (i = low; i < n && edges[i].first <= byte; i++)
            if (edges[i].last >= byte) close_over(subsets, edges[i].to);
        if (!automaton_count_steps(subsets->automaton, i - low + 1, error)) return false;
        if (subsets->n_closure == 0) continue;
        if (!find_subset(subsets, &id, error) || !put_byte_edge(subsets, byte, next - 1, subsets->base + id, error))
            return false;
    }
    return true;
}

/* Edges [first, n) of calls or tokens, sorted by their values. */
static bool add_value_edges(Subsets *subsets, uint32_t first, uint32_t n, Error *error)
{
    Automaton *automaton = subsets->automaton;
    const NfaEdge *edges = subsets->edges;
    for (uint32_t i = first, next; i < n; i = next) {
        uint32_t id;
        bool ok, calls = edges[i].kind == EDGE_CALL;
        begin_closure(subsets);
        for (next = i; next < n && edges[next].kind == edges[i].kind && edges[next].value == edges[i].value; next++)
            close_over(subsets, edges[next].to);
        if (!find_subset(subsets, &id, error)) return false;
        ValueEdge edge = {edges[i].value, subsets->base + id};
        if (calls)
            ok = reserve(&automaton->calls, &automaton->max_calls, automaton->n_calls, 1, sizeof edge, error);
        else
            ok = reserve(&automaton->tokens, &automaton->max_tokens, automaton->n_tokens, 1, sizeof edge, error);
        if (!ok) return false;
        if (calls)
            automaton->calls[automaton->n_calls++] = edge;
        else
            automaton->tokens[automaton->n_tokens++] = edge;
    }
    return true;
}

static bool has_end(const Subsets *subsets, uint32_t id)
{
    const Subset *subset = &subsets->list[id];
    const uint32_t *members = &subsets->members[subset->first];
    return subset->n && bsearch(&subsets->end, members, subset->n, sizeof *members, compare_u32);
}

static bool add_state(Subsets *subsets, uint32_t id, Error *error)
{
    Automaton *automaton = subsets->automaton;
    if (!reserve(&automaton->states, &automaton->max_states, automaton->n_states, 2, sizeof(AutomatonState), error))
        return false;
    automaton->states[automaton->n_states] = (AutomatonState){.first_byte = automaton->n_bytes,
                                                              .first_call = automaton->n_calls,
                                                              .first_token = automaton->n_tokens,
                                                              .is_final = has_end(subsets, id)};
    if (!gather_edges(subsets, id, error)) return false;
    uint32_t n_bytes = 0;
    while (n_bytes < subsets->n_edges && subsets->edges[n_bytes].kind == EDGE_BYTES) n_bytes++;
    if (!add_byte_edges(subsets, n_bytes, error) || !add_value_edges(subsets, n_bytes, subsets->n_edges, error))
        return false;
    automaton->n_states++;
    automaton->states[automaton->n_states] = (AutomatonState){
        .first_byte = automaton->n_bytes, .first_call = automaton->n_calls, .first_token = automaton->n_tokens};
    return true;
}

bool automaton_add_rule(Automaton *automaton, const Nfa *nfa, uint32_t start, uint32_t end, uint32_t *ret_start,
                        Error *error)
{
    Subsets subsets = {.automaton = automaton, .nfa = nfa, .end = end, .base = automaton->n_states};
    uint32_t id;
    subsets.mark = calloc(nfa->n_states, sizeof *subsets.mark);
    subsets.closure = calloc(nfa->n_states, sizeof *subsets.closure);
    bool ok = subsets.mark && subsets.closure;
    if (!ok) (void)no_memory(error);
    if (ok) {
        begin_closure(&subsets);
        close_over(&subsets, start);
        ok = find_subset(&subsets, &id, error);
    }
    for (id = 0; ok && id < subsets.n; id++) ok = add_state(&subsets, id, error);
    free(subsets.mark);
    free(subsets.closure);
    free(subsets.edges);
    free(subsets.list);
    free(subsets.members);
    id_table_done(&subsets.by_members);
    if (ok) *ret_start = subsets.base;
    return ok;
}
