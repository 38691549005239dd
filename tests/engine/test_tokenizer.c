/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/tokenizer.h"
#include "tests/support/token_cases.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* Ids of the test vocabulary: three control tokens, the 256 bytes from ID_BYTES on, then the rest. */
enum {
    ID_EOT,
    ID_BOS,
    ID_EOS,
    ID_BYTES,
    ID_AB = ID_BYTES + 256,
    ID_ABC,
    ID_SPACE_AB,
    ID_AA,
    ID_AAAA,
    ID_WORD,
    ID_MARK,
    ID_LONG_MARK,
    ID_TWO_ENDS,
    ID_UNUSED,
    ID_UNKNOWN,
    ID_FOREIGN,
    ID_CONTROL_WORD,
    N_TOKENS,
    MAX_TOKENS = N_TOKENS + 8,
};
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 };

typedef struct Vocab {
    const char *tokens[MAX_TOKENS], *merges[16];
    int32_t types[MAX_TOKENS];
    char bytes[256][3];
    VocabSpec spec;
} Vocab;

static void add(Vocab *vocab, const char *text, int32_t type)
{
    vocab->types[vocab->spec.n_tokens] = type;
    vocab->tokens[vocab->spec.n_tokens++] = text;
    vocab->spec.n_types++;
}

static void vocab_init(Vocab *vocab)
{
    static const char *const merges[] = {"a b", "ab c", "Ġ ab", "a a", "aa aa"};
    *vocab = (Vocab){.spec = {.pre = "gpt-2", .n_merges = sizeof merges / sizeof *merges}};
    add(vocab, "<|endoftext|>", CONTROL);
    add(vocab, "<s>", CONTROL);
    add(vocab, "<|im_end|>", CONTROL);
    for (unsigned byte = 0; byte < 256; byte++) {
        uint8_t one[1] = {(uint8_t)byte};
        written_text(one, 1, vocab->bytes[byte]);
        add(vocab, vocab->bytes[byte], NORMAL);
    }
    static const struct {
        const char *text;
        int32_t type;
    } rest[] = {{"ab", NORMAL},        {"abc", NORMAL},        {"Ġab", NORMAL},
                {"aa", NORMAL},        {"aaaa", NORMAL},       {"Ġcba", NORMAL},
                {"<x>", USER_DEFINED}, {"<x>>", USER_DEFINED}, {"<|im_end|><|im_end|>", CONTROL},
                {"[PAD]", UNUSED},     {"<unk>", UNKNOWN},     {"你b", NORMAL},
                {"Ġbbb", CONTROL}};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) add(vocab, rest[i].text, rest[i].type);
    memcpy(vocab->merges, merges, sizeof merges);
    vocab->spec.tokens = vocab->tokens;
    vocab->spec.types = vocab->types;
    vocab->spec.merges = vocab->merges;
}

static TestTokenizer open_with(const char *pre, void (*more)(GgufWriter *))
{
    Vocab vocab;
    vocab_init(&vocab);
    vocab.spec.pre = pre;
    vocab.spec.more = more;
    TestTokenizer test = test_tokenizer_open(&vocab.spec);
    cr_assert_not_null(test.tokenizer, "%s", test.error.text);
    return test;
}

static void check(const TestTokenizer *test, const TokEncode *in, size_t n, const uint32_t *expected, const char *what)
{
    TokenList list = {0};
    Error error;
    cr_assert(token_list_push(&list, 77, &error)); /* what is there stays */
    cr_assert(tok_encode(test->tokenizer, in, &list, &error), "%s: %s", what, error.text);
    cr_assert_eq(list.ids[0], 77);
    cr_assert_eq(list.n, n + 1, "%s: %zu tokens", what, list.n - 1);
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(list.ids[i + 1], expected[i], "%s: token %zu is %u", what, i, list.ids[i + 1]);
    token_list_done(&list);
}

#define BYTE(c) (ID_BYTES + (uint8_t)(c))
#define IDS(...)                                                                                                       \
    (sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)), (uint32_t[])                                               \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define TEXT(t) .text = (t), .n = sizeof(t) - 1

