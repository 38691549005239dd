/* SPDX-License-Identifier: Apache-2.0 */
/* The trie itself, for the walks of mask.c. */
#pragma once
#include "engine/sample/grammar/automaton.h"
#include "engine/sample/grammar/vocab.h"

typedef struct TrieNode {
    uint32_t after;       /* the first node that is not below this one */
    uint32_t first_token; /* its tokens end where those of the next node begin */
    uint16_t depth;       /* bytes of its text, 0: the root */
    uint8_t byte;         /* the last of them */
} TrieNode;

struct GrammarVocab {
    uint32_t n_vocab, n_words; /* words of a mask */
    TrieNode *nodes;           /* [n_nodes] in preorder, and one more, where all tokens end */
    uint32_t *tokens;          /* ids in the order of their nodes */
    uint32_t n_nodes, n_tokens, max_depth;
    uint32_t *long_tokens; /* [n_long] ids of more than AUTOMATON_ALIKE_BYTES bytes */
    uint32_t n_long;
    uint8_t *bytes; /* pieces, one behind the other */
    size_t *first;  /* [n_vocab + 1] */
};
