/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a grammar's nodes say of a text, found by trying: slow and plain, the definition of correct for automata and
 * masks. Texts of up to 62 bytes; token nodes have none. Test code: aborts when memory is out. One thread.
 */
#pragma once
#include "engine/sample/grammar/grammar.h"

typedef struct GrammarTwin GrammarTwin;

/* The builder is borrowed and must not change any more. */
GrammarTwin *grammar_twin_new(const GrammarBuilder *builder, GrammarNode root);
void grammar_twin_free(GrammarTwin *twin);
/* *ret_whole: the text is one of the grammar; returns whether it is one or the beginning of a longer one. */
bool grammar_twin_takes(GrammarTwin *twin, const uint8_t *text, size_t n, bool *ret_whole);
