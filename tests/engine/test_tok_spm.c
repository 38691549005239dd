/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece vocabularies: ids equal llama.cpp's (tests/golden/make_tokens_spm.py), cruel texts, broken files. */
#include "tests/support/token_cases.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static Error error;

static void plain_keys(GgufWriter *writer)
{
    gguf_writer_u32(writer, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_u32(writer, "tokenizer.ggml.eos_token_id", 2);
    gguf_writer_u32(writer, "tokenizer.ggml.unknown_token_id", 0);
    gguf_writer_bool(writer, "tokenizer.ggml.add_space_prefix", false);
}

static void blank_keys(GgufWriter *writer)
{
    gguf_writer_u32(writer, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_u32(writer, "tokenizer.ggml.eos_token_id", 2);
    gguf_writer_u32(writer, "tokenizer.ggml.unknown_token_id", 0);
}

static TokenList encode(const Tokenizer *tokenizer, const void *text, size_t n, bool trusted, bool special)
{
    TokenList list = {0};
    TextRange all = {0, n};
    TokEncode in = {.text = text, .n = n, .trusted = &all, .n_trusted = trusted, .add_special = special};
    cr_assert(tok_encode(tokenizer, &in, &list, &error), "%s", error.text);
    return list;
}

static void check_ids(const TokenList *list, const cJSON *expected, const char *what, int number)
{
    size_t i = 0;
    const cJSON *item;
    cr_assert_eq(list->n, (size_t)cJSON_GetArraySize(expected), "%s, case %d: %zu tokens", what, number, list->n);
    cJSON_ArrayForEach(item, expected)
    {
        cr_assert_eq(list->ids[i], (uint32_t)item->valueint, "%s, case %d, token %zu: %u", what, number, i,
                     list->ids[i]);
        i++;
    }
}

static Buffer decode(const Tokenizer *tokenizer, const TokenList *list)
{
    Buffer out;
    TokStream stream = {0};
    buffer_init(&out, 1 << 24);
    for (size_t i = 0; i < list->n; i++)
        cr_assert(tok_stream_push(&stream, tokenizer, list->ids[i], true, &out, &error), "%s", error.text);
    cr_assert(tok_stream_flush(&stream, &out, &error));
    return out;
}

/* Decoding gives the text back, with NUL, dead bytes and U+2581 replaced; 'blanks' were put before texts. */
static void check_text(const Tokenizer *tokenizer, const TokenList *list, const uint8_t *text, size_t n, size_t blanks)
{
    size_t want_n;
    char *want = shown_text(text, n, &want_n);
    if (memmem(want, want_n, "\xE2\x96\x81", 3) == NULL) {
        Buffer got = decode(tokenizer, list);
        cr_assert_geq(got.n, want_n);
        cr_assert(blanks || got.n == want_n, "%zu bytes, not %zu", got.n, want_n);
        cr_assert(blanks || !want_n || !memcmp(got.data, want, want_n));
        buffer_done(&got);
    }
    free(want);
}

static void check_vocabulary(const TestTokenizer *test, const cJSON *golden, const char *name, bool blanks)
{
    cr_assert_not_null(test->tokenizer, "%s", test->error.text);
    int number = 0, checked = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(golden, "cases"))
    {
        size_t n;
        uint8_t *text = case_bytes(item, &n);
        TokenList list = encode(test->tokenizer, text, n, false, false);
        const cJSON *expected = cJSON_GetObjectItem(item, name);
        if (expected) check_ids(&list, expected, name, number);
        for (size_t i = 0; i < list.n; i++) cr_assert(!tok_is_special(test->tokenizer, list.ids[i]), "case %d", number);
        check_text(test->tokenizer, &list, text, n, blanks);
        checked += expected != NULL;
        number++;
        token_list_done(&list);
        free(text);
    }
    cr_assert_gt(checked, 200);
    number = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(golden, "trusted"))
    {
        size_t n;
        uint8_t *text = case_bytes(item, &n);
        TokenList list = encode(test->tokenizer, text, n, true, false);
        check_ids(&list, cJSON_GetObjectItem(item, name), "trusted", number++);
        token_list_done(&list);
        free(text);
    }
    cr_assert_gt(number, 5);
}

