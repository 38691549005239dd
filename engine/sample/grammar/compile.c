/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/compiled.h"
#include "engine/sample/grammar/mask.h"

#include <stdlib.h>
#include <string.h>

static char *append(char *at, const char *text)
{
    size_t n = strlen(text) + 1;
    memcpy(at, text, n);
    return at + n;
}

static bool copy_notes(Grammar *grammar, const GrammarBuilder *builder, Error *error)
{
    size_t n_bytes = builder->n_notes * sizeof *grammar->notes;
    if (!n_bytes) return true;
    for (uint32_t i = 0; i < builder->n_notes; i++)
        n_bytes += strlen(builder->notes[i].what) + strlen(builder->notes[i].why) + 2;
    grammar->notes = malloc(n_bytes);
    if (!grammar->notes) return error_set(error, ERR_NO_MEMORY, "no memory for a grammar's notes");
    char *at = (char *)(grammar->notes + builder->n_notes);
    for (uint32_t i = 0; i < builder->n_notes; i++) {
        char *why = append(at, builder->notes[i].what);
        grammar->notes[i] = (GrammarNote){at, why};
        at = append(why, builder->notes[i].why);
    }
    grammar->n_notes = builder->n_notes;
    grammar->note_bytes = n_bytes;
    return true;
}

bool grammar_compile(GrammarBuilder *builder, GrammarNode root, const GrammarVocab *vocab, Grammar **ret_grammar,
                     Error *error)
{
    builder->place[0] = '\0';
    if (!grammar_is_sound(builder, error)) return false;
    GrammarRule rule = builder->nodes[root].a;
    if (builder->nodes[root].kind != NODE_RULE) {
        rule = grammar_rule_new(builder, "text");
        grammar_define(builder, rule, root);
        if (!grammar_is_sound(builder, error)) return false;
    }
    Grammar *grammar = calloc(1, sizeof *grammar);
    if (!grammar) return error_set(error, ERR_NO_MEMORY, "no memory for a grammar");
    atomic_init(&grammar->n_refs, 1);
    grammar->vocab = vocab;
    if (!automaton_make(&grammar->automaton, builder, rule, error)) {
        free(grammar);
        return false;
    }
    grammar->start = grammar->automaton.starts[rule];
    atomic_init(&grammar->run_bytes, 0);
    bool ok = copy_notes(grammar, builder, error) && run_init(&grammar->run, &grammar->automaton, vocab, error) &&
              (!vocab || mask_warm(&grammar->run, builder, error));
    if (!ok) {
        grammar_release(grammar);
        return false;
    }
    grammar_weigh(grammar);
    *ret_grammar = grammar;
    return true;
}

void grammar_weigh(Grammar *grammar)
{
    atomic_store_explicit(&grammar->run_bytes, run_size_bytes(&grammar->run), memory_order_relaxed);
}

Grammar *grammar_take(Grammar *grammar)
{
    atomic_fetch_add_explicit(&grammar->n_refs, 1, memory_order_relaxed);
    return grammar;
}

void grammar_release(Grammar *grammar)
{
    if (!grammar || atomic_fetch_sub_explicit(&grammar->n_refs, 1, memory_order_acq_rel) != 1) return;
    run_done(&grammar->run);
    automaton_done(&grammar->automaton);
    free(grammar->notes);
    free(grammar);
}

const GrammarVocab *grammar_vocab(const Grammar *grammar)
{
    return grammar->vocab;
}

const GrammarNote *grammar_notes(const Grammar *grammar, uint32_t *ret_n)
{
    *ret_n = grammar->n_notes;
    return grammar->notes;
}

size_t grammar_size_bytes(const Grammar *grammar)
{
    return sizeof *grammar + grammar->note_bytes + automaton_size_bytes(&grammar->automaton) +
           atomic_load_explicit(&grammar->run_bytes, memory_order_relaxed);
}

uint32_t grammar_n_states(const Grammar *grammar)
{
    return grammar->automaton.n_states;
}
