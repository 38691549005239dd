/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Free text up to a marker: the automaton of Aho and Corasick, which knows the longest beginning of a marker that the
 * text ends with, times one that knows how much of a code point is missing.
 */
#include "engine/sample/grammar/nfa.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 4096, N_UTF8_STATES = 8, UTF8_DEAD_END = N_UTF8_STATES, UNKNOWN = UINT16_MAX };

typedef struct Matches {
    uint16_t (*next)[256];    /* [n]; complete once the links are known */
    uint16_t *link;           /* [n] the longest other beginning that this one ends with */
    bool *ends, *ends_wanted; /* [n] a marker is complete here; one that may be the first */
    uint16_t *order;          /* [n] by length */
    uint32_t n;
} Matches;

static void matches_done(Matches *matches)
{
    free(matches->next);
    free(matches->link);
    free(matches->ends);
    free(matches->ends_wanted);
    free(matches->order);
}

static bool matches_alloc(Matches *matches, uint32_t n)
{
    *matches = (Matches){.n = 1};
    matches->next = malloc(n * sizeof *matches->next);
    matches->link = calloc(n, sizeof *matches->link);
    matches->ends = calloc(n, sizeof *matches->ends);
    matches->ends_wanted = calloc(n, sizeof *matches->ends_wanted);
    matches->order = calloc(n, sizeof *matches->order);
    if (matches->next && matches->link && matches->ends && matches->ends_wanted && matches->order) {
        memset(matches->next, 0xFF, n * sizeof *matches->next);
        return true;
    }
    matches_done(matches);
    return false;
}

static void add_marker(Matches *matches, const Marker *marker, bool is_wanted)
{
    uint32_t at = 0;
    for (size_t i = 0; i < marker->n; i++) {
        uint16_t *next = &matches->next[at][(uint8_t)marker->text[i]];
        if (*next == UNKNOWN) *next = (uint16_t)matches->n++;
        at = *next;
    }
    matches->ends[at] = true;
    matches->ends_wanted[at] |= is_wanted;
}

/* In order of length: links lead to shorter ones, which are complete. */
static void link_matches(Matches *matches)
{
    uint32_t n_ordered = 1;
    for (uint32_t i = 0; i < n_ordered; i++) {
        uint16_t at = matches->order[i];
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint16_t *next = &matches->next[at][byte], shorter = at ? matches->next[matches->link[at]][byte] : 0;
            if (*next == UNKNOWN) {
                *next = shorter;
                continue;
            }
            matches->link[*next] = shorter;
            matches->ends[*next] |= matches->ends[shorter];
            matches->ends_wanted[*next] |= matches->ends_wanted[shorter];
            matches->order[n_ordered++] = *next;
        }
    }
}

/* 0: between code points; 1 to 3: so many bytes are missing; beyond: behind E0, ED, F0, F4. */
static uint32_t utf8_next(uint32_t state, uint8_t byte)
{
    static const struct {
        uint8_t first, last, to;
    } behind[N_UTF8_STATES] = {{0, 0, 0},       {0x80, 0xBF, 0}, {0x80, 0xBF, 1}, {0x80, 0xBF, 2},
                               {0xA0, 0xBF, 1}, {0x80, 0x9F, 1}, {0x90, 0xBF, 2}, {0x80, 0x8F, 2}};
    if (state) return byte >= behind[state].first && byte <= behind[state].last ? behind[state].to : UTF8_DEAD_END;
    if (byte == 0 || byte > 0xF4 || (byte >= 0x80 && byte < 0xC2)) return UTF8_DEAD_END;
    if (byte < 0x80) return 0;
    if (byte < 0xE0) return 1;
    if (byte < 0xF0) return byte == 0xE0 ? 4 : byte == 0xED ? 5 : 2;
    return byte == 0xF0 ? 6 : byte == 0xF4 ? 7 : 3;
}

/* The pairs that are reached, and their states. */
typedef struct Product {
    Nfa *nfa;
    const Matches *matches;
    uint32_t *states; /* [n * N_UTF8_STATES] + 1 */
    uint32_t *todo;   /* [n_todo] pairs */
    uint32_t n_todo, to;
    bool may_end; /* anywhere between code points */
} Product;

static bool state_of(Product *product, uint32_t pair, uint32_t *ret_state, Error *error)
{
    if (!product->states[pair]) {
        uint32_t state;
        NfaEdge end = {.kind = EDGE_EMPTY, .to = product->to};
        if (!nfa_state(product->nfa, &state, error)) return false;
        if (product->may_end && pair % N_UTF8_STATES == 0 && !nfa_edge(product->nfa, state, end, error)) return false;
        product->states[pair] = state + 1;
        product->todo[product->n_todo++] = pair;
    }
    *ret_state = product->states[pair] - 1;
    return true;
}

/* Where a byte leads: false: nowhere. */
static bool target_of(Product *product, uint32_t pair, uint8_t byte, uint32_t *ret_pair, bool *ret_ends)
{
    uint32_t utf8 = utf8_next(pair % N_UTF8_STATES, byte);
    if (utf8 == UTF8_DEAD_END) return false;
    uint16_t match = product->matches->next[pair / N_UTF8_STATES][byte];
    *ret_pair = match * N_UTF8_STATES + utf8;
    *ret_ends = product->matches->ends[match];
    return !*ret_ends || product->matches->ends_wanted[match];
}

static bool expand(Product *product, uint32_t pair, Error *error)
{
    uint32_t from = product->states[pair] - 1, to, target = 0, other = 0;
    bool ends = false, other_ends = false;
    for (uint32_t byte = 0, last; byte < 256; byte = last + 1) {
        last = byte;
        if (!target_of(product, pair, (uint8_t)byte, &target, &ends)) continue;
        while (last < 255 && target_of(product, pair, (uint8_t)(last + 1), &other, &other_ends) && other == target)
            last++;
        to = product->to;
        if (!ends && !state_of(product, target, &to, error)) return false;
        NfaEdge edge = {.kind = EDGE_BYTES, .to = to, .first = (uint8_t)byte, .last = (uint8_t)last};
        if (!nfa_edge(product->nfa, from, edge, error)) return false;
    }
    return true;
}

bool nfa_add_free(Nfa *nfa, const Node *node, uint32_t from, uint32_t to, Error *error)
{
    Matches matches;
    size_t n = 1;
    uint32_t start;
    for (size_t i = 0; i < node->n; i++) n += node->markers[i].n;
    if (n > MAX_NODES) return error_set(error, ERR_TOO_LARGE, "markers of more than %d bytes", MAX_NODES);
    if (!matches_alloc(&matches, (uint32_t)n)) return error_set(error, ERR_NO_MEMORY, "no memory for markers");
    for (size_t i = 0; i < node->n; i++) add_marker(&matches, &node->markers[i], node->a == FREE_ANY || node->a == i);
    link_matches(&matches);
    Product product = {.nfa = nfa, .matches = &matches, .to = to, .may_end = node->a == FREE_NONE};
    product.states = calloc(n * N_UTF8_STATES, sizeof *product.states);
    product.todo = calloc(n * N_UTF8_STATES, sizeof *product.todo);
    bool ok = product.states && product.todo;
    if (!ok) ok = error_set(error, ERR_NO_MEMORY, "no memory for markers");
    ok = ok && state_of(&product, 0, &start, error) &&
         nfa_edge(nfa, from, (NfaEdge){.kind = EDGE_EMPTY, .to = start}, error);
    for (uint32_t i = 0; ok && i < product.n_todo; i++) ok = expand(&product, product.todo[i], error);
    free(product.states);
    free(product.todo);
    matches_done(&matches);
    return ok;
}