Test(test_tok_spm, small_vocabulary)
{
    cJSON *golden = golden_load("tokens_spm.json");
    TestTokenizer test = test_tokenizer_small_spm(golden, plain_keys);
    check_vocabulary(&test, golden, "small", false);
    test_tokenizer_done(&test);
    cJSON_Delete(golden);
}

Test(test_tok_spm, small_vocabulary_with_a_blank_before)
{
    cJSON *golden = golden_load("tokens_spm.json");
    TestTokenizer test = test_tokenizer_small_spm(golden, blank_keys);
    check_vocabulary(&test, golden, "small_blank", true);
    cr_assert(tok_adds_bos(test.tokenizer));
    TokenList list = encode(test.tokenizer, "", 0, false, true);
    cr_assert(list.n == 1 && list.ids[0] == 1);
    token_list_done(&list);
    list = encode(test.tokenizer, "<s>", 3, true, true);
    cr_assert(list.n == 1 && list.ids[0] == 1, "one BOS, never two");
    token_list_done(&list);
    test_tokenizer_done(&test);
    cJSON_Delete(golden);
}

Test(test_tok_spm, gemma)
{
    const char *path = test_gemma_path();
    if (!path) cr_skip("LONGWAVE_TEST_GEMMA is not set");
    cJSON *golden = golden_load("tokens_spm.json");
    TestTokenizer test = {0};
    cr_assert(gguf_open(path, &test.gguf, &error), "%s", error.text);
    cr_assert(tok_new(test.gguf, &test.tokenizer, &error), "%s", error.text);
    check_vocabulary(&test, golden, "gemma", false);
    cr_assert(tok_adds_bos(test.tokenizer) && tok_bos(test.tokenizer) == 2 && tok_is_end(test.tokenizer, 106));
    test_tokenizer_done(&test);
    cJSON_Delete(golden);
}

/* ---- small vocabularies of one idea each ---- */

static const char *const letters[] = {"<unk>",
                                      "<s>",
                                      "</s>",
                                      "a",
                                      "b",
                                      "ab",
                                      "ba",
                                      "aa",
                                      "\xE2\x96\x81",
                                      "\xE2\x96\x81"
                                      "a"};
static const int32_t letter_types[] = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1};
static const float letter_scores[] = {0, 0, 0, -9, -9, -1, -0.5f, -1, -9, -0.0f};
enum { N_LETTERS = sizeof letters / sizeof *letters };

static VocabSpec letters_spec(void)
{
    return (VocabSpec){.model = "llama",
                       .tokens = letters,
                       .types = letter_types,
                       .scores = letter_scores,
                       .n_tokens = N_LETTERS,
                       .n_types = N_LETTERS,
                       .n_scores = N_LETTERS,
                       .more = plain_keys};
}

static void check_letters(const VocabSpec *spec, const char *text, const uint32_t *ids, size_t n)
{
    TestTokenizer test = test_tokenizer_open(spec);
    cr_assert_not_null(test.tokenizer, "%s", test.error.text);
    TokenList list = encode(test.tokenizer, text, strlen(text), false, false);
    cr_assert_eq(list.n, n, "%s: %zu tokens", text, list.n);
    for (size_t i = 0; i < n; i++) cr_assert_eq(list.ids[i], ids[i], "%s: token %zu is %u", text, i, list.ids[i]);
    token_list_done(&list);
    test_tokenizer_done(&test);
}

Test(test_tok_spm, scores_then_the_left)
{
    VocabSpec spec = letters_spec();
    check_letters(&spec, "aba", (uint32_t[]){3, 6}, 2); /* ba before ab */
    check_letters(&spec, "aaa", (uint32_t[]){7, 3}, 2); /* the left of equals */
    check_letters(&spec, "aab", (uint32_t[]){7, 4}, 2); /* aa and ab are equal */
    check_letters(&spec, "a a", (uint32_t[]){3, 9}, 2);
    check_letters(&spec, "  a", (uint32_t[]){8, 9}, 2);
}

/* Without byte tokens a character is one unknown token, however many bytes it has. */
Test(test_tok_spm, unknown_characters)
{
    VocabSpec spec = letters_spec();
    check_letters(&spec,
                  "a\xC3\xA9\xF0\x9F\x98\x8A"
                  "b",
                  (uint32_t[]){3, 0, 0, 4}, 4);
}

