/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Partition refinement: states are told apart first by their labels, then by where their edges lead, until no round
 * finds a difference. Long chains take as many rounds as they have states, so the work is bounded; what is not finished
 * by then stays as it is.
 */
#include "engine/sample/schema/dfa_build.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_WORK = 2000000 }; /* edges looked at */

typedef struct Classes {
    uint32_t *of;     /* [n_states] */
    uint32_t *next;   /* [n_states] */
    uint32_t *member; /* [n_classes] one state of each */
    uint32_t *slots;  /* [n_slots] class + 1; 0: free */
    uint32_t n_slots, n_classes;
} Classes;

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0xFF51AFD7ED558CCDu;
    return hash ^ hash >> 32;
}

/* Edges next to each other that lead to one class count as one. */
static uint32_t merged_edge(const Dfa *dfa, const uint32_t *of, uint32_t at, uint32_t end, DfaEdge *ret_edge)
{
    DfaEdge edge = dfa->edges[at++];
    edge.to = of[edge.to];
    while (at < end && of[dfa->edges[at].to] == edge.to && dfa->edges[at].first == edge.last + 1)
        edge.last = dfa->edges[at++].last;
    *ret_edge = edge;
    return at;
}

static uint64_t hash_of(const Dfa *dfa, const uint32_t *of, uint32_t state)
{
    uint64_t hash = mix(dfa->labels[state], of[state]);
    DfaEdge edge;
    for (uint32_t at = dfa->begin[state], end = dfa->begin[state + 1]; at < end;) {
        at = merged_edge(dfa, of, at, end, &edge);
        hash = mix(mix(hash, (uint64_t)edge.first << 32 | edge.last), edge.to);
    }
    return hash;
}

static bool alike(const Dfa *dfa, const uint32_t *of, uint32_t a, uint32_t b)
{
    if (dfa->labels[a] != dfa->labels[b] || of[a] != of[b]) return false;
    uint32_t at_a = dfa->begin[a], end_a = dfa->begin[a + 1], at_b = dfa->begin[b], end_b = dfa->begin[b + 1];
    while (at_a < end_a && at_b < end_b) {
        DfaEdge x, y;
        at_a = merged_edge(dfa, of, at_a, end_a, &x);
        at_b = merged_edge(dfa, of, at_b, end_b, &y);
        if (x.first != y.first || x.last != y.last || x.to != y.to) return false;
    }
    return at_a == end_a && at_b == end_b;
}

static void refine(const Dfa *dfa, Classes *classes)
{
    memset(classes->slots, 0, classes->n_slots * sizeof *classes->slots);
    classes->n_classes = 0;
    for (uint32_t s = 0; s < dfa->n_states; s++) {
        uint32_t i = (uint32_t)hash_of(dfa, classes->of, s) & (classes->n_slots - 1);
        while (classes->slots[i] && !alike(dfa, classes->of, classes->member[classes->slots[i] - 1], s))
            i = (i + 1) & (classes->n_slots - 1);
        if (!classes->slots[i]) {
            classes->member[classes->n_classes] = s;
            classes->slots[i] = ++classes->n_classes;
        }
        classes->next[s] = classes->slots[i] - 1;
    }
    memcpy(classes->of, classes->next, dfa->n_states * sizeof *classes->of);
}

/* State 0 is looked at first, so its class is number 0: the start stays the start. */
static bool write_classes(const Dfa *dfa, const Classes *classes, Arena *arena, const Dfa **ret_dfa, Error *error)
{
    DfaBuilder builder;
    dfa_builder_init(&builder, error);
    bool ok = true;
    for (uint32_t c = 0; ok && c < classes->n_classes; c++) {
        uint32_t s = classes->member[c];
        ok = dfa_builder_state(&builder, dfa->labels[s]);
        for (uint32_t e = dfa->begin[s]; ok && e < dfa->begin[s + 1]; e++)
            ok = dfa_builder_edge(&builder, dfa->edges[e].first, dfa->edges[e].last, classes->of[dfa->edges[e].to]);
    }
    ok = ok && dfa_builder_finish(&builder, arena, ret_dfa);
    dfa_builder_done(&builder);
    return ok;
}

bool dfa_minimize(const Dfa *dfa, Arena *arena, const Dfa **ret_dfa, Error *error)
{
    uint32_t n = dfa->n_states, n_slots = 64;
    while (n_slots < 2 * n) n_slots *= 2;
    uint32_t *memory = calloc(3 * (size_t)n + n_slots, sizeof *memory);
    if (!memory) return error_set(error, ERR_NO_MEMORY, "no memory for an automaton");
    Classes classes = {.of = memory,
                       .next = memory + n,
                       .member = memory + 2 * (size_t)n,
                       .slots = memory + 3 * (size_t)n,
                       .n_slots = n_slots};
    uint64_t work = 0, cost = n ? dfa->begin[n] + (uint64_t)n : 0;
    uint32_t before = 0;
    bool stable = !n;
    while (!stable && (work += cost) <= MAX_WORK) {
        before = classes.n_classes;
        refine(dfa, &classes);
        stable = classes.n_classes == before;
    }
    bool ok = true;
    if (stable && classes.n_classes < n)
        ok = write_classes(dfa, &classes, arena, ret_dfa, error);
    else
        *ret_dfa = dfa;
    free(memory);
    return ok;
}
