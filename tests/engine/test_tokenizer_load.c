/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabularies are not trusted: each fault is refused with the key that has it. */
#include "engine/text/tokenizer.h"
#include "tests/support/token_cases.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_BYTES = 256, ID_AB = N_BYTES, ID_ABC, ID_END, N_TOKENS, MAX_TOKENS = N_TOKENS + 8 };

typedef struct Draft {
    const char *tokens[MAX_TOKENS], *merges[8];
    int32_t types[MAX_TOKENS];
    char bytes[N_BYTES][3];
    char big[70000];
    VocabSpec spec;
} Draft;

static void draft_init(Draft *draft)
{
    memset(draft, 0, sizeof *draft);
    for (unsigned byte = 0; byte < N_BYTES; byte++) {
        uint8_t one[1] = {(uint8_t)byte};
        written_text(one, 1, draft->bytes[byte]);
        draft->tokens[byte] = draft->bytes[byte];
    }
    draft->tokens[ID_AB] = "ab";
    draft->tokens[ID_ABC] = "abc";
    draft->tokens[ID_END] = "<|im_end|>";
    for (size_t i = 0; i < N_TOKENS; i++) draft->types[i] = i == ID_END ? 3 : 1;
    draft->merges[0] = "a b";
    draft->merges[1] = "ab c";
    draft->spec = (VocabSpec){.pre = "gpt-2",
                              .tokens = draft->tokens,
                              .n_tokens = N_TOKENS,
                              .types = draft->types,
                              .n_types = N_TOKENS,
                              .merges = draft->merges,
                              .n_merges = 2};
}

/* ---- one fault each ---- */

static void no_pre(Draft *draft)
{
    draft->spec.pre = NULL;
}
static void unknown_pre(Draft *draft)
{
    draft->spec.pre = "gpt-3";
}
static void control_pre(Draft *draft)
{
    draft->spec.pre = "a\nb\x1b[2J";
}
static void no_tokens(Draft *draft)
{
    draft->spec.tokens = NULL;
}
static void zero_tokens(Draft *draft)
{
    draft->spec.n_tokens = 0;
}
static void same_text(Draft *draft)
{
    draft->tokens[ID_ABC] = "ab";
}
static void no_letter(Draft *draft)
{
    draft->tokens['Q'] = "[Q]";
}
static void no_newline(Draft *draft)
{
    draft->tokens['\n'] = "[newline]";
}
static void control_letter(Draft *draft)
{
    draft->types['Q'] = 3;
}
static void few_types(Draft *draft)
{
    draft->spec.n_types--;
}
static void many_types(Draft *draft)
{
    draft->spec.n_types++;
}
static void type_seven(Draft *draft)
{
    draft->types[5] = 7;
}
static void negative_type(Draft *draft)
{
    draft->types[5] = -1;
}
static void no_merges(Draft *draft)
{
    draft->spec.merges = NULL;
}
static void one_word(Draft *draft)
{
    draft->merges[1] = "abc";
}
static void empty_merge(Draft *draft)
{
    draft->merges[1] = "";
}
static void blank_first(Draft *draft)
{
    draft->merges[1] = " abc";
}
static void blank_last(Draft *draft)
{
    draft->merges[1] = "abc ";
}
static void three_words(Draft *draft)
{
    draft->merges[1] = "a b c";
}
static void foreign_part(Draft *draft)
{
    draft->merges[1] = "ab xyz";
}
static void control_merge(Draft *draft)
{
    draft->merges[1] = "ab \x1b[2J";
}
static void foreign_result(Draft *draft)
{
    draft->merges[1] = "a c";
}
static void twice(Draft *draft)
{
    draft->merges[1] = "a b";
}

static void control_result(Draft *draft)
{
    draft->types[ID_ABC] = 3;
}

static void fill_big(Draft *draft, size_t n)
{
    memset(draft->big, 'q', n);
    draft->big[n] = '\0';
    draft->tokens[ID_ABC] = draft->big;
    draft->spec.n_merges = 1;
}

static void huge_token(Draft *draft)
{
    fill_big(draft, 65536);
}

static void long_special(Draft *draft)
{
    fill_big(draft, 513);
    draft->types[ID_ABC] = 3;
}

