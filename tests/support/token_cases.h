/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers for tests, and the recorded cases of tests/golden/tokens.json. Test code: aborts when it fails. One
 * thread. */
#pragma once
#include "engine/text/tokenizer.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/golden.h"

/* A vocabulary to load; NULL or 0 where a key shall be absent. */
typedef struct VocabSpec {
    const char *model; /* NULL: gpt2 */
    const char *pre;
    const char *const *tokens; /* [n_tokens] */
    const int32_t *types;      /* [n_types] */
    const char *const *merges; /* [n_merges] */
    const float *scores;       /* [n_scores] */
    size_t n_tokens, n_types, n_merges, n_scores;
    void (*more)(GgufWriter *writer); /* further keys; NULL: bos_token_id 1 and eos_token_id 2 */
} VocabSpec;

/* A tokenizer with the file it lives in. */
typedef struct TestTokenizer {
    Tokenizer *tokenizer; /* NULL when loading failed */
    Error error;
    Gguf *gguf;
    Buffer file;
} TestTokenizer;

/* Appends a token text in the way byte-level BPE writes bytes; room for 2 * n + 1. */
void written_text(const uint8_t *bytes, size_t n, char *out);

TestTokenizer test_tokenizer_open(const VocabSpec *spec);
/* The vocabulary "small" of the golden file. */
TestTokenizer test_tokenizer_small(const cJSON *golden, const char *pre);
/* The vocabulary "small" of tokens_spm.json, with further keys. */
TestTokenizer test_tokenizer_small_spm(const cJSON *golden, void (*more)(GgufWriter *writer));
/* The vocabulary of a model file with another pre-tokenizer. */
TestTokenizer test_tokenizer_file(const char *path, const char *pre);
void test_tokenizer_done(TestTokenizer *test);

/* "text" or "hex" of a case, for free(). */
uint8_t *case_bytes(const cJSON *item, size_t *ret_n);
uint8_t *hex_bytes(const char *hex, size_t *ret_n);
/* What a decoder shows of bytes [n], malloc'ed: NUL and dead bytes are U+FFFD. */
char *shown_text(const uint8_t *bytes, size_t n, size_t *ret_n);
