/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/nfa.h"

#include <stdlib.h>

/* Small rules of bytes alone are written where they are used: blanks and digits need no stack. */
enum { INLINE_WEIGHT = 48, MAX_EDGES = 1 << 21 };

static bool too_large(Error *error)
{
    return error_set(error, ERR_TOO_LARGE, "more than %d states", GRAMMAR_MAX_STATES);
}

bool nfa_state(Nfa *nfa, uint32_t *ret_state, Error *error)
{
    if (nfa->n_states == nfa->max_states) {
        uint32_t max = nfa->max_states ? nfa->max_states * 2 : 256;
        if (max > 8 * GRAMMAR_MAX_STATES) return too_large(error);
        uint32_t *heads = realloc(nfa->heads, max * sizeof *heads);
        if (!heads) return error_set(error, ERR_NO_MEMORY, "no memory for %u states", max);
        nfa->heads = heads;
        nfa->max_states = max;
    }
    nfa->heads[nfa->n_states] = NFA_NO_EDGE;
    *ret_state = nfa->n_states++;
    return true;
}

bool nfa_edge(Nfa *nfa, uint32_t from, NfaEdge edge, Error *error)
{
    if (nfa->n_edges == nfa->max_edges) {
        uint32_t max = nfa->max_edges ? nfa->max_edges * 2 : 512;
        if (max > MAX_EDGES) return too_large(error);
        NfaEdge *edges = realloc(nfa->edges, max * sizeof *edges);
        if (!edges) return error_set(error, ERR_NO_MEMORY, "no memory for %u edges", max);
        nfa->edges = edges;
        nfa->max_edges = max;
    }
    edge.next = nfa->heads[from];
    nfa->edges[nfa->n_edges] = edge;
    nfa->heads[from] = nfa->n_edges++;
    return true;
}

static bool add_node(Nfa *nfa, GrammarNode node, uint32_t from, uint32_t to, Error *error);

static bool add_empty(Nfa *nfa, uint32_t from, uint32_t to, Error *error)
{
    return nfa_edge(nfa, from, (NfaEdge){.kind = EDGE_EMPTY, .to = to}, error);
}

static bool add_bytes(Nfa *nfa, const Node *node, uint32_t from, uint32_t to, Error *error)
{
    for (size_t i = 0; i < node->n; i++) {
        uint32_t next = to;
        uint8_t byte = (uint8_t)node->text[i];
        if (i + 1 < node->n && !nfa_state(nfa, &next, error)) return false;
        if (!nfa_edge(nfa, from, (NfaEdge){.kind = EDGE_BYTES, .to = next, .first = byte, .last = byte}, error))
            return false;
        from = next;
    }
    return true;
}

static bool add_sequence(Nfa *nfa, const Node *node, uint32_t from, uint32_t to, Error *error)
{
    for (size_t i = 0; i < node->n; i++) {
        uint32_t next = to;
        if (i + 1 < node->n && !nfa_state(nfa, &next, error)) return false;
        if (!add_node(nfa, node->nodes[i], from, next, error)) return false;
        from = next;
    }
    return true;
}

/* States of its own, so that nothing which stands beside it can be entered from within. */
static bool add_repeat(Nfa *nfa, const Node *node, uint32_t from, uint32_t to, Error *error)
{
    uint32_t at, next, n_optional = node->c == GRAMMAR_UNBOUNDED ? 0 : node->c - node->b;
    if (!nfa_state(nfa, &at, error) || !add_empty(nfa, from, at, error)) return false;
    for (uint32_t i = 0; i < node->b + n_optional; i++) {
        if (i >= node->b && !add_empty(nfa, at, to, error)) return false;
        if (!nfa_state(nfa, &next, error) || !add_node(nfa, node->a, at, next, error)) return false;
        at = next;
    }
    if (node->c == GRAMMAR_UNBOUNDED) {
        if (!nfa_state(nfa, &next, error) || !add_empty(nfa, at, next, error)) return false;
        at = next;
        if (!add_node(nfa, node->a, at, at, error)) return false;
    }
    return add_empty(nfa, at, to, error);
}

static bool add_machine(Nfa *nfa, const Node *node, uint32_t from, uint32_t to, Error *error)
{
    uint32_t first = nfa->n_states, state;
    for (uint32_t i = 0; i < node->a; i++)
        if (!nfa_state(nfa, &state, error)) return false;
    for (size_t i = 0; i < node->n; i++) {
        const GrammarEdge *edge = &node->edges[i];
        uint32_t end = edge->to == GRAMMAR_MACHINE_END ? to : first + edge->to;
        if (!add_node(nfa, edge->node, first + edge->from, end, error)) return false;
    }
    return add_empty(nfa, from, first, error);
}

static bool add_rule(Nfa *nfa, const Node *node, uint32_t from, uint32_t to, Error *error)
{
    const Rule *rule = &nfa->builder->rules[node->a];
    if (rule->node != GRAMMAR_FAILED) {
        const Node *body = &nfa->builder->nodes[rule->node];
        if (!body->has_rules && body->weight <= INLINE_WEIGHT) return add_node(nfa, rule->node, from, to, error);
    }
    return nfa_edge(nfa, from, (NfaEdge){.kind = EDGE_CALL, .to = to, .value = node->a}, error);
}

/* No edge leads into from, or out of to, but those of a loop that begins and ends there. */
static bool add_node(Nfa *nfa, GrammarNode id, uint32_t from, uint32_t to, Error *error)
{
    const Node *node = &nfa->builder->nodes[id];
    switch (node->kind) {
    case NODE_EMPTY:
        return add_empty(nfa, from, to, error);
    case NODE_NEVER:
        return true;
    case NODE_BYTES:
        return add_bytes(nfa, node, from, to, error);
    case NODE_CLASS:
        return nfa_add_class(nfa, node, from, to, error);
    case NODE_SEQUENCE:
        return add_sequence(nfa, node, from, to, error);
    case NODE_CHOICE:
        for (size_t i = 0; i < node->n; i++)
            if (!add_node(nfa, node->nodes[i], from, to, error)) return false;
        return true;
    case NODE_REPEAT:
        return add_repeat(nfa, node, from, to, error);
    case NODE_MACHINE:
        return add_machine(nfa, node, from, to, error);
    case NODE_TOKEN:
        return nfa_edge(nfa, from, (NfaEdge){.kind = EDGE_TOKEN, .to = to, .value = node->a}, error);
    case NODE_FREE:
        return nfa_add_free(nfa, node, from, to, error);
    case NODE_RULE:
        break;
    }
    return add_rule(nfa, node, from, to, error);
}

bool nfa_build(Nfa *nfa, GrammarNode node, uint32_t *ret_start, uint32_t *ret_end, Error *error)
{
    nfa->n_edges = nfa->n_states = 0;
    return nfa_state(nfa, ret_start, error) && nfa_state(nfa, ret_end, error) &&
           add_node(nfa, node, *ret_start, *ret_end, error);
}

void nfa_done(Nfa *nfa)
{
    free(nfa->edges);
    free(nfa->heads);
    *nfa = (Nfa){0};
}
