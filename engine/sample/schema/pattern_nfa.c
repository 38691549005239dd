/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/pattern_nfa.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

void pattern_nfa_init(PatternNfa *nfa, Error *error)
{
    *nfa = (PatternNfa){.error = error};
}

void pattern_nfa_done(PatternNfa *nfa)
{
    free(nfa->states);
    free(nfa->ranges);
    *nfa = (PatternNfa){0};
}

static bool reserve(void *array, uint32_t *capacity, uint32_t wanted, uint32_t max, size_t size, Error *error)
{
    if (array_reserve(array, capacity, wanted, max, size)) return true;
    if (wanted > max) return error_set(error, ERR_TOO_LARGE, "a pattern needs more than %u states or ranges", max);
    return error_set(error, ERR_NO_MEMORY, "no memory for a pattern");
}

static bool add_states(PatternNfa *nfa, uint32_t n, uint32_t *ret_first)
{
    if (!reserve(&nfa->states, &nfa->states_capacity, nfa->n_states + n, PATTERN_MAX_STATES, sizeof *nfa->states,
                 nfa->error))
        return false;
    *ret_first = nfa->n_states;
    for (uint32_t i = 0; i < n; i++)
        nfa->states[nfa->n_states++] = (PatternState){.next = PATTERN_NOWHERE, .other = PATTERN_NOWHERE};
    return true;
}

bool pattern_nfa_empty(PatternNfa *nfa, PatternPiece *ret_piece)
{
    uint32_t state;
    if (!add_states(nfa, 1, &state)) return false;
    *ret_piece = (PatternPiece){state, 1, state, state};
    return true;
}

bool pattern_nfa_set(PatternNfa *nfa, const CodeRange *ranges, uint32_t n, PatternPiece *ret_piece)
{
    uint32_t first;
    if (!reserve(&nfa->ranges, &nfa->ranges_capacity, nfa->n_ranges + n, PATTERN_MAX_RANGES, sizeof *nfa->ranges,
                 nfa->error) ||
        !add_states(nfa, 2, &first))
        return false;
    if (n) memcpy(nfa->ranges + nfa->n_ranges, ranges, n * sizeof *ranges);
    /* without ranges it is a fork that leads nowhere */
    nfa->states[first].ranges = nfa->n_ranges;
    nfa->states[first].n_ranges = n;
    nfa->states[first].next = n ? first + 1 : PATTERN_NOWHERE;
    nfa->n_ranges += n;
    *ret_piece = (PatternPiece){first, 2, first, first + 1};
    return true;
}

void pattern_nfa_join(PatternNfa *nfa, PatternPiece a, PatternPiece b, PatternPiece *ret_piece)
{
    nfa->states[a.end].next = b.start;
    *ret_piece = (PatternPiece){a.first, b.first + b.n - a.first, a.start, b.end};
}

bool pattern_nfa_either(PatternNfa *nfa, PatternPiece a, PatternPiece b, PatternPiece *ret_piece)
{
    uint32_t fork;
    if (!add_states(nfa, 2, &fork)) return false;
    nfa->states[fork].next = a.start;
    nfa->states[fork].other = b.start;
    nfa->states[a.end].next = fork + 1;
    nfa->states[b.end].next = fork + 1;
    *ret_piece = (PatternPiece){a.first, fork + 2 - a.first, fork, fork + 1};
    return true;
}

static uint32_t moved(PatternPiece piece, uint32_t state, uint32_t by)
{
    return state != PATTERN_NOWHERE && state >= piece.first && state < piece.first + piece.n ? state + by : state;
}

/* piece: as it was built, its end open. */
static bool copy_piece(PatternNfa *nfa, PatternPiece piece, PatternPiece *ret_copy)
{
    uint32_t first;
    if (!add_states(nfa, piece.n, &first)) return false;
    uint32_t by = first - piece.first;
    for (uint32_t i = 0; i < piece.n; i++) {
        PatternState state = nfa->states[piece.first + i];
        state.next = piece.first + i == piece.end ? PATTERN_NOWHERE : moved(piece, state.next, by);
        state.other = piece.first + i == piece.end ? PATTERN_NOWHERE : moved(piece, state.other, by);
        nfa->states[first + i] = state;
    }
    *ret_copy = (PatternPiece){first, piece.n, piece.start + by, piece.end + by};
    return true;
}

/* Entered through a fork that may leave it out or, when it loops, comes back to it. */
static bool make_optional(PatternNfa *nfa, PatternPiece piece, bool loops, PatternPiece *ret_piece)
{
    uint32_t fork;
    if (!add_states(nfa, 2, &fork)) return false;
    nfa->states[fork].next = piece.start;
    nfa->states[fork].other = fork + 1;
    nfa->states[piece.end].next = loops ? fork : fork + 1;
    *ret_piece = (PatternPiece){piece.first, fork + 2 - piece.first, fork, fork + 1};
    return true;
}

bool pattern_nfa_repeat(PatternNfa *nfa, PatternPiece piece, uint32_t min, uint32_t max, PatternPiece *ret_piece)
{
    if (max != UINT32_MAX && max < min) return error_set(nfa->error, ERR_SCHEMA, "a repeat of {%u,%u}", min, max);
    bool loops = max == UINT32_MAX;
    uint32_t n = loops ? min + 1 : max;
    if (n > PATTERN_MAX_STATES)
        return error_set(nfa->error, ERR_TOO_LARGE, "a repeat of more than %d", PATTERN_MAX_STATES);
    PatternPiece all = {0}, part = piece;
    if (!n && !pattern_nfa_empty(nfa, &all)) return false;
    for (uint32_t i = 0; i < n; i++) {
        if (i && !copy_piece(nfa, piece, &part)) return false;
        PatternPiece ready = part;
        if (i >= min && !make_optional(nfa, part, loops, &ready)) return false;
        if (i) {
            nfa->states[all.end].next = ready.start;
            all.end = ready.end;
        } else {
            all = ready;
        }
    }
    *ret_piece = (PatternPiece){piece.first, nfa->n_states - piece.first, all.start, all.end};
    return true;
}
