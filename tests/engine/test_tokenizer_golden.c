/* SPDX-License-Identifier: Apache-2.0 */
/* Token ids equal the reference tokenizers'; tests/golden/make_tokens.py tells which and how. */
#include "tests/support/token_cases.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const char *const rows[] = {"smollm", "gpt-2", "llama-bpe", "default", "qwen2", "tekken", "gpt-4o"};

static void check_ids(const TokenList *list, const cJSON *expected, const char *what, int number)
{
    const cJSON *item;
    size_t i = 0;
    cr_assert_eq(list->n, (size_t)cJSON_GetArraySize(expected), "%s, case %d: %zu tokens", what, number, list->n);
    cJSON_ArrayForEach(item, expected)
    {
        cr_assert_eq(list->ids[i], (uint32_t)item->valueint, "%s, case %d, token %zu", what, number, i);
        i++;
    }
}

/* Decoding gives the text back, NUL and dead bytes as U+FFFD; bytes that the vocabulary lacks are gone. */
static void check_text(const Tokenizer *tokenizer, const TokenList *list, const uint8_t *text, size_t n, int number)
{
    Buffer whole;
    Error error;
    buffer_init(&whole, 1 << 20);
    TokStream stream = {0};
    for (size_t i = 0; i < list->n; i++)
        cr_assert(tok_stream_push(&stream, tokenizer, list->ids[i], true, &whole, &error), "%s", error.text);
    cr_assert(tok_stream_flush(&stream, &whole, &error));
    size_t shown_n;
    char *shown = shown_text(text, n, &shown_n);
    cr_assert_eq(whole.n, shown_n, "case %d", number);
    cr_assert(!shown_n || !memcmp(whole.data, shown, shown_n), "case %d", number);
    free(shown);
    buffer_done(&whole);
}

static void check_rows(TestTokenizer *test, const cJSON *cases, const char *vocabulary, const char *row, bool all_bytes)
{
    cr_assert_not_null(test->tokenizer, "%s", test->error.text);
    int number = 0, checked = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, cases)
    {
        const cJSON *by_row = cJSON_GetObjectItem(item, vocabulary), *expected = cJSON_GetObjectItem(by_row, row);
        size_t n;
        uint8_t *text = case_bytes(item, &n);
        TokenList list = {0};
        Error error;
        TokEncode in = {.text = (const char *)text, .n = n};
        cr_assert(tok_encode(test->tokenizer, &in, &list, &error), "case %d: %s", number, error.text);
        check_ids(&list, expected ? expected : cJSON_GetObjectItem(by_row, "smollm"), row, number);
        if (all_bytes) check_text(test->tokenizer, &list, text, n, number);
        token_list_done(&list);
        free(text);
        number++;
        checked += expected != NULL;
    }
    cr_assert_gt(number, 100);
    cr_assert_gt(checked, 3, "the rows are not told apart");
}

Test(tokenizer_golden, small_vocabulary)
{
    cJSON *golden = golden_load("tokens.json");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TestTokenizer test = test_tokenizer_small(golden, rows[i]);
        check_rows(&test, cJSON_GetObjectItem(golden, "cases"), "small", rows[i], true);
        test_tokenizer_done(&test);
    }
    cJSON_Delete(golden);
}

Test(tokenizer_golden, smollm2)
{
    if (!test_model_path()) cr_skip("LONGWAVE_TEST_MODEL is not set");
    cJSON *golden = golden_load("tokens.json");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TestTokenizer test = test_tokenizer_file(test_model_path(), rows[i]);
        check_rows(&test, cJSON_GetObjectItem(golden, "cases"), "smollm2", rows[i], false);
        test_tokenizer_done(&test);
    }
    cJSON_Delete(golden);
}

static void check_trusted(TestTokenizer *test, const cJSON *golden, const char *vocabulary)
{
    cr_assert_not_null(test->tokenizer, "%s", test->error.text);
    int number = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(golden, "trusted"))
    {
        size_t n;
        uint8_t *text = case_bytes(item, &n);
        TokenList list = {0};
        Error error;
        TokEncode in = {.text = (const char *)text, .n = n, .trusted = &(TextRange){0, n}, .n_trusted = 1};
        cr_assert(tok_encode(test->tokenizer, &in, &list, &error), "%s", error.text);
        check_ids(&list, cJSON_GetObjectItem(item, vocabulary), "trusted", number++);
        token_list_done(&list);
        free(text);
    }
    cr_assert_gt(number, 5);
}

Test(tokenizer_golden, trusted_text_small)
{
    cJSON *golden = golden_load("tokens.json");
    TestTokenizer test = test_tokenizer_small(golden, "smollm");
    check_trusted(&test, golden, "small");
    test_tokenizer_done(&test);
    cJSON_Delete(golden);
}

Test(tokenizer_golden, trusted_text_smollm2)
{
    if (!test_model_path()) cr_skip("LONGWAVE_TEST_MODEL is not set");
    cJSON *golden = golden_load("tokens.json");
    TestTokenizer test = test_tokenizer_file(test_model_path(), "smollm");
    check_trusted(&test, golden, "smollm2");
    test_tokenizer_done(&test);
    cJSON_Delete(golden);
}

/* The model file as it is, with the keys that make its rules. */
Test(tokenizer_golden, smollm2_rules)
{
    if (!test_model_path()) cr_skip("LONGWAVE_TEST_MODEL is not set");
    Error error;
    Gguf *gguf;
    Tokenizer *tokenizer;
    cr_assert(gguf_open(test_model_path(), &gguf, &error), "%s", error.text);
    cr_assert(tok_new(gguf, &tokenizer, &error), "%s", error.text);
    cr_assert_eq(tok_n_vocab(tokenizer), 49152);
    cr_assert_eq(tok_bos(tokenizer), 1);
    cr_assert_eq(tok_eos(tokenizer), 2);
    cr_assert(!tok_adds_bos(tokenizer));
    cr_assert(tok_is_end(tokenizer, 0) && tok_is_end(tokenizer, 2) && !tok_is_end(tokenizer, 1));
    cr_assert(tok_is_special(tokenizer, 16) && !tok_is_special(tokenizer, 17));
    cr_assert_eq(tok_find(tokenizer, "<|im_start|>", 12), 1);
    tok_free(tokenizer);
    gguf_close(gguf);
}