static void more_bos(GgufWriter *writer)
{
    gguf_writer_u32(writer, "tokenizer.ggml.bos_token_id", N_TOKENS);
}
static void more_eos(GgufWriter *writer)
{
    gguf_writer_u32(writer, "tokenizer.ggml.eos_token_id", UINT32_MAX);
}
static void more_eot(GgufWriter *writer)
{
    gguf_writer_u32(writer, "tokenizer.ggml.eot_token_id", 1u << 31);
}
static void more_eom(GgufWriter *writer)
{
    gguf_writer_string(writer, "tokenizer.ggml.eom_token_id", "7");
}
static void more_add_bos(GgufWriter *writer)
{
    gguf_writer_bool(writer, "tokenizer.ggml.add_bos_token", true);
}
static void more_add_eos(GgufWriter *writer)
{
    gguf_writer_bool(writer, "tokenizer.ggml.add_eos_token", true);
}
static void more_bad_bool(GgufWriter *writer)
{
    gguf_writer_string(writer, "tokenizer.ggml.add_eos_token", "yes");
}
static void bos_out_of_range(Draft *draft)
{
    draft->spec.more = more_bos;
}
static void eos_out_of_range(Draft *draft)
{
    draft->spec.more = more_eos;
}
static void eot_out_of_range(Draft *draft)
{
    draft->spec.more = more_eot;
}
static void eom_no_number(Draft *draft)
{
    draft->spec.more = more_eom;
}
static void bos_absent(Draft *draft)
{
    draft->spec.more = more_add_bos;
}
static void eos_absent(Draft *draft)
{
    draft->spec.more = more_add_eos;
}
static void add_eos_no_bool(Draft *draft)
{
    draft->spec.more = more_bad_bool;
}

static const struct {
    void (*spoil)(Draft *draft);
    ErrorCode code;
    const char *key, *text;
} faults[] = {
    {no_pre, ERR_INVALID, "tokenizer.ggml.pre", ""},
    {unknown_pre, ERR_UNSUPPORTED, "tokenizer.ggml.pre", "gpt-3"},
    {control_pre, ERR_UNSUPPORTED, "tokenizer.ggml.pre", "'a?b?[2J'"},
    {no_tokens, ERR_INVALID, "tokenizer.ggml.tokens", ""},
    {zero_tokens, ERR_INVALID, "tokenizer.ggml.tokens", "0 tokens"},
    {same_text, ERR_INVALID, "tokenizer.ggml.tokens", "token 257 has the text of token 256"},
    {no_letter, ERR_INVALID, "tokenizer.ggml.tokens", "byte 0x51"},
    {no_newline, ERR_INVALID, "tokenizer.ggml.tokens", "byte 0x0a"},
    {control_letter, ERR_INVALID, "tokenizer.ggml.tokens", "byte 0x51"},
    {huge_token, ERR_TOO_LARGE, "tokenizer.ggml.tokens", "65536 bytes"},
    {long_special, ERR_TOO_LARGE, "tokenizer.ggml.tokens", "513 bytes"},
    {few_types, ERR_INVALID, "tokenizer.ggml.token_type", "258 elements"},
    {many_types, ERR_INVALID, "tokenizer.ggml.token_type", "260 elements"},
    {type_seven, ERR_INVALID, "tokenizer.ggml.token_type", "type 7"},
    {negative_type, ERR_INVALID, "tokenizer.ggml.token_type", "type -1"},
    {no_merges, ERR_INVALID, "tokenizer.ggml.merges", ""},
    {one_word, ERR_INVALID, "tokenizer.ggml.merges", "merge 1 'abc'"},
    {empty_merge, ERR_INVALID, "tokenizer.ggml.merges", "merge 1 ''"},
    {blank_first, ERR_INVALID, "tokenizer.ggml.merges", "merge 1 ' abc'"},
    {blank_last, ERR_INVALID, "tokenizer.ggml.merges", "merge 1 'abc '"},
    {three_words, ERR_INVALID, "tokenizer.ggml.merges", "merge 1 'a b c'"},
    {foreign_part, ERR_INVALID, "tokenizer.ggml.merges", "merge 1 'ab xyz'"},
    {control_merge, ERR_INVALID, "tokenizer.ggml.merges", "merge 1 'ab ?[2J'"},
    {foreign_result, ERR_INVALID, "tokenizer.ggml.merges", "merge 1 'a c'"},
    {twice, ERR_INVALID, "tokenizer.ggml.merges", "repeats merge 0"},
    {control_result, ERR_INVALID, "tokenizer.ggml.merges", "control token"},
    {bos_out_of_range, ERR_INVALID, "tokenizer.ggml.bos_token_id", "259"},
    {eos_out_of_range, ERR_INVALID, "tokenizer.ggml.eos_token_id", "4294967295"},
    {eot_out_of_range, ERR_INVALID, "tokenizer.ggml.eot_token_id", "2147483648"},
    {eom_no_number, ERR_INVALID, "tokenizer.ggml.eom_token_id", ""},
    {bos_absent, ERR_INVALID, "tokenizer.ggml.bos_token_id", "absent"},
    {eos_absent, ERR_INVALID, "tokenizer.ggml.eos_token_id", "absent"},
    {add_eos_no_bool, ERR_INVALID, "tokenizer.ggml.add_eos_token", ""},
};

