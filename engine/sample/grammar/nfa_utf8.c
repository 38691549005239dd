/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of code points as ranges of bytes. */
#include "engine/sample/grammar/nfa.h"

#include <utf8proc.h>

/* Where a code point ends, and the states from which any 1, 2 or 3 further bytes lead there. */
typedef struct ClassEnd {
    Nfa *nfa;
    uint32_t tails[4]; /* [k]: k bytes are missing; 0 beyond the first: not made */
} ClassEnd;

static bool add_bytes(Nfa *nfa, uint32_t from, uint32_t to, uint8_t first, uint8_t last, Error *error)
{
    return nfa_edge(nfa, from, (NfaEdge){.kind = EDGE_BYTES, .to = to, .first = first, .last = last}, error);
}

static bool find_tail(ClassEnd *end, size_t n_missing, uint32_t *ret_state, Error *error)
{
    for (size_t k = 1; k <= n_missing; k++)
        if (!end->tails[k] && !(nfa_state(end->nfa, &end->tails[k], error) &&
                                add_bytes(end->nfa, end->tails[k], end->tails[k - 1], 0x80, 0xBF, error)))
            return false;
    *ret_state = end->tails[n_missing];
    return true;
}

static bool are_all(const uint8_t *bytes, size_t n, uint8_t byte)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != byte) return false;
    return true;
}

/* All encodings of n bytes from low to high, which share their length. */
static bool add_span(ClassEnd *end, uint32_t from, const uint8_t *low, const uint8_t *high, size_t n, Error *error)
{
    static const uint8_t least[3] = {0x80, 0x80, 0x80}, most[3] = {0xBF, 0xBF, 0xBF};
    uint32_t next;
    uint8_t first = low[0], last = high[0];
    bool whole_low = are_all(low + 1, n - 1, 0x80), whole_high = are_all(high + 1, n - 1, 0xBF);
    if (n == 1) return add_bytes(end->nfa, from, end->tails[0], first, last, error);
    if (first == last && !(whole_low && whole_high))
        return nfa_state(end->nfa, &next, error) && add_bytes(end->nfa, from, next, first, first, error) &&
               add_span(end, next, low + 1, high + 1, n - 1, error);
    if (!whole_low) {
        if (!nfa_state(end->nfa, &next, error) || !add_bytes(end->nfa, from, next, first, first, error) ||
            !add_span(end, next, low + 1, most, n - 1, error))
            return false;
        first++;
    }
    if (!whole_high) {
        if (!nfa_state(end->nfa, &next, error) || !add_bytes(end->nfa, from, next, last, last, error) ||
            !add_span(end, next, least, high + 1, n - 1, error))
            return false;
        last--;
    }
    if (first > last) return true;
    return find_tail(end, n - 1, &next, error) && add_bytes(end->nfa, from, next, first, last, error);
}

bool nfa_add_class(Nfa *nfa, const Node *node, uint32_t from, uint32_t to, Error *error)
{
    static const CodeRange lengths[] = {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, 0x10FFFF}};
    ClassEnd end = {.nfa = nfa, .tails = {to}};
    for (size_t i = 0; i < node->n; i++)
        for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++) {
            uint32_t first = node->ranges[i].first, last = node->ranges[i].last;
            uint8_t low[4], high[4];
            if (first < lengths[j].first) first = lengths[j].first;
            if (last > lengths[j].last) last = lengths[j].last;
            if (first > last) continue;
            size_t n = (size_t)utf8proc_encode_char((utf8proc_int32_t)first, low);
            (void)utf8proc_encode_char((utf8proc_int32_t)last, high);
            if (!add_span(&end, from, low, high, n, error)) return false;
        }
    return true;
}