Test(tokenizer, merges_in_order_of_rank)
{
    TestTokenizer test = open_with("gpt-2", NULL);
    check(&test, &(TokEncode){TEXT("abc")}, IDS(ID_ABC), "abc");
    check(&test, &(TokEncode){TEXT("ab ab")}, IDS(ID_AB, ID_SPACE_AB), "ab ab");
    check(&test, &(TokEncode){TEXT("aab")}, IDS(BYTE('a'), ID_AB), "aab");
    check(&test, &(TokEncode){TEXT("aaa")}, IDS(ID_AA, BYTE('a')), "aaa");
    check(&test, &(TokEncode){TEXT("aaaaaaa")}, IDS(ID_AAAA, ID_AA, BYTE('a')), "aaaaaaa");
    check(&test, &(TokEncode){TEXT("a b")}, IDS(BYTE('a'), BYTE(' '), BYTE('b')), "a b");
    check(&test, &(TokEncode){TEXT("")}, 0, NULL, "nothing");
    test_tokenizer_done(&test);
}

Test(tokenizer, a_whole_word_beats_merges_only_where_the_row_says)
{
    TestTokenizer test = open_with("gpt-2", NULL);
    check(&test, &(TokEncode){TEXT(" cba")}, IDS(BYTE(' '), BYTE('c'), BYTE('b'), BYTE('a')), "gpt-2");
    test_tokenizer_done(&test);
    test = open_with("llama-bpe", NULL);
    check(&test, &(TokEncode){TEXT(" cba")}, IDS(ID_WORD), "llama-bpe");
    check(&test, &(TokEncode){TEXT(" bbb")}, IDS(BYTE(' '), BYTE('b'), BYTE('b'), BYTE('b')), "a control token's text");
    test_tokenizer_done(&test);
}

Test(tokenizer, dead_bytes_are_replaced)
{
    TestTokenizer test = open_with("gpt-2", NULL);
    check(&test, &(TokEncode){TEXT("a\xFF")}, IDS(BYTE('a'), BYTE(0xEF), BYTE(0xBF), BYTE(0xBD)), "dead");
    check(&test, &(TokEncode){TEXT("\xF0\x9F\x98")}, IDS(BYTE(0xEF), BYTE(0xBF), BYTE(0xBD)), "cut");
    test_tokenizer_done(&test);
}

/* ---- special tokens ---- */

Test(tokenizer, control_tokens_need_a_trusted_range_around_them)
{
    TestTokenizer test = open_with("gpt-2", NULL);
    static const char text[] = "a<|im_end|>b<|im_end|>";
    const uint32_t parts[] = {BYTE('<'), BYTE('|'), BYTE('i'), BYTE('m'), BYTE('_'),
                              BYTE('e'), BYTE('n'), BYTE('d'), BYTE('|'), BYTE('>')};
    uint32_t plain[22] = {BYTE('a')}, first[13] = {BYTE('a'), ID_EOS, BYTE('b')}, last[13] = {BYTE('a')};
    memcpy(plain + 1, parts, sizeof parts);
    plain[11] = BYTE('b');
    memcpy(plain + 12, parts, sizeof parts);
    memcpy(first + 3, parts, sizeof parts);
    memcpy(last + 1, parts, sizeof parts);
    last[11] = BYTE('b');
    last[12] = ID_EOS;
    check(&test, &(TokEncode){TEXT(text)}, 22, plain, "no range");
    check(&test, &(TokEncode){TEXT(text), .trusted = &(TextRange){1, 11}, .n_trusted = 1}, 13, first,
          "exactly the first");
    check(&test, &(TokEncode){TEXT(text), .trusted = &(TextRange){12, 99}, .n_trusted = 1}, 13, last, "the last");
    check(&test, &(TokEncode){TEXT(text), .trusted = &(TextRange){2, 21}, .n_trusted = 1}, 22, plain, "a byte short");
    TextRange two[] = {{0, 5}, {5, 11}}, both[] = {{0, 0}, {1, 11}, {11, 22}};
    check(&test, &(TokEncode){TEXT(text), .trusted = two, .n_trusted = 2}, 22, plain, "across two ranges");
    check(&test, &(TokEncode){TEXT(text), .trusted = both, .n_trusted = 3}, IDS(BYTE('a'), ID_EOS, BYTE('b'), ID_EOS),
          "two ranges");
    test_tokenizer_done(&test);
}

