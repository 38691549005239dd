/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars for tests: from GBNF, from a pattern, at random. Test code: aborts when it fails. One thread. */
#pragma once
#include "engine/sample/grammar/matcher.h"

typedef struct GrammarRig {
    GrammarBuilder *builder;
    GrammarNode root;
    Grammar *grammar;
} GrammarRig;

void grammar_rig_gbnf(GrammarRig *rig, const char *text, const GrammarVocab *vocab);
void grammar_rig_regex(GrammarRig *rig, const char *text, const GrammarVocab *vocab);
/* False: what came out is no grammar (left recursion, no text, too many states). */
bool grammar_rig_random(GrammarRig *rig, uint64_t *random, const GrammarVocab *vocab);
void grammar_rig_done(GrammarRig *rig);
GrammarMatcher *grammar_rig_matcher(GrammarRig *rig);
/* Is it a text of the grammar? */
bool grammar_rig_takes(GrammarRig *rig, const char *text);

uint64_t rig_random(uint64_t *random); /* the next of a stream that begins with any number */
