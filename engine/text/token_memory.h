/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The token ids that answers were made of, by the tokens before them. A model need not emit the ids that its text is
 * tokenized to; when a conversation comes back, its answers get the remembered ids again, so that it begins as it did.
 * An answer with reasoning or calls of tools is a turn: it is known by the text before it, and compared with what the
 * template shows behind that. Notes are texts by a hash that the caller makes. Bounded: what was not used longest is
 * forgotten. Any thread.
 */
#pragma once
#include "engine/text/tokenizer.h"

typedef struct TokenMemory TokenMemory;

typedef struct TokenMemoryParams {
    const Tokenizer *tokenizer; /* borrowed */
    size_t max_bytes;           /* of all entries */
    size_t max_entry_bytes;     /* of one; longer answers are not remembered */
    const uint32_t *marks;      /* [n_marks] control tokens that turns may hold: templates show their text; borrowed */
    uint32_t n_marks;
} TokenMemoryParams;

LW_CHECK bool token_memory_new(const TokenMemoryParams *params, TokenMemory **ret_memory, Error *error);
void token_memory_free(TokenMemory *memory); /* NULL is fine */

/* What an answer follows, as a number: a salt (salt [n_salt], conversations of which do not mix) and ids [n]. */
typedef struct TokenContext {
    const char *salt; /* may be NULL when n_salt is 0 */
    size_t n_salt;
} TokenContext;
uint64_t token_memory_hash(const TokenMemory *memory, const TokenContext *context, const uint32_t *ids, size_t n);

/*
 * text [n_bytes] was answered with ids [n_ids]; ids beyond the text (an end token, what a stop string cut off) are not
 * kept. Ids that do not show as this text, or that stand for no text, are not remembered; nor is anything when memory
 * is out.
 */
void token_memory_keep(TokenMemory *memory, uint64_t context_hash, const char *text, size_t n_bytes,
                       const uint32_t *ids, size_t n_ids);

/* The same of the text (text [n]) before a turn. */
uint64_t token_memory_text_hash(const TokenMemory *memory, const TokenContext *context, const char *text, size_t n);
typedef struct TokenTurn {
    uint64_t context_hash, text_hash; /* of the prompt before it */
    uint64_t answer_hash;             /* of the conversation up to it: whatever the caller makes of that */
} TokenTurn;
/* The turn had the ids [n_ids]; those from the first one on that stands for no text are not kept. */
void token_memory_keep_turn(TokenMemory *memory, const TokenTurn *turn, const uint32_t *ids, size_t n_ids);

/* The hash of what went before and of bytes [n]. */
uint64_t token_memory_mix(uint64_t hash, const void *bytes, size_t n);
uint64_t token_memory_begin(const TokenMemory *memory, const TokenContext *context);
void token_memory_keep_note(TokenMemory *memory, uint64_t hash, const char *text, size_t n_bytes);
/* Appends the newest note of this hash; *ret_found: there is one. */
LW_CHECK bool token_memory_note(TokenMemory *memory, uint64_t hash, Buffer *out, bool *ret_found, Error *error);

/*
 * tok_encode, with the remembered ids for each of the answers [n_answers] (ranges of the text, sorted, disjoint) that
 * is known in its place. An answer whose end was stripped of blanks counts too, up to a token that ends within. So do
 * turns, as far as the text shows them.
 */
typedef struct TokenRecall {
    TokenContext context;
    TokEncode encode; /* known is set here */
    const TextRange *answers;
    size_t n_answers;
    const uint64_t *turns; /* [n_turns] answer hashes of the conversation's turns: these may differ in blanks */
    size_t n_turns;
} TokenRecall;
LW_CHECK bool token_memory_encode(TokenMemory *memory, const TokenRecall *recall, TokenList *list, Error *error);

typedef struct TokenMemoryStats {
    size_t n_entries, n_bytes;
    uint64_t recalled_tokens;
} TokenMemoryStats;
TokenMemoryStats token_memory_stats(TokenMemory *memory);
