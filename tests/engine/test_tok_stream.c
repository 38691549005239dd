/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"
#include "tests/support/token_cases.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { N_BYTES = 256, MAX_TOKENS = 8192, MAX_WRITTEN = 32 };

/* The 256 bytes (token id = byte), then whatever pieces a test wants. */
typedef struct PieceVocab {
    char texts[MAX_TOKENS][MAX_WRITTEN];
    const char *tokens[MAX_TOKENS];
    size_t n;
} PieceVocab;

static uint32_t add_piece(PieceVocab *vocab, const uint8_t *bytes, size_t n)
{
    char text[MAX_WRITTEN];
    cr_assert_lt(2 * n, sizeof text);
    written_text(bytes, n, text);
    for (size_t i = 0; i < vocab->n; i++)
        if (!strcmp(vocab->texts[i], text)) return (uint32_t)i;
    cr_assert_lt(vocab->n, (size_t)MAX_TOKENS);
    strcpy(vocab->texts[vocab->n], text);
    vocab->tokens[vocab->n] = vocab->texts[vocab->n];
    return (uint32_t)vocab->n++;
}

static PieceVocab *new_vocab(void)
{
    PieceVocab *vocab = calloc(1, sizeof *vocab);
    cr_assert_not_null(vocab);
    for (unsigned byte = 0; byte < N_BYTES; byte++) {
        uint8_t bytes[1] = {(uint8_t)byte};
        add_piece(vocab, bytes, 1);
    }
    return vocab;
}

static TestTokenizer open_vocab(const PieceVocab *vocab)
{
    const char *merges[] = {"a b"};
    const char *ab = "ab";
    const char *tokens[MAX_TOKENS + 1];
    memcpy(tokens, vocab->tokens, sizeof vocab->tokens);
    size_t n = vocab->n;
    bool there = false;
    for (size_t i = 0; i < n; i++) there |= !strcmp(tokens[i], ab);
    if (!there) tokens[n++] = ab;
    TestTokenizer test = test_tokenizer_open(
        &(VocabSpec){.pre = "gpt-2", .tokens = tokens, .n_tokens = n, .merges = merges, .n_merges = 1});
    cr_assert_not_null(test.tokenizer, "%s", test.error.text);
    return test;
}

/* Joins what each token gives; each delta must be whole code points. */
static void stream_all(const Tokenizer *tokenizer, const uint32_t *ids, size_t n, Buffer *joined)
{
    TokStream stream = {0};
    Error error;
    for (size_t i = 0; i <= n; i++) {
        size_t before = joined->n;
        bool ok = i < n ? tok_stream_push(&stream, tokenizer, ids[i], true, joined, &error)
                        : tok_stream_flush(&stream, joined, &error);
        cr_assert(ok, "%s", error.text);
        if (joined->n > before)
            cr_assert(utf8_valid((uint8_t *)joined->data + before, joined->n - before), "token %zu", i);
    }
    cr_assert_eq(stream.n_pending, 0);
}

static void check_stream(const Tokenizer *tokenizer, const uint32_t *ids, size_t n, const uint8_t *expected,
                         size_t expected_n, int row)
{
    Buffer joined;
    buffer_init(&joined, 4096);
    stream_all(tokenizer, ids, n, &joined);
    cr_assert_eq(joined.n, expected_n, "row %d", row);
    cr_assert(!memcmp(joined.data, expected, expected_n), "row %d", row);
    buffer_done(&joined);
}

/* The recorded bytes in one token, byte by byte, and cut in two and in three at every place. */
Test(tok_stream, every_split_decodes_as_python_does)
{
    cJSON *golden = golden_load("tokens.json");
    const cJSON *table = cJSON_GetObjectItem(golden, "replaced"), *item;
    PieceVocab *vocab = new_vocab();
    for (int pass = 0; pass < 2; pass++) { /* first collect the pieces, then decode with them */
        TestTokenizer test = {0};
        if (pass) test = open_vocab(vocab);
        int row = 0;
        cJSON_ArrayForEach(item, table)
        {
            size_t n, expected_n;
            uint8_t *bytes = hex_bytes(cJSON_GetArrayItem(item, 0)->valuestring, &n);
            uint8_t *expected = hex_bytes(cJSON_GetArrayItem(item, 1)->valuestring, &expected_n);
            uint32_t ids[16];
            for (size_t i = 0; i < n; i++) ids[i] = bytes[i];
            if (pass) check_stream(test.tokenizer, ids, n, expected, expected_n, row);
            for (size_t a = 1; a <= n; a++) {
                for (size_t b = a; b <= n; b++) {
                    size_t count = 0;
                    ids[count++] = add_piece(vocab, bytes, a);
                    if (b > a) ids[count++] = add_piece(vocab, bytes + a, b - a);
                    if (n > b) ids[count++] = add_piece(vocab, bytes + b, n - b);
                    if (pass) check_stream(test.tokenizer, ids, count, expected, expected_n, row);
                }
            }
            free(bytes);
            free(expected);
            row++;
        }
        cr_assert_gt(row, 200);
        test_tokenizer_done(&test);
    }
    free(vocab);
    cJSON_Delete(golden);
}

