/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of all tokens as one trie in preorder, made once for a model: masks are walks over it. Control tokens and
 * tokens without bytes are not in it. Immutable; any thread.
 */
#pragma once
#include "engine/text/tokenizer.h"

typedef struct GrammarVocab GrammarVocab;

/* What it is made of: pieces of n_vocab tokens, NULL or 0 bytes where a token has none that a text could hold. */
typedef struct GrammarPieces {
    uint32_t n_vocab;
    const uint8_t *bytes; /* of all tokens, one behind the other */
    const size_t *first;  /* [n_vocab + 1] */
} GrammarPieces;

LW_CHECK bool grammar_vocab_new(const GrammarPieces *pieces, GrammarVocab **ret_vocab, Error *error);
LW_CHECK bool grammar_vocab_of(const Tokenizer *tokenizer, GrammarVocab **ret_vocab, Error *error);
void grammar_vocab_free(GrammarVocab *vocab); /* NULL is fine; after all grammars made for it */
uint32_t grammar_vocab_size(const GrammarVocab *vocab);
/* The bytes that a text gets from this token; none of control tokens. */
const uint8_t *grammar_vocab_piece(const GrammarVocab *vocab, uint32_t id, size_t *ret_n);
