/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random texts of a grammar, token by token as a model writes them: some tokens are likely and most are not, and after
 * a while what ends is. One thread at a time.
 */
#pragma once
#include "base/buffer.h"
#include "engine/sample/grammar/matcher.h"
#include "engine/sample/grammar/vocab.h"

typedef struct GrammarWalk {
    const GrammarVocab *vocab;
    uint64_t seed;
    float *weights, *hurry; /* [n_vocab]; hurry: a factor */
    const char **likely;    /* [n_likely] texts that are tried as a whole when it hurries; borrowed */
    size_t n_likely;
} GrammarWalk;

/* Each byte is a token; 0 has no text. For grammar_vocab_free. */
LW_CHECK bool grammar_walk_bytes(GrammarVocab **ret_vocab, Error *error);
LW_CHECK bool grammar_walk_init(GrammarWalk *walk, const GrammarVocab *vocab, Error *error);
void grammar_walk_done(GrammarWalk *walk);
uint64_t grammar_walk_random(GrammarWalk *walk);
/*
 * One text with new weights, in text; *ret_ended: it came to its end in time. An error is a fault of the grammar: it
 * allows a token that it refuses, or none at all.
 */
LW_CHECK bool grammar_walk(GrammarWalk *walk, Grammar *grammar, Buffer *text, bool *ret_ended, Error *error);