/* Any ids in any order: the joined deltas equal one decode of all bytes at once. */
Test(tok_stream, random_tokens_join_to_one_decode)
{
    cJSON *golden = golden_load("tokens.json");
    TestTokenizer test = test_tokenizer_small(golden, "smollm");
    cr_assert_not_null(test.tokenizer, "%s", test.error.text);
    uint32_t state = 12345, n_vocab = tok_n_vocab(test.tokenizer);
    for (int round = 0; round < 200; round++) {
        uint32_t ids[100];
        Buffer pieces, joined;
        Error error;
        buffer_init(&pieces, 1 << 16);
        buffer_init(&joined, 1 << 16);
        for (size_t i = 0; i < 100; i++) {
            state = state * 1664525 + 1013904223;
            /* Half of them bytes, which make more broken code points than whole pieces do. */
            ids[i] = state >> 31 ? (state >> 8) % n_vocab : 3 + (state >> 8) % 256;
            cr_assert(tok_piece(test.tokenizer, ids[i], true, &pieces, &error));
        }
        stream_all(test.tokenizer, ids, 100, &joined);
        size_t n;
        char *whole = shown_text((uint8_t *)pieces.data, pieces.n, &n);
        cr_assert_eq(joined.n, n, "round %d", round);
        cr_assert(!memcmp(joined.data, whole, n), "round %d", round);
        free(whole);
        buffer_done(&pieces);
        buffer_done(&joined);
    }
    test_tokenizer_done(&test);
    cJSON_Delete(golden);
}

Test(tok_stream, a_full_buffer_changes_nothing)
{
    PieceVocab *vocab = new_vocab();
    TestTokenizer test = open_vocab(vocab);
    TokStream stream = {0};
    Buffer out;
    Error error;
    buffer_init(&out, 2);
    cr_assert(tok_stream_push(&stream, test.tokenizer, 0xE2, true, &out, &error));
    cr_assert_eq(stream.n_pending, 1);
    cr_assert(!tok_stream_push(&stream, test.tokenizer, 'a', true, &out, &error)); /* U+FFFD and a: 4 bytes */
    cr_assert_eq(error.code, ERR_TOO_LARGE);
    cr_assert_eq(stream.n_pending, 1);
    cr_assert_eq(stream.pending[0], 0xE2);
    cr_assert_eq(out.n, 0);
    cr_assert(!tok_stream_flush(&stream, &out, &error));
    cr_assert_eq(stream.n_pending, 1);
    cr_assert(!tok_stream_push(&stream, test.tokenizer, tok_n_vocab(test.tokenizer), true, &out, &error));
    cr_assert_eq(error.code, ERR_INVALID);
    buffer_done(&out);
    test_tokenizer_done(&test);
    free(vocab);
}

Test(tok_stream, long_tokens)
{
    PieceVocab *vocab = new_vocab();
    char *text = calloc(1, 4001);
    cr_assert_not_null(text);
    memset(text, 'z', 4000);
    const char *tokens[N_BYTES + 2], *merges[] = {"a b"};
    memcpy(tokens, vocab->tokens, N_BYTES * sizeof *tokens);
    tokens[N_BYTES] = "ab";
    tokens[N_BYTES + 1] = text;
    TestTokenizer test = test_tokenizer_open(
        &(VocabSpec){.pre = "gpt-2", .tokens = tokens, .n_tokens = N_BYTES + 2, .merges = merges, .n_merges = 1});
    cr_assert_not_null(test.tokenizer, "%s", test.error.text);
    Buffer out;
    buffer_init(&out, 1 << 16);
    uint32_t ids[] = {0xC3, 0xA9, N_BYTES + 1, 0xC3, N_BYTES + 1};
    stream_all(test.tokenizer, ids, 5, &out);
    cr_assert_eq(out.n, 2 + 4000 + 3 + 4000);
    buffer_done(&out);
    test_tokenizer_done(&test);
    free(text);
    free(vocab);
}
