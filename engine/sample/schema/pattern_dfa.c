/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Subsets of the states of a PatternNfa become the states of a Dfa. A subset holds only states that wait for a code
 * point, and the last one. Once all may follow, nothing else in the subset counts any more.
 */
#include "engine/sample/schema/dfa_build.h"

#include "base/array.h"
#include "base/numbers.h"
#include "engine/sample/schema/pattern_nfa.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_KEY_WORDS = 1 << 22 }; /* of all subsets together */

typedef struct Arc {
    uint32_t first, last, to; /* to: an PatternNfa state, its forks not yet followed */
} Arc;

typedef struct Subsets {
    const PatternNfa *nfa;
    uint32_t accept, width; /* words of a subset */
    uint32_t *takes_all;    /* [width] states from which every text is one */
    uint32_t *kept;         /* [width] all but forks */
    uint32_t *set;          /* [width] the one that is being made */
    uint32_t *stack;        /* [n_states + 1] */
    Arc *arcs;
    uint32_t n_arcs, arcs_capacity;
    uint32_t *borders; /* [n_borders] sorted: between two of them all code points are on the same arcs everywhere */
    uint32_t n_borders;
    uint64_t work;
    KeyTable table;
    DfaBuilder builder;
    Error *error;
} Subsets;

static bool has(const uint32_t *set, uint32_t state)
{
    return set[state / 32] >> (state % 32) & 1;
}

static bool spend(Subsets *subsets, uint64_t work)
{
    subsets->work += work;
    return subsets->work <= PATTERN_MAX_WORK ||
           error_set(subsets->error, ERR_TOO_LARGE, "a pattern takes too many steps");
}

/* Forks are marked too while their ways are followed, so that none is followed twice; drop_forks takes them out. */
static bool add_closure(Subsets *subsets, uint32_t state)
{
    uint32_t depth = 0;
    if (state != PATTERN_NOWHERE && !has(subsets->set, state)) subsets->stack[depth++] = state;
    while (depth) {
        uint32_t s = subsets->stack[--depth];
        if (has(subsets->set, s)) continue;
        subsets->set[s / 32] |= UINT32_C(1) << (s % 32);
        if (!spend(subsets, 1)) return false;
        const PatternState *at = &subsets->nfa->states[s];
        if (at->n_ranges) continue;
        uint32_t ways[2] = {at->next, at->other};
        for (int i = 0; i < 2; i++)
            if (ways[i] != PATTERN_NOWHERE && !has(subsets->set, ways[i])) subsets->stack[depth++] = ways[i];
    }
    return true;
}

static void put(uint32_t *set, uint32_t state)
{
    set[state / 32] |= UINT32_C(1) << (state % 32);
}

static void tidy(Subsets *subsets)
{
    for (uint32_t w = 0; w < subsets->width; w++) {
        uint32_t all = subsets->set[w] & subsets->takes_all[w];
        if (all) {
            memset(subsets->set, 0, subsets->width * sizeof *subsets->set);
            put(subsets->set, w * 32 + (uint32_t)__builtin_ctz(all));
            put(subsets->set, subsets->accept);
            return;
        }
        subsets->set[w] &= subsets->kept[w];
    }
}

static bool add_arc(Subsets *subsets, Arc arc)
{
    if (!array_reserve(&subsets->arcs, &subsets->arcs_capacity, (uint64_t)subsets->n_arcs + 1, UINT32_MAX, sizeof arc))
        return error_set(subsets->error, ERR_NO_MEMORY, "no memory for a pattern");
    subsets->arcs[subsets->n_arcs++] = arc;
    return true;
}

static bool collect_arcs(Subsets *subsets, const uint32_t *set)
{
    subsets->n_arcs = 0;
    for (uint32_t w = 0; w < subsets->width; w++)
        for (uint32_t bits = set[w]; bits; bits &= bits - 1) {
            const PatternState *at = &subsets->nfa->states[w * 32 + (uint32_t)__builtin_ctz(bits)];
            for (uint32_t i = 0; i < at->n_ranges; i++) {
                CodeRange range = subsets->nfa->ranges[at->ranges + i];
                if (!add_arc(subsets, (Arc){range.first, range.last, at->next})) return false;
            }
        }
    return true;
}

static bool find_borders(Subsets *subsets)
{
    const PatternNfa *nfa = subsets->nfa;
    uint32_t n = 0, kept = 0;
    subsets->borders = malloc((2 * (size_t)nfa->n_ranges + 1) * sizeof *subsets->borders);
    if (!subsets->borders) return error_set(subsets->error, ERR_NO_MEMORY, "no memory for a pattern");
    for (uint32_t i = 0; i < nfa->n_ranges; i++) {
        subsets->borders[n++] = nfa->ranges[i].first;
        subsets->borders[n++] = nfa->ranges[i].last + 1;
    }
    if (n) qsort(subsets->borders, n, sizeof *subsets->borders, compare_u32);
    for (uint32_t i = 0; i < n; i++)
        if (!kept || subsets->borders[i] != subsets->borders[kept - 1]) subsets->borders[kept++] = subsets->borders[i];
    subsets->n_borders = kept;
    return true;
}