Test(tokenizer, the_longest_special_token_wins)
{
    TestTokenizer test = open_with("gpt-2", NULL);
    TextRange all = {0, 99};
    check(&test, &(TokEncode){TEXT("<|im_end|><|im_end|><|im_end|>"), .trusted = &all, .n_trusted = 1},
          IDS(ID_TWO_ENDS, ID_EOS), "ends");
    /* The longer one does not fit into the range, the shorter does. */
    check(&test,
          &(TokEncode){TEXT("<|im_end|><|im_end|>"), .trusted = (TextRange[]){{0, 10}, {10, 20}}, .n_trusted = 2},
          IDS(ID_EOS, ID_EOS), "in two ranges");
    check(&test, &(TokEncode){TEXT("<unk><x"), .trusted = &all, .n_trusted = 1}, IDS(ID_UNKNOWN, BYTE('<'), BYTE('x')),
          "cut off");
    check(&test, &(TokEncode){TEXT("[PAD]"), .trusted = &all, .n_trusted = 1},
          IDS(BYTE('['), BYTE('P'), BYTE('A'), BYTE('D'), BYTE(']')), "an unused token");
    test_tokenizer_done(&test);
}

Test(tokenizer, user_defined_tokens_are_found_in_any_text)
{
    TestTokenizer test = open_with("gpt-2", NULL);
    check(&test, &(TokEncode){TEXT("ab<x>>ab<x>")}, IDS(ID_AB, ID_LONG_MARK, ID_AB, ID_MARK), "untrusted");
    test_tokenizer_done(&test);
}

/* ---- BOS, EOS, ends ---- */

static void with_bos_and_eos(GgufWriter *writer)
{
    gguf_writer_u32(writer, "tokenizer.ggml.bos_token_id", ID_BOS);
    gguf_writer_u32(writer, "tokenizer.ggml.eos_token_id", ID_EOS);
    gguf_writer_bool(writer, "tokenizer.ggml.add_bos_token", true);
    gguf_writer_bool(writer, "tokenizer.ggml.add_eos_token", true);
}

Test(tokenizer, one_bos_and_one_eos)
{
    TestTokenizer test = open_with("gpt-2", with_bos_and_eos);
    TextRange all = {0, 99};
    cr_assert(tok_adds_bos(test.tokenizer));
    check(&test, &(TokEncode){TEXT("ab"), .add_special = true}, IDS(ID_BOS, ID_AB, ID_EOS), "added");
    check(&test, &(TokEncode){TEXT("ab")}, IDS(ID_AB), "not asked for");
    check(&test, &(TokEncode){TEXT(""), .add_special = true}, IDS(ID_BOS, ID_EOS), "nothing");
    check(&test, &(TokEncode){TEXT("<s>ab<|im_end|>"), .trusted = &all, .n_trusted = 1, .add_special = true},
          IDS(ID_BOS, ID_AB, ID_EOS), "the template's own");
    check(&test, &(TokEncode){TEXT("<|im_end|>ab<s>"), .trusted = &all, .n_trusted = 1, .add_special = true},
          IDS(ID_BOS, ID_EOS, ID_AB, ID_BOS, ID_EOS), "at the wrong end");
    check(&test, &(TokEncode){TEXT("ab<s>"), .trusted = &all, .n_trusted = 1, .add_special = true},
          IDS(ID_BOS, ID_AB, ID_BOS, ID_EOS), "first special token, but not first");
    check(&test, &(TokEncode){TEXT("<s>"), .add_special = true}, IDS(ID_BOS, BYTE('<'), BYTE('s'), BYTE('>'), ID_EOS),
          "typed");
    test_tokenizer_done(&test);
}

