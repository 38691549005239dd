/* SPDX-License-Identifier: Apache-2.0 */
/* A memory of tokens on the tokenizer of tiny models, and prompts with answers in them. Asserts with Criterion. */
#pragma once
#include "engine/text/token_memory.h"

enum { TOKEN_RIG_MAX_IDS = 4096 };

/* The tokenizer of tiny models and a memory. */
typedef struct TokenRig {
    Buffer file;
    Gguf *gguf;
    Tokenizer *tokenizer;
    TokenMemory *memory;
} TokenRig;

TokenRig token_rig_new(size_t max_bytes, size_t max_entry_bytes);
void token_rig_free(TokenRig *rig);
/* Each byte on its own: seldom what the tokenizer would make of the text. ids: [bytes of the text] */
uint32_t token_byte_ids(const char *text, uint32_t *ids);

/* A text in which what is between [ and ] is an answer, and what is between < and > trusted. */
typedef struct TokenPrompt {
    char text[2000];
    TextRange answers[50], trusted[100];
    TokenRecall recall;
} TokenPrompt;

void token_prompt_init(TokenPrompt *prompt, const char *marked);
TokenList token_encode(const TokenRig *rig, const TokenPrompt *prompt, bool remembers);
TokenList token_encode_text(const TokenRig *rig, const char *marked, bool remembers);
/* Ends both. */
void token_expect_same(TokenList *got, TokenList *wanted, const char *what);
/* A prompt was answered with this text, byte by byte, and an end token. */
void token_answer(const TokenRig *rig, const char *prompt, const char *text);
/* The ids of a text's pieces, joined; a piece that begins with ~ byte by byte. */
TokenList token_pieces(const TokenRig *rig, const char *const *texts, size_t n);
#define PIECES(rig, ...)                                                                                               \
    token_pieces(rig, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))
