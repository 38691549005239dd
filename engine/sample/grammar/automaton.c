/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/automaton.h"

#include <stdlib.h>

bool automaton_count_steps(Automaton *automaton, uint64_t n, Error *error)
{
    enum { LOOK_STEPS = 1 << 14 };
    bool looks_up = automaton->n_steps / LOOK_STEPS != (automaton->n_steps + n) / LOOK_STEPS;
    automaton->n_steps += n;
    if (automaton->n_steps <= GRAMMAR_MAX_STEPS) return !looks_up || grammar_in_time(automaton->builder, error);
    return error_set(error, ERR_TOO_LARGE, "compiling takes more than %d steps", GRAMMAR_MAX_STEPS);
}

bool automaton_is_bare(const Automaton *automaton, uint32_t state)
{
    const AutomatonState *at = &automaton->states[state];
    return at->is_final && at[0].first_byte == at[1].first_byte && at[0].first_call == at[1].first_call &&
           at[0].first_token == at[1].first_token;
}

/* Rules that are called and not yet made go behind todo [*n]. */
static void find_calls(const Automaton *automaton, uint32_t first_call, bool *is_listed, uint32_t *todo, uint32_t *n)
{
    for (uint32_t i = first_call; i < automaton->n_calls; i++) {
        uint32_t rule = automaton->calls[i].value;
        if (is_listed[rule]) continue;
        is_listed[rule] = true;
        todo[(*n)++] = rule;
    }
}

static bool make_rule(Automaton *automaton, const GrammarBuilder *builder, Nfa *nfa, GrammarRule id, bool is_root,
                      Error *error)
{
    const Rule *rule = &builder->rules[id];
    uint32_t start, end, first = automaton->n_states;
    if (rule->node == GRAMMAR_FAILED)
        return error_set(error, ERR_SCHEMA, "rule '%.60s' is used but not defined", rule->name);
    if (!nfa_build(nfa, rule->node, &start, &end, error) ||
        !automaton_add_rule(automaton, nfa, start, end, &automaton->starts[id], error))
        return is_root ? false : error_prefix(error, "rule '%.60s'", rule->name);
    uint32_t *rule_of = realloc(automaton->rule_of, automaton->n_states * sizeof *rule_of);
    if (!rule_of) return error_set(error, ERR_NO_MEMORY, "no memory for the automaton of a grammar");
    automaton->rule_of = rule_of;
    for (uint32_t i = first; i < automaton->n_states; i++) rule_of[i] = id;
    return true;
}

/* Bytes between two neighbouring limits of edges are the same to the whole grammar. */
static void find_classes(Automaton *automaton)
{
    bool begins[257] = {false};
    for (uint32_t i = 0; i < automaton->n_bytes; i++)
        begins[automaton->bytes[i].first] = begins[automaton->bytes[i].last + 1] = true;
    automaton->n_classes = 1;
    for (uint32_t byte = 0; byte < 256; byte++) {
        if (byte && begins[byte]) automaton->n_classes++;
        automaton->class_of[byte] = automaton->n_classes - 1;
    }
}

bool automaton_make(Automaton *automaton, const GrammarBuilder *builder, GrammarRule root, Error *error)
{
    Automaton made = {.n_rules = builder->n_rules, .builder = builder};
    Nfa nfa = {.builder = builder};
    uint32_t *todo = calloc(builder->n_rules, sizeof *todo), n_todo = 1;
    bool *is_listed = calloc(builder->n_rules, sizeof *is_listed);
    made.starts = malloc(builder->n_rules * sizeof *made.starts);
    made.may_be_empty = calloc(builder->n_rules, sizeof *made.may_be_empty);
    bool ok = todo && is_listed && made.starts && made.may_be_empty;
    if (!ok) (void)error_set(error, ERR_NO_MEMORY, "no memory for %u rules", builder->n_rules);
    for (uint32_t i = 0; ok && i < builder->n_rules; i++) made.starts[i] = AUTOMATON_NO_STATE;
    if (ok) {
        todo[0] = root;
        is_listed[root] = true;
    }
    for (uint32_t i = 0; ok && i < n_todo; i++) {
        uint32_t first_call = made.n_calls;
        ok = make_rule(&made, builder, &nfa, todo[i], i == 0, error);
        if (ok) find_calls(&made, first_call, is_listed, todo, &n_todo);
    }
    ok = ok && automaton_check(&made, builder, root, error) && automaton_find_alike(&made, error);
    nfa_done(&nfa);
    free(todo);
    free(is_listed);
    if (!ok) {
        automaton_done(&made);
        return false;
    }
    find_classes(&made);
    made.builder = NULL;
    *automaton = made;
    return true;
}

void automaton_done(Automaton *automaton)
{
    free(automaton->states);
    free(automaton->bytes);
    free(automaton->calls);
    free(automaton->tokens);
    free(automaton->starts);
    free(automaton->rule_of);
    free(automaton->may_be_empty);
    free(automaton->alike);
    *automaton = (Automaton){0};
}

size_t automaton_size_bytes(const Automaton *automaton)
{
    return automaton->max_states * (sizeof *automaton->states + sizeof *automaton->rule_of + sizeof *automaton->alike) +
           automaton->max_bytes * sizeof *automaton->bytes +
           (automaton->max_calls + automaton->max_tokens) * sizeof *automaton->calls +
           automaton->n_rules * sizeof *automaton->starts;
}