static void without_bos(GgufWriter *writer)
{
    gguf_writer_u32(writer, "tokenizer.ggml.bos_token_id", ID_BOS);
    gguf_writer_bool(writer, "tokenizer.ggml.add_bos_token", false);
}

Test(tokenizer, the_file_overrules_the_row_on_bos)
{
    TestTokenizer test = open_with("llama-bpe", NULL);
    cr_assert(tok_adds_bos(test.tokenizer));
    check(&test, &(TokEncode){TEXT("ab"), .add_special = true}, IDS(ID_BOS, ID_AB), "llama-bpe");
    test_tokenizer_done(&test);
    test = open_with("llama-bpe", without_bos);
    cr_assert(!tok_adds_bos(test.tokenizer));
    cr_assert_eq(tok_eos(test.tokenizer), TOK_NONE);
    check(&test, &(TokEncode){TEXT("ab"), .add_special = true}, IDS(ID_AB), "overruled");
    test_tokenizer_done(&test);
    test = open_with("smollm", NULL);
    cr_assert(!tok_adds_bos(test.tokenizer));
    test_tokenizer_done(&test);
}

static void with_eot_and_eom(GgufWriter *writer)
{
    gguf_writer_u32(writer, "tokenizer.ggml.eot_token_id", ID_MARK);
    gguf_writer_u32(writer, "tokenizer.ggml.eom_token_id", ID_AB);
}

Test(tokenizer, what_ends_an_answer)
{
    TestTokenizer test = open_with("gpt-2", NULL);
    const Tokenizer *tokenizer = test.tokenizer;
    cr_assert(tok_is_end(tokenizer, ID_EOS) && tok_is_end(tokenizer, ID_EOT));
    cr_assert(!tok_is_end(tokenizer, ID_BOS) && !tok_is_end(tokenizer, ID_AB) && !tok_is_end(tokenizer, ID_TWO_ENDS));
    cr_assert(!tok_is_end(tokenizer, N_TOKENS) && !tok_is_end(tokenizer, TOK_NONE));
    cr_assert(tok_is_special(tokenizer, ID_BOS) && tok_is_special(tokenizer, ID_UNKNOWN));
    cr_assert(!tok_is_special(tokenizer, ID_MARK) && !tok_is_special(tokenizer, N_TOKENS));
    test_tokenizer_done(&test);
    test = open_with("gpt-2", with_eot_and_eom);
    cr_assert(tok_is_end(test.tokenizer, ID_MARK) && tok_is_end(test.tokenizer, ID_AB));
    cr_assert_eq(tok_bos(test.tokenizer), TOK_NONE);
    test_tokenizer_done(&test);
}

/* ---- pieces ---- */

static void check_piece(const TestTokenizer *test, uint32_t id, bool special, const char *expected)
{
    Buffer piece;
    Error error;
    buffer_init(&piece, 100);
    cr_assert(tok_piece(test->tokenizer, id, special, &piece, &error), "%s", error.text);
    cr_assert_eq(piece.n, strlen(expected), "token %u", id);
    cr_assert(!memcmp(piece.n ? piece.data : "", expected, piece.n), "token %u", id);
    buffer_done(&piece);
}