static char *repeated(const char *unit, size_t n, size_t *ret_n)
{
    size_t length = strlen(unit);
    char *text = malloc(n * length);
    cr_assert_not_null(text);
    for (size_t i = 0; i < n; i++) memcpy(text + i * length, unit, length);
    *ret_n = n * length;
    return text;
}

/* Quadratic work on a megabyte would take hours. */
Test(test_tok_spm, long_runs_take_no_quadratic_time)
{
    static const char *const units[] = {"a", "ab", " ", "a ", "\xF0\x9F\x98\x8A", ">"};
    cJSON *golden = golden_load("tokens_spm.json");
    TestTokenizer test = test_tokenizer_small_spm(golden, plain_keys);
    cr_assert_not_null(test.tokenizer, "%s", test.error.text);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n;
        char *text = repeated(units[i], 200000, &n);
        clock_t start = clock(); /* CPU time: a busy machine must not fail it */
        TokenList list = encode(test.tokenizer, text, n, false, false);
        cr_assert_lt(clock() - start, 20 * CLOCKS_PER_SEC);
        check_text(test.tokenizer, &list, (uint8_t *)text, n, 0);
        token_list_done(&list);
        free(text);
    }
    test_tokenizer_done(&test);
    cJSON_Delete(golden);
}

Test(test_tok_spm, a_run_without_a_break_has_a_limit)
{
    VocabSpec spec = letters_spec();
    TestTokenizer test = test_tokenizer_open(&spec);
    size_t n;
    char *text = repeated("b", (4 << 20) + 1, &n);
    TokenList list = {0};
    cr_assert_not(tok_encode(test.tokenizer, &(TokEncode){.text = text, .n = n}, &list, &error));
    cr_assert(error.code == ERR_TOO_LARGE && list.n == 0, "%s", error.text);
    token_list_done(&list);
    free(text);
    test_tokenizer_done(&test);
}

static void check_refused(const VocabSpec *spec, ErrorCode code, const char *words)
{
    TestTokenizer test = test_tokenizer_open(spec);
    cr_assert_null(test.tokenizer, "%s", words);
    cr_assert_eq(test.error.code, code, "%s", test.error.text);
    cr_assert(strstr(test.error.text, words), "%s", test.error.text);
    test_tokenizer_done(&test);
}

static void keys_without_unknown(GgufWriter *writer)
{
    gguf_writer_u32(writer, "tokenizer.ggml.bos_token_id", 1);
}

static void keys_with_far_unknown(GgufWriter *writer)
{
    gguf_writer_u32(writer, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_u32(writer, "tokenizer.ggml.unknown_token_id", N_LETTERS);
}

static void keys_without_bos(GgufWriter *writer)
{
    gguf_writer_u32(writer, "tokenizer.ggml.unknown_token_id", 0);
}

Test(test_tok_spm, broken_vocabularies)
{
    static float scores[N_LETTERS];
    static char long_text[1026];
    const char *tokens[N_LETTERS];
    VocabSpec spec = letters_spec();
    spec.scores = NULL;
    check_refused(&spec, ERR_INVALID, "tokenizer.ggml.scores");
    spec.scores = letter_scores;
    spec.n_scores = N_LETTERS - 1;
    check_refused(&spec, ERR_INVALID, "has 9 elements, but there are 10 tokens");
    spec = letters_spec();
    scores[4] = NAN;
    spec.scores = scores;
    check_refused(&spec, ERR_INVALID, "the score of token 4");
    spec = letters_spec();
    memset(long_text, 'x', 1025);
    memcpy(tokens, letters, sizeof letters);
    tokens[5] = long_text;
    spec.tokens = tokens;
    check_refused(&spec, ERR_TOO_LARGE, "token 5 has 1025 bytes");
    spec = letters_spec();
    spec.more = keys_without_unknown;
    check_refused(&spec, ERR_INVALID, "tokenizer.ggml.unknown_token_id");
    spec.more = keys_with_far_unknown;
    check_refused(&spec, ERR_INVALID, "is 10, but there are 10 tokens");
    spec.more = keys_without_bos;
    check_refused(&spec, ERR_INVALID, "tokenizer.ggml.bos_token_id");
}
