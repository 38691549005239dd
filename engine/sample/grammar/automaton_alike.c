/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States that no short text can tell apart (Moore's refinement, ended early): in a{0,400} most have far to go, and what
 * a token can do in one of them it can do in all. A call takes a byte at least, unless its rule may be empty: states
 * with such calls stay apart, so that no text has more edges on its way than bytes.
 */
#include "engine/sample/grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_STEPS = 8 << 20 };

typedef struct Alike {
    const Automaton *automaton;
    uint32_t *now, *next; /* [n_states] class of each state, one byte ahead and two */
    uint32_t *firsts;     /* [n] the first state of each new class */
    uint32_t n;
    IdTable by_signature;
} Alike;

static bool stays_apart(const Automaton *automaton, uint32_t state)
{
    const AutomatonState *at = &automaton->states[state];
    for (uint32_t i = at[0].first_call; i < at[1].first_call; i++)
        if (automaton->may_be_empty[automaton->calls[i].value]) return true;
    return false;
}

static uint32_t mix(uint32_t hash, uint32_t word)
{
    hash = (hash ^ word) * 0x9E3779B1u;
    return hash ^ hash >> 15;
}

static uint32_t signature_hash(const Alike *alike, uint32_t state)
{
    const Automaton *automaton = alike->automaton;
    const AutomatonState *at = &automaton->states[state];
    uint32_t hash = mix(at->is_final, alike->now[state]);
    for (uint32_t i = at[0].first_byte; i < at[1].first_byte; i++)
        hash = mix(mix(hash, automaton->bytes[i].first * 256u + automaton->bytes[i].last),
                   alike->now[automaton->bytes[i].to]);
    for (uint32_t i = at[0].first_call; i < at[1].first_call; i++)
        hash = mix(mix(hash, automaton->calls[i].value), alike->now[automaton->calls[i].to]);
    for (uint32_t i = at[0].first_token; i < at[1].first_token; i++)
        hash = mix(mix(hash, automaton->tokens[i].value), alike->now[automaton->tokens[i].to]);
    return hash;
}

static bool are_same_edges(const Alike *alike, const ValueEdge *edges, uint32_t a, uint32_t b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (edges[a + i].value != edges[b + i].value || alike->now[edges[a + i].to] != alike->now[edges[b + i].to])
            return false;
    return true;
}

static bool is_same_signature(const void *owner, uint32_t class, const void *key)
{
    const Alike *alike = owner;
    const Automaton *automaton = alike->automaton;
    uint32_t other = alike->firsts[class], state = *(const uint32_t *)key;
    const AutomatonState *a = &automaton->states[other], *b = &automaton->states[state];
    uint32_t n_bytes = a[1].first_byte - a->first_byte, n_calls = a[1].first_call - a->first_call;
    uint32_t n_tokens = a[1].first_token - a->first_token;
    if (alike->now[other] != alike->now[state] || a->is_final != b->is_final ||
        n_bytes != b[1].first_byte - b->first_byte || n_calls != b[1].first_call - b->first_call ||
        n_tokens != b[1].first_token - b->first_token)
        return false;
    for (uint32_t i = 0; i < n_bytes; i++) {
        const ByteEdge *left = &automaton->bytes[a->first_byte + i], *right = &automaton->bytes[b->first_byte + i];
        if (left->first != right->first || left->last != right->last || alike->now[left->to] != alike->now[right->to])
            return false;
    }
    return are_same_edges(alike, automaton->calls, a->first_call, b->first_call, n_calls) &&
           are_same_edges(alike, automaton->tokens, a->first_token, b->first_token, n_tokens);
}

static uint32_t hash_of_class(const void *owner, uint32_t class)
{
    const Alike *alike = owner;
    return signature_hash(alike, alike->firsts[class]);
}

/* Classes by what one byte more tells; false: no memory. */
static bool refine(Alike *alike)
{
    id_table_done(&alike->by_signature);
    alike->n = 0;
    for (uint32_t state = 0; state < alike->automaton->n_states; state++) {
        if (!id_table_reserve(&alike->by_signature, hash_of_class, alike)) return false;
        uint32_t hash = signature_hash(alike, state);
        uint32_t *slot = id_table_find(&alike->by_signature, hash, is_same_signature, alike, &state);
        if (!*slot) {
            alike->firsts[alike->n] = state;
            id_table_fill(&alike->by_signature, slot, alike->n++);
        }
        alike->next[state] = *slot - 1;
    }
    uint32_t *old = alike->now;
    alike->now = alike->next;
    alike->next = old;
    return true;
}

bool automaton_find_alike(Automaton *automaton, Error *error)
{
    uint32_t n = automaton->n_states;
    Alike alike = {.automaton = automaton};
    automaton->alike = malloc(n * sizeof *automaton->alike);
    alike.now = malloc(n * sizeof *alike.now);
    alike.next = malloc(n * sizeof *alike.next);
    alike.firsts = malloc(n * sizeof *alike.firsts);
    bool ok = automaton->alike && alike.now && alike.next && alike.firsts;
    for (uint32_t i = 0; ok && i < n; i++) {
        automaton->alike[i] = i;
        alike.now[i] = stays_apart(automaton, i) ? 2 + i : automaton->states[i].is_final;
    }
    uint64_t per_round = (uint64_t)n + automaton->n_bytes + automaton->n_calls;
    bool is_small = per_round * AUTOMATON_ALIKE_BYTES <= MAX_STEPS;
    uint32_t n_before = 0;
    for (uint32_t i = 0; ok && is_small && i < AUTOMATON_ALIKE_BYTES && (i == 0 || alike.n > n_before); i++) {
        n_before = alike.n;
        ok = refine(&alike);
    }
    for (uint32_t i = 0; ok && is_small && i < n; i++) automaton->alike[i] = alike.firsts[alike.now[i]];
    id_table_done(&alike.by_signature);
    free(alike.now);
    free(alike.next);
    free(alike.firsts);
    return ok || error_set(error, ERR_NO_MEMORY, "no memory for the automaton of a grammar");
}
