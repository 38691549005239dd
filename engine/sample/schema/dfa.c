/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/dfa.h"
#include "engine/sample/schema/dfa_build.h"

#include <stdlib.h>
#include <string.h>

static bool add_any_edge(DfaBuilder *builder, uint32_t to)
{
    return dfa_builder_edge(builder, 1, CODE_SURROGATE_FIRST - 1, to) &&
           dfa_builder_edge(builder, CODE_SURROGATE_LAST + 1, CODE_LAST, to);
}

bool dfa_any(Arena *arena, const Dfa **ret_dfa, Error *error)
{
    return dfa_lengths(0, UINT32_MAX, arena, ret_dfa, error);
}

bool dfa_lengths(uint32_t min, uint32_t max, Arena *arena, const Dfa **ret_dfa, Error *error)
{
    DfaBuilder builder;
    dfa_builder_init(&builder, error);
    uint32_t last = max == UINT32_MAX ? min : max;
    bool ok = true;
    for (uint32_t i = 0; ok && min <= max && i <= last; i++) {
        ok = dfa_builder_state(&builder, i >= min);
        if (ok && (i < last || max == UINT32_MAX)) ok = add_any_edge(&builder, i < last ? i + 1 : last);
    }
    ok = ok && dfa_builder_finish(&builder, arena, ret_dfa);
    dfa_builder_done(&builder);
    return ok;
}

/* ---- words ---- */

/* Valid UTF-8 only; *at moves behind the code point. 0: the end. */
static uint32_t next_code(const char **at)
{
    const unsigned char *s = (const unsigned char *)*at;
    if (!*s) return 0;
    unsigned n = *s < 0x80 ? 1 : *s < 0xE0 ? 2 : *s < 0xF0 ? 3 : 4;
    uint32_t code = n == 1 ? *s : *s & (0x7Fu >> n);
    for (unsigned i = 1; i < n; i++) code = code << 6 | (s[i] & 0x3F);
    *at += n;
    return code;
}

typedef struct Group {
    uint32_t first, last; /* of the sorted words */
    uint32_t bytes;       /* that they have in common */
} Group;

