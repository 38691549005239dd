/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens that may come next at a spot. One that few tokens can follow is walked through the trie at once. For others,
 * the tokens that the top of a stack decides alone are found once and kept; those that go beyond it are walked to their
 * end from where they leave it. How much of a stack is its top is found by trying: more, until few tokens leave it.
 * States that are alike share what was found for tokens of AUTOMATON_ALIKE_BYTES; the few longer ones are tried.
 * Private to engine/sample/grammar.
 */
#pragma once
#include "engine/sample/grammar/run.h"

enum {
    MASK_LIGHT_NODES = 2000,  /* of the trie that a light walk visits at most */
    MASK_MAX_EXITS = 4096,    /* nodes at which tokens leave the top of a stack */
    MASK_MAX_BELOW = 8192,    /* nodes that are visited below them */
    MASK_MAX_TOP = 8,         /* states of a top; more is the whole stack */
    MASK_MAX_WORK = 4 << 20,  /* for one mask: Masks.work */
    MASK_WARM_WORK = 6 << 20, /* ahead of time */
};

/*
 * Bits of the tokens that may follow, until the next call; *ret_n: how many. ERR_TOO_LARGE: the grammar has so many
 * ways there that the mask would take too long.
 */
LW_CHECK bool mask_of(Run *run, uint32_t spot, const uint64_t **ret_words, uint32_t *ret_n, Error *error);
/* What takes long, as far as it can be known without a text; builder: knows when to give up. */
LW_CHECK bool mask_warm(Run *run, const GrammarBuilder *builder, Error *error);