/* The subset behind one code point, in subsets->set; *ret_any: it is not empty. */
static bool step(Subsets *subsets, uint32_t code, bool *ret_any)
{
    memset(subsets->set, 0, subsets->width * sizeof *subsets->set);
    *ret_any = false;
    if (!spend(subsets, subsets->n_arcs + subsets->width)) return false;
    for (uint32_t i = 0; i < subsets->n_arcs; i++) {
        if (code < subsets->arcs[i].first || code > subsets->arcs[i].last) continue;
        if (!add_closure(subsets, subsets->arcs[i].to)) return false;
        *ret_any = true;
    }
    tidy(subsets);
    return true;
}

static bool number_set(Subsets *subsets, uint32_t *ret_number)
{
    uint32_t most = MAX_KEY_WORDS / subsets->width;
    return key_table_number(&subsets->table, subsets->set, most < DFA_MAX_STATES ? most : DFA_MAX_STATES, ret_number,
                            subsets->error);
}

static bool add_subset(Subsets *subsets, uint32_t number)
{
    bool any;
    uint32_t to;
    const uint32_t *set = subsets->table.words + (size_t)number * subsets->width;
    if (!collect_arcs(subsets, set) || !dfa_builder_state(&subsets->builder, has(set, subsets->accept))) return false;
    for (uint32_t i = 0; i + 1 < subsets->n_borders; i++) {
        if (!step(subsets, subsets->borders[i], &any)) return false;
        if (!any) continue;
        if (!number_set(subsets, &to)) return false;
        if (!dfa_builder_edge(&subsets->builder, subsets->borders[i], subsets->borders[i + 1] - 1, to)) return false;
    }
    return true;
}

/* Which states are no forks, and which wait for any code point, come back to themselves, and may end each time. */
static bool sort_states(Subsets *subsets)
{
    put(subsets->kept, subsets->accept);
    for (uint32_t s = 0; s < subsets->nfa->n_states; s++) {
        const PatternState *state = &subsets->nfa->states[s];
        uint64_t n_codes = 0;
        if (state->n_ranges) put(subsets->kept, s);
        for (uint32_t i = 0; i < state->n_ranges; i++) {
            CodeRange range = subsets->nfa->ranges[state->ranges + i];
            n_codes += range.last - range.first + 1;
        }
        if (n_codes < CODE_LAST - (CODE_SURROGATE_LAST - CODE_SURROGATE_FIRST + 1)) continue;
        memset(subsets->set, 0, subsets->width * sizeof *subsets->set);
        if (!add_closure(subsets, state->next)) return false;
        if (has(subsets->set, s) && has(subsets->set, subsets->accept)) put(subsets->takes_all, s);
    }
    memset(subsets->set, 0, subsets->width * sizeof *subsets->set);
    return true;
}

static bool determinize(Subsets *subsets, uint32_t start, Arena *arena, const Dfa **ret_dfa)
{
    uint32_t number;
    if (!find_borders(subsets) || !sort_states(subsets) || !add_closure(subsets, start)) return false;
    tidy(subsets);
    if (!number_set(subsets, &number)) return false;
    for (uint32_t i = 0; i < subsets->table.n_keys; i++)
        if (!add_subset(subsets, i)) return false;
    return dfa_builder_finish(&subsets->builder, arena, ret_dfa);
}

bool pattern_nfa_to_dfa(PatternNfa *nfa, PatternPiece piece, Arena *arena, const Dfa **ret_dfa)
{
    Subsets subsets = {.nfa = nfa, .accept = piece.end, .error = nfa->error};
    subsets.width = nfa->n_states / 32 + 1;
    subsets.set = calloc(subsets.width, sizeof *subsets.set);
    subsets.stack = malloc((2 * (size_t)nfa->n_states + 2) * sizeof *subsets.stack);
    subsets.takes_all = calloc(subsets.width, sizeof *subsets.takes_all);
    subsets.kept = calloc(subsets.width, sizeof *subsets.kept);
    key_table_init(&subsets.table, subsets.width);
    dfa_builder_init(&subsets.builder, nfa->error);
    bool ok = subsets.set && subsets.stack && subsets.takes_all && subsets.kept
                  ? determinize(&subsets, piece.start, arena, ret_dfa)
                  : error_set(nfa->error, ERR_NO_MEMORY, "no memory for a pattern");
    dfa_builder_done(&subsets.builder);
    key_table_done(&subsets.table);
    free(subsets.set);
    free(subsets.stack);
    free(subsets.takes_all);
    free(subsets.kept);
    free(subsets.arcs);
    free(subsets.borders);
    return ok;
}