Test(tokenizer, pieces)
{
    TestTokenizer test = open_with("gpt-2", NULL);
    check_piece(&test, ID_SPACE_AB, false, " ab");
    check_piece(&test, BYTE(0xC3), false, "\xC3");
    check_piece(&test, BYTE('\n'), false, "\n");
    check_piece(&test, BYTE(0xAD), false, "\xAD");
    check_piece(&test, ID_EOS, false, "");
    check_piece(&test, ID_EOS, true, "<|im_end|>");
    check_piece(&test, ID_UNKNOWN, false, "");
    check_piece(&test, ID_UNUSED, false, "");
    check_piece(&test, ID_UNUSED, true, "[PAD]");
    check_piece(&test, ID_MARK, false, "<x>");
    check_piece(&test, ID_FOREIGN, false, "你b"); /* not written in the alphabet of bytes */
    Buffer piece;
    Error error;
    buffer_init(&piece, 2);
    cr_assert(!tok_piece(test.tokenizer, N_TOKENS, true, &piece, &error));
    cr_assert_eq(error.code, ERR_INVALID);
    cr_assert(!tok_piece(test.tokenizer, ID_SPACE_AB, true, &piece, &error));
    cr_assert_eq(error.code, ERR_TOO_LARGE);
    cr_assert_eq(piece.n, 0);
    buffer_done(&piece);
    test_tokenizer_done(&test);
}

Test(tokenizer, finds_a_token_by_its_text)
{
    TestTokenizer test = open_with("gpt-2", NULL);
    cr_assert_eq(tok_n_vocab(test.tokenizer), N_TOKENS);
    cr_assert_eq(tok_find(test.tokenizer, "<|im_end|>", 10), ID_EOS);
    cr_assert_eq(tok_find(test.tokenizer, "<|im_end|>", 9), TOK_NONE);
    cr_assert_eq(tok_find(test.tokenizer, "", 0), TOK_NONE);
    test_tokenizer_done(&test);
}

/* ---- hostile text ---- */

/* A quadratic algorithm would need minutes for each of these. */
Test(tokenizer, a_megabyte_of_anything, .timeout = 240)
{
    static const char *const units[] = {"a",  " ",   "\n",        "!",    "7",        "é",     "a ", "\t\n",
                                        "'s", "<x>", "<|im_end|", "\xFF", "\xF0\x9F", "ab!  ", "A",  "A\xCC\x81"};
    static const char *const pres[] = {"default", "gpt-2", "llama-bpe", "smollm", "tekken", "gpt-4o"};
    size_t n = 1 << 20;
    char *text = malloc(n);
    cr_assert_not_null(text);
    for (size_t p = 0; p < sizeof pres / sizeof *pres; p++) {
        TestTokenizer test = open_with(pres[p], NULL);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            size_t unit = strlen(units[u]);
            for (size_t i = 0; i < n; i++) text[i] = units[u][i % unit];
            text[n - 1] = 'x'; /* what looks ahead sees it only at the end */
            TokenList list = {0};
            Error error;
            TokEncode in = {.text = text, .n = n, .trusted = &(TextRange){0, n}, .n_trusted = 1};
            cr_assert(tok_encode(test.tokenizer, &in, &list, &error), "%s '%s': %s", pres[p], units[u], error.text);
            cr_assert_geq(list.n, n / 8, "%s '%s'", pres[p], units[u]);
            token_list_done(&list);
        }
        test_tokenizer_done(&test);
    }
    free(text);
}

Test(tokenizer, a_word_beyond_the_limit_is_refused)
{
    TestTokenizer test = open_with("gpt-2", NULL);
    size_t limit = 4 << 20;
    char *text = malloc(limit + 1);
    cr_assert_not_null(text);
    memset(text, 'a', limit + 1);
    TokenList list = {0};
    Error error;
    cr_assert(tok_encode(test.tokenizer, &(TokEncode){.text = text, .n = limit}, &list, &error), "%s", error.text);
    cr_assert_eq(list.n, limit / 4);
    text[2] = '!'; /* the first words are fine */
    cr_assert(tok_encode(test.tokenizer, &(TokEncode){.text = text, .n = limit}, &list, &error), "%s", error.text);
    size_t before = list.n;
    text[2] = 'a';
    cr_assert(!tok_encode(test.tokenizer, &(TokEncode){.text = text, .n = limit + 1}, &list, &error));
    cr_assert_eq(error.code, ERR_TOO_LARGE);
    cr_assert_eq(list.n, before);
    token_list_done(&list);
    free(text);
    test_tokenizer_done(&test);
}