static int compare_words(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* One state of a trie: the words of a group, divided by their next code point. UTF-8 sorts as its code points do. */
static bool add_trie_state(DfaBuilder *builder, const char *const *words, Group group, Group *groups,
                           uint32_t *n_groups)
{
    uint32_t i = group.first;
    bool ends = !words[i][group.bytes];
    if (!dfa_builder_state(builder, ends)) return false;
    while (i <= group.last && !words[i][group.bytes]) i++;
    while (i <= group.last) {
        const char *at = words[i] + group.bytes;
        const char *end = at;
        uint32_t code = next_code(&end), n = (uint32_t)(end - at), first = i;
        while (i <= group.last && !strncmp(words[i] + group.bytes, at, n)) i++;
        if (*n_groups >= DFA_MAX_STATES)
            return error_set(builder->error, ERR_TOO_LARGE,
                             "the words of an 'enum' or the names of properties have more than %d characters",
                             DFA_MAX_STATES);
        groups[*n_groups] = (Group){first, i - 1, group.bytes + n};
        if (!dfa_builder_edge(builder, code, code, (*n_groups)++)) return false;
    }
    return true;
}

bool dfa_words(const char *const *words, uint32_t n, Arena *arena, const Dfa **ret_dfa, Error *error)
{
    DfaBuilder builder;
    dfa_builder_init(&builder, error);
    size_t most = 1; /* states: as many as there are bytes, at most */
    for (uint32_t i = 0; i < n && most < DFA_MAX_STATES; i++) most += strlen(words[i]);
    const char **sorted = malloc((n + 1) * sizeof *sorted);
    Group *groups = malloc((most < DFA_MAX_STATES ? most : DFA_MAX_STATES) * sizeof *groups);
    bool ok = sorted && groups;
    if (!ok) (void)error_set(error, ERR_NO_MEMORY, "no memory for %u words", n);
    if (ok && n) {
        memcpy(sorted, words, n * sizeof *sorted);
        qsort(sorted, n, sizeof *sorted, compare_words);
        groups[0] = (Group){0, n - 1, 0};
    }
    uint32_t n_groups = n > 0;
    for (uint32_t i = 0; ok && i < n_groups; i++) ok = add_trie_state(&builder, sorted, groups[i], groups, &n_groups);
    ok = ok && dfa_builder_finish(&builder, arena, ret_dfa);
    dfa_builder_done(&builder);
    free(groups);
    free(sorted);
    return ok;
}

/* ---- two at once ---- */

enum { DEAD = UINT32_MAX };

typedef struct Pair {
    const Dfa *a, *b;
    DfaOp op;
    KeyTable states;
    DfaBuilder builder;
} Pair;

static uint64_t label_of(const Dfa *dfa, uint32_t state)
{
    return state == DEAD ? 0 : dfa->labels[state];
}

static uint64_t combined_label(const Pair *pair, uint32_t a, uint32_t b)
{
    uint64_t la = label_of(pair->a, a), lb = label_of(pair->b, b);
    switch (pair->op) {
    case DFA_AND:
        return la && lb;
    case DFA_OR:
        return la || lb;
    case DFA_MINUS:
        return la && !lb;
    case DFA_LABELS:
        break;
    }
    return la | lb;
}

static bool is_hopeless(DfaOp op, uint32_t a, uint32_t b)
{
    if (op == DFA_AND) return a == DEAD || b == DEAD;
    return a == DEAD && (b == DEAD || op == DFA_MINUS);
}

/* The edge that takes 'code' or else the next one behind it. */
typedef struct Cursor {
    const DfaEdge *edge, *end;
} Cursor;

static Cursor cursor_at(const Dfa *dfa, uint32_t state)
{
    if (state == DEAD) return (Cursor){NULL, NULL};
    return (Cursor){dfa->edges + dfa->begin[state], dfa->edges + dfa->begin[state + 1]};
}

/* Where code leads; *last is cut to how far that holds. */
static uint32_t cursor_step(Cursor *cursor, uint32_t code, uint32_t *last)
{
    while (cursor->edge < cursor->end && cursor->edge->last < code) cursor->edge++;
    if (cursor->edge >= cursor->end) return DEAD;
    if (cursor->edge->first > code) {
        if (*last > cursor->edge->first - 1) *last = cursor->edge->first - 1;
        return DEAD;
    }
    if (*last > cursor->edge->last) *last = cursor->edge->last;
    return cursor->edge->to;
}

static bool add_pair_state(Pair *pair, uint32_t a, uint32_t b)
{
    if (!dfa_builder_state(&pair->builder, combined_label(pair, a, b))) return false;
    Cursor at_a = cursor_at(pair->a, a), at_b = cursor_at(pair->b, b);
    for (uint32_t code = 0, last; code <= CODE_LAST; code = last + 1) {
        last = CODE_LAST;
        uint32_t to[2] = {cursor_step(&at_a, code, &last)};
        to[1] = cursor_step(&at_b, code, &last);
        if (is_hopeless(pair->op, to[0], to[1])) continue;
        uint32_t number;
        if (!key_table_number(&pair->states, to, DFA_MAX_STATES, &number, pair->builder.error)) return false;
        if (!dfa_builder_edge(&pair->builder, code, last, number)) return false;
    }
    return true;
}

bool dfa_combine(const Dfa *a, const Dfa *b, DfaOp op, Arena *arena, const Dfa **ret_dfa, Error *error)
{
    Pair pair = {.a = a, .b = b, .op = op};
    key_table_init(&pair.states, 2);
    dfa_builder_init(&pair.builder, error);
    uint32_t start[2] = {a->n_states ? 0 : DEAD, b->n_states ? 0 : DEAD}, number;
    bool ok =
        is_hopeless(op, start[0], start[1]) || key_table_number(&pair.states, start, DFA_MAX_STATES, &number, error);
    for (uint32_t i = 0; ok && i < pair.states.n_keys; i++)
        ok = add_pair_state(&pair, pair.states.words[2 * i], pair.states.words[2 * i + 1]);
    ok = ok && dfa_builder_finish(&pair.builder, arena, ret_dfa);
    dfa_builder_done(&pair.builder);
    key_table_done(&pair.states);
    return ok;
}

bool dfa_with_label(const Dfa *dfa, uint64_t wanted, uint64_t mask, Arena *arena, const Dfa **ret_dfa, Error *error)
{
    DfaBuilder builder;
    dfa_builder_init(&builder, error);
    bool ok = true;
    for (uint32_t s = 0; ok && s < dfa->n_states; s++) {
        ok = dfa_builder_state(&builder, dfa->labels[s] && (dfa->labels[s] & mask) == wanted);
        for (uint32_t e = dfa->begin[s]; ok && e < dfa->begin[s + 1]; e++)
            ok = dfa_builder_edge(&builder, dfa->edges[e].first, dfa->edges[e].last, dfa->edges[e].to);
    }
    ok = ok && dfa_builder_finish(&builder, arena, ret_dfa);
    dfa_builder_done(&builder);
    return ok;
}

bool dfa_relabel(const Dfa *dfa, uint64_t label, Arena *arena, const Dfa **ret_dfa, Error *error)
{
    Dfa *copy = arena_alloc(arena, sizeof *copy);
    uint64_t *labels = arena_array(arena, dfa->n_states, sizeof *labels);
    if (!copy || !labels) return error_set(error, ERR_NO_MEMORY, "no memory for an automaton");
    for (uint32_t s = 0; s < dfa->n_states; s++) labels[s] = dfa->labels[s] ? label : 0;
    *copy = *dfa;
    copy->labels = labels;
    *ret_dfa = copy;
    return true;
}

/* ---- questions ---- */

static int compare_code(const void *key, const void *item)
{
    uint32_t code = *(const uint32_t *)key;
    const DfaEdge *edge = item;
    return code < edge->first ? -1 : code > edge->last;
}

int64_t dfa_step(const Dfa *dfa, uint32_t state, uint32_t code)
{
    uint32_t first = dfa->begin[state], n = dfa->begin[state + 1] - first;
    const DfaEdge *edge = n ? bsearch(&code, &dfa->edges[first], n, sizeof *edge, compare_code) : NULL;
    return edge ? (int64_t)edge->to : DFA_NONE;
}

uint64_t dfa_label(const Dfa *dfa, const char *word)
{
    int64_t state = dfa->n_states ? 0 : DFA_NONE;
    while (*word && state != DFA_NONE) state = dfa_step(dfa, (uint32_t)state, next_code(&word));
    return state == DFA_NONE ? 0 : dfa->labels[state];
}

bool dfa_is_empty(const Dfa *dfa)
{
    return !dfa->n_states;
}

/* States are taken off that nothing leads to any more; in a circle none can be. */
bool dfa_is_finite(const Dfa *dfa, Arena *arena, bool *ret_is_finite, Error *error)
{
    uint32_t n = dfa->n_states, n_free = 0, n_edges = n ? dfa->begin[n] : 0;
    uint32_t *n_into = arena_array(arena, n, sizeof *n_into), *taken = arena_array(arena, n, sizeof *taken);
    if (!n_into || !taken) return error_set(error, ERR_NO_MEMORY, "no memory for an automaton");
    if (n) memset(n_into, 0, n * sizeof *n_into);
    for (uint32_t e = 0; e < n_edges; e++) n_into[dfa->edges[e].to]++;
    if (n && !n_into[0]) taken[n_free++] = 0;
    for (uint32_t i = 0; i < n_free; i++)
        for (uint32_t e = dfa->begin[taken[i]]; e < dfa->begin[taken[i] + 1]; e++)
            if (!--n_into[dfa->edges[e].to]) taken[n_free++] = dfa->edges[e].to;
    *ret_is_finite = n_free == n;
    return true;
}
