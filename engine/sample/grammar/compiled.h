/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a compiled grammar. Private to engine/sample/grammar. */
#pragma once
#include "engine/sample/grammar/run.h"
#include <stdatomic.h>

struct Grammar {
    atomic_uint n_refs;
    Automaton automaton;
    const GrammarVocab *vocab;
    uint32_t start;          /* the state where a text begins */
    Run run;                 /* whose matchers run: theirs, one thread's at a time */
    atomic_size_t run_bytes; /* as that thread found it last */
    GrammarNote *notes;      /* [n_notes], and behind them their texts */
    uint32_t n_notes;
    size_t note_bytes;
};

/* What its run has come to; by the thread whose matchers run. */
void grammar_weigh(Grammar *grammar);