Test(tokenizer_load, every_fault_names_its_key)
{
    Draft *draft = malloc(sizeof *draft);
    cr_assert_not_null(draft);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        draft_init(draft);
        faults[i].spoil(draft);
        TestTokenizer test = test_tokenizer_open(&draft->spec);
        cr_assert_null(test.tokenizer, "fault %zu", i);
        cr_expect_eq(test.error.code, faults[i].code, "fault %zu: %s", i, test.error.text);
        cr_expect(strstr(test.error.text, faults[i].key), "fault %zu: %s", i, test.error.text);
        cr_expect(strstr(test.error.text, faults[i].text), "fault %zu: %s", i, test.error.text);
        test_tokenizer_done(&test);
    }
    free(draft);
}

static void more_nothing(GgufWriter *writer)
{
    gguf_writer_u32(writer, "tokenizer.ggml.eos_token_id", ID_END);
}

/* What is odd but has one meaning is taken: absent types, empty texts, missing bytes that no text needs, no merges. */
Test(tokenizer_load, takes_what_has_one_meaning)
{
    Draft *draft = malloc(sizeof *draft);
    cr_assert_not_null(draft);
    draft_init(draft);
    draft->spec.types = NULL;
    draft->spec.n_merges = 0;
    draft->spec.more = more_nothing;
    draft->tokens[0xFF] = "";
    draft->tokens[0x04] = "";
    TestTokenizer test = test_tokenizer_open(&draft->spec);
    cr_assert_not_null(test.tokenizer, "%s", test.error.text);
    cr_assert(tok_is_special(test.tokenizer, ID_END) && tok_is_end(test.tokenizer, ID_END));
    TokenList list = {0};
    Error error;
    cr_assert(tok_encode(test.tokenizer,
                         &(TokEncode){.text = "a\x04"
                                              "b",
                                      .n = 3},
                         &list, &error),
              "%s", error.text);
    cr_assert_eq(list.n, 2); /* the byte without a token is left out */
    cr_assert(list.ids[0] == 'a' && list.ids[1] == 'b');
    token_list_done(&list);
    test_tokenizer_done(&test);
    free(draft);
}

Test(tokenizer_load, an_unknown_model_is_refused)
{
    static const char *const names[] = {"llama2", "gpt22", "gpt", ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        GgufWriter writer;
        gguf_writer_init(&writer);
        gguf_writer_string(&writer, "tokenizer.ggml.model", names[i]);
        Buffer file;
        buffer_init(&file, 1 << 20);
        gguf_writer_finish(&writer, &file);
        gguf_writer_done(&writer);
        Error error;
        Gguf *gguf;
        Tokenizer *tokenizer = NULL;
        cr_assert(gguf_open_memory(file.data, file.n, "test", &gguf, &error), "%s", error.text);
        cr_assert(!tok_new(gguf, &tokenizer, &error));
        cr_assert_eq(error.code, ERR_UNSUPPORTED);
        cr_assert_str_eq(error.param, "tokenizer.ggml.model");
        cr_assert(strstr(error.text, names[i]), "%s", error.text);
        cr_assert_null(tokenizer);
        gguf_close(gguf);
        buffer_done(&file);
    }
}

/* Texts chosen so that they all want one slot of the table would make loading quadratic. */
Test(tokenizer_load, texts_that_collide_are_refused)
{
    enum { WANTED = 1100, SLOTS = 4096 }; /* at most half full: 2048 tokens take 4096 slots */
    char(*texts)[12] = calloc(2048, sizeof *texts);
    const char **tokens = calloc(2048, sizeof *tokens);
    cr_assert(texts && tokens);
    size_t n = 0;
    for (unsigned i = 0; n < 2048; i++) {
        snprintf(texts[n], sizeof *texts, "%u", i);
        uint64_t hash = 0xCBF29CE484222325u;
        for (const char *c = texts[n]; *c; c++) hash = (hash ^ (uint8_t)*c) * 0x100000001B3u;
        bool collides = ((uint32_t)(hash ^ hash >> 32) & (SLOTS - 1)) == 7;
        if (collides == (n < WANTED)) n++;
    }
    for (size_t i = 0; i < n; i++) tokens[i] = texts[i];
    TestTokenizer test = test_tokenizer_open(&(VocabSpec){.pre = "gpt-2", .tokens = tokens, .n_tokens = n});
    cr_assert_null(test.tokenizer);
    cr_assert_eq(test.error.code, ERR_INVALID);
    cr_assert(strstr(test.error.text, "share a hash"), "%s", test.error.text);
    test_tokenizer_done(&test);
    free(tokens);
    free(texts);
}
