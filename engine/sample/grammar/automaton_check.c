/* SPDX-License-Identifier: Apache-2.0 */
/* What an automaton must not have: ways that lead to no end, and rules that begin with themselves. */
#include "engine/sample/grammar/automaton.h"

#include <stdlib.h>

typedef struct Check {
    Automaton *automaton;
    bool *ends;     /* [n_states] the rule's end can be reached */
    bool *is_empty; /* [n_states] ... by the empty text */
} Check;

static bool rule_has(const Check *check, const bool *what, uint32_t rule)
{
    return what[check->automaton->starts[rule]];
}

static bool state_ends(const Check *check, uint32_t state)
{
    const Automaton *automaton = check->automaton;
    const AutomatonState *at = &automaton->states[state];
    if (at->is_final) return true;
    for (uint32_t i = at[0].first_byte; i < at[1].first_byte; i++)
        if (check->ends[automaton->bytes[i].to]) return true;
    for (uint32_t i = at[0].first_token; i < at[1].first_token; i++)
        if (check->ends[automaton->tokens[i].to]) return true;
    for (uint32_t i = at[0].first_call; i < at[1].first_call; i++)
        if (check->ends[automaton->calls[i].to] && rule_has(check, check->ends, automaton->calls[i].value)) return true;
    return false;
}

static bool state_is_empty(const Check *check, uint32_t state)
{
    const Automaton *automaton = check->automaton;
    const AutomatonState *at = &automaton->states[state];
    if (at->is_final) return true;
    for (uint32_t i = at[0].first_call; i < at[1].first_call; i++)
        if (check->is_empty[automaton->calls[i].to] && rule_has(check, check->is_empty, automaton->calls[i].value))
            return true;
    return false;
}

/* States are found from the start of their rule on, so most is known after one turn from the last to the first. */
static bool spread(Check *check, bool *what, bool (*holds)(const Check *check, uint32_t state), Error *error)
{
    for (bool changed = true; changed;) {
        changed = false;
        if (!automaton_count_steps(check->automaton, check->automaton->n_states, error)) return false;
        for (uint32_t state = check->automaton->n_states; state-- > 0;)
            if (!what[state] && holds(check, state)) what[state] = changed = true;
    }
    return true;
}

static void drop_dead_edges(const Check *check)
{
    Automaton *automaton = check->automaton;
    uint32_t n_bytes = 0, n_calls = 0, n_tokens = 0;
    for (uint32_t state = 0; state < automaton->n_states; state++) {
        AutomatonState *at = &automaton->states[state];
        uint32_t first_byte = n_bytes, first_call = n_calls, first_token = n_tokens;
        for (uint32_t i = at[0].first_byte; i < at[1].first_byte; i++)
            if (check->ends[automaton->bytes[i].to]) automaton->bytes[n_bytes++] = automaton->bytes[i];
        for (uint32_t i = at[0].first_token; i < at[1].first_token; i++)
            if (check->ends[automaton->tokens[i].to]) automaton->tokens[n_tokens++] = automaton->tokens[i];
        for (uint32_t i = at[0].first_call; i < at[1].first_call; i++)
            if (check->ends[automaton->calls[i].to] && rule_has(check, check->ends, automaton->calls[i].value))
                automaton->calls[n_calls++] = automaton->calls[i];
        at->first_byte = first_byte;
        at->first_call = first_call;
        at->first_token = first_token;
    }
    automaton->states[automaton->n_states] =
        (AutomatonState){.first_byte = n_bytes, .first_call = n_calls, .first_token = n_tokens};
    automaton->n_bytes = n_bytes;
    automaton->n_calls = n_calls;
    automaton->n_tokens = n_tokens;
}

/* ---- left recursion ---- */

typedef struct Walk {
    const Check *check;
    uint32_t *stack; /* [n] states still to be looked at */
    uint32_t *seen;  /* [n_states] the last rule whose beginning it belongs to, + 1 */
    uint32_t n;
    uint32_t n_looked; /* edges */
} Walk;

static void reach(Walk *walk, uint32_t state, uint32_t mark)
{
    if (walk->seen[state] == mark) return;
    walk->seen[state] = mark;
    walk->stack[walk->n++] = state;
}

/*
 * Does a text of the rule begin with one of the rule? From its start on, over calls into the rules called, and over
 * those whose text may be empty.
 */
static bool begins_with_itself(Walk *walk, uint32_t rule)
{
    const Automaton *automaton = walk->check->automaton;
    uint32_t mark = rule + 1;
    reach(walk, automaton->starts[rule], mark);
    while (walk->n) {
        const AutomatonState *at = &automaton->states[walk->stack[--walk->n]];
        for (uint32_t i = at[0].first_call; i < at[1].first_call; i++) {
            const ValueEdge *call = &automaton->calls[i];
            walk->n_looked++;
            if (call->value == rule) return true;
            reach(walk, automaton->starts[call->value], mark);
            if (rule_has(walk->check, walk->check->is_empty, call->value)) reach(walk, call->to, mark);
        }
    }
    return false;
}

static bool check_recursion(const Check *check, const GrammarBuilder *builder, Error *error)
{
    Automaton *automaton = check->automaton;
    Walk walk = {.check = check};
    walk.stack = calloc(automaton->n_states, sizeof *walk.stack);
    walk.seen = calloc(automaton->n_states, sizeof *walk.seen);
    bool ok = walk.stack && walk.seen;
    if (!ok) (void)error_set(error, ERR_NO_MEMORY, "no memory to check a grammar");
    for (uint32_t rule = 0; ok && rule < automaton->n_rules; rule++) {
        if (automaton->starts[rule] == AUTOMATON_NO_STATE) continue;
        walk.n = walk.n_looked = 0;
        if (begins_with_itself(&walk, rule))
            ok = error_set(error, ERR_SCHEMA, "rule '%.60s' is left-recursive: it begins with itself",
                           builder->rules[rule].name);
        ok = ok && automaton_count_steps(automaton, walk.n_looked, error);
    }
    free(walk.stack);
    free(walk.seen);
    return ok;
}

bool automaton_check(Automaton *automaton, const GrammarBuilder *builder, GrammarRule root, Error *error)
{
    Check check = {.automaton = automaton};
    check.ends = calloc(automaton->n_states, sizeof *check.ends);
    check.is_empty = calloc(automaton->n_states, sizeof *check.is_empty);
    bool ok = check.ends && check.is_empty;
    if (!ok) (void)error_set(error, ERR_NO_MEMORY, "no memory to check a grammar");
    ok = ok && spread(&check, check.ends, state_ends, error) && spread(&check, check.is_empty, state_is_empty, error) &&
         check_recursion(&check, builder, error);
    if (ok && !rule_has(&check, check.ends, root))
        ok = error_set(error, ERR_SCHEMA, "no text ever ends by this grammar");
    for (uint32_t rule = 0; ok && rule < automaton->n_rules; rule++)
        automaton->may_be_empty[rule] =
            automaton->starts[rule] != AUTOMATON_NO_STATE && rule_has(&check, check.is_empty, rule);
    if (ok) drop_dead_edges(&check);
    free(check.ends);
    free(check.is_empty);
    return ok;
}
