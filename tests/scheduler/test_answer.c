/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/answer.h"
#include "tests/engine/token_rig.h"
#include "tests/support/answer_cases.h"
#include "tests/support/tiny_model.h"
#include "tests/support/token_cases.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static Error error;

/* What an answer of these ids shows, with its end: "|stop" or "|full". */
static void answer_shows(const Tokenizer *tokenizer, const Request *request, const uint32_t *ids, size_t n_ids,
                         Buffer *shown)
{
    const uint32_t end_id = tok_eos(tokenizer);
    Answer answer;
    AnswerParts all;
    AnswerState state = ANSWER_OPEN;
    answer_parts_init(&all, 1 << 20);
    cr_assert(answer_open(&answer, tokenizer, request, &end_id, 1, &error), "%s", error.text);
    for (size_t i = 0; i < n_ids && state == ANSWER_OPEN; i++) {
        cr_assert(answer_take(&answer, ids[i], false, &state, &error), "%s", error.text);
        const char *text = answer.parts.text.data;
        cr_assert(answer.text.n == answer.parts.text.n);
        for (uint32_t k = 0; k < answer.parts.n; text += answer.parts.items[k++].n_bytes)
            answer_parts_add(&all, answer.parts.items[k].kind, text, answer.parts.items[k].n_bytes);
    }
    answer_case_show(&all, shown);
    cr_assert(buffer_append_text(shown, state == ANSWER_STOPPED ? "|stop" : "|full", &error));
    answer_done(&answer);
    answer_parts_done(&all);
}

/* The text cut at random and each piece tokenized by itself: other ids every time. */
static TokenList cut_text(const TokenRig *rig, const char *text, int round)
{
    TokenList list = {0};
    size_t n = strlen(text);
    for (size_t at = 0, end; at < n; at = end) {
        end = round ? at + 1 + (size_t)rand() % 12 : n;
        if (end > n) end = n;
        while (end < n && (text[end] & 0xC0) == 0x80) end++;
        TokEncode encode = {.text = text + at, .n = end - at};
        cr_assert(tok_encode(rig->tokenizer, &encode, &list, &error));
    }
    return list;
}

Test(answer, however_tokens_cut_the_text)
{
    static const char *const stops[] = {NULL, "\n\n", "ld", "}", "I look", "\xC3\xBC"};
    TokenRig rig = token_rig_new(1 << 16, 1 << 12);
    srand(3);
    for (size_t i = 0; i < n_answer_cases; i++) {
        AnswerStyle style;
        AnswerPlan plan = answer_case_plan(&answer_cases[i], &style);
        for (size_t s = 0; s < sizeof stops / sizeof *stops; s++) {
            size_t n_stop = stops[s] ? strlen(stops[s]) : 0;
            Request request = {
                .answer = &plan, .max_tokens = 1 << 20, .stop = {.text = &stops[s], .n_bytes = &n_stop, .n = s > 0}};
            Buffer first, shown;
            buffer_init(&first, 1 << 20);
            buffer_init(&shown, 1 << 20);
            for (int round = 0; round < 40; round++) {
                TokenList list = cut_text(&rig, answer_cases[i].text, round);
                cr_assert(token_list_push(&list, TINY_IM_END, &error));
                Buffer *into = round ? &shown : &first;
                buffer_clear(into);
                answer_shows(rig.tokenizer, &request, list.ids, list.n, into);
                cr_expect(!round || !strcmp(first.data, shown.data), "%s, stop %s\n  one: %s\n  two: %s",
                          answer_cases[i].text, s ? stops[s] : "none", first.data, shown.data);
                token_list_done(&list);
            }
            if (!s) {
                cr_expect(!strncmp(first.data, answer_cases[i].wanted, strlen(answer_cases[i].wanted)));
                cr_expect_str_eq(first.data + strlen(answer_cases[i].wanted), "|stop");
            }
            buffer_done(&first);
            buffer_done(&shown);
        }
    }
    token_rig_free(&rig);
}

static void expect_shows(const AnswerPlan *plan, const char *stop, uint32_t max_tokens, const char *text,
                         const char *wanted)
{
    TokenRig rig = token_rig_new(1 << 16, 1 << 12);
    uint32_t ids[TOKEN_RIG_MAX_IDS], n_ids = token_byte_ids(text, ids);
    size_t n_stop = stop ? strlen(stop) : 0;
    Request request = {
        .answer = plan, .max_tokens = max_tokens, .stop = {.text = &stop, .n_bytes = &n_stop, .n = stop != NULL}};
    Buffer shown;
    buffer_init(&shown, 1 << 16);
    ids[n_ids++] = TINY_IM_END;
    answer_shows(rig.tokenizer, &request, ids, n_ids, &shown);
    cr_expect_str_eq(shown.data, wanted);
    buffer_done(&shown);
    token_rig_free(&rig);
}

/* Stop strings look at content and at reasoning, at each by itself, and not into calls. */
Test(answer, stop_strings_and_calls)
{
    const AnswerCase hermes = {.format = "hermes", .reasoning = "think"};
    AnswerStyle style;
    AnswerPlan plan = answer_case_plan(&hermes, &style);
    static const char call[] = "ok\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \"x}y\"}}\n</tool_call>";
    expect_shows(&plan, "}", 1000, call, "C(ok)add({\"a\": \"x}y\"})|stop");
    expect_shows(&plan, "tool", 1000, call, "C(ok)add({\"a\": \"x}y\"})|stop");
    expect_shows(&plan, "k<", 1000, call, "C(ok)add({\"a\": \"x}y\"})|stop");
    expect_shows(&plan, "o", 1000, call, "|stop");
    expect_shows(&plan, "ab", 1000, "<think>xa</think>bab!", "R(xa)C(b)|stop");
    expect_shows(&plan, "ab", 1000, "<think>xab</think>b", "R(x)|stop");
    expect_shows(&plan, NULL, 40, call, "C(ok)add()|full");
    expect_shows(&plan, NULL, 55, call, "C(ok)add({\"a\": \"x}y\")|full");
}

static void control_keys(GgufWriter *writer)
{
    gguf_writer_u32(writer, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_u32(writer, "tokenizer.ggml.eos_token_id", 2);
    gguf_writer_u32(writer, "tokenizer.ggml.unknown_token_id", 0);
}

/* Marks that are control tokens count as tokens; the same letters as text are text. */
Test(answer, marks_may_be_control_tokens)
{
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", "[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]",
                                         "add",   "{",   "}",    "[TOOL_",       "CALLS]", "hm"};
    static const int32_t types[] = {2, 3, 3, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1};
    static const float scores[13] = {0};
    const VocabSpec spec = {.more = control_keys,
                            .model = "llama",
                            .tokens = tokens,
                            .types = types,
                            .scores = scores,
                            .n_tokens = 13,
                            .n_types = 13,
                            .n_scores = 13};
    static const struct {
        uint32_t ids[16];
        uint32_t n;
        const char *wanted;
    } cases[] = {
        {{5, 12, 6, 12, 3, 7, 4, 8, 9, 3, 7, 4, 8, 9, 2}, 15, "R(hm)C(hm)add({})add({})|stop"},
        {{10, 11, 7, 8, 9, 2}, 6, "C([TOOL_CALLS]add{})|stop"},
        {{3, 12, 4, 8, 9, 2}, 6, "C(hm{})|stop"},
        {{12, 4, 6, 7, 2}, 5, "C(hmadd)|stop"},
        {{3, 2}, 2, "|stop"},
    };
    TestTokenizer test = test_tokenizer_open(&spec);
    cr_assert(test.tokenizer, "%s", test.error.text);
    AnswerStyle style;
    cr_assert(answer_style_find(NULL, test.tokenizer, "mistral", "mistral", &style, &error), "%s", error.text);
    cr_assert_eq(style.n_control_ids, 4);
    AnswerPlan plan = {.style = &style, .splits_reasoning = true, .tools = answer_case_tools, .n_tools = 2};
    Request request = {.answer = &plan, .max_tokens = 100};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buffer shown;
        buffer_init(&shown, 1 << 16);
        answer_shows(test.tokenizer, &request, cases[i].ids, cases[i].n, &shown);
        cr_expect_str_eq(shown.data, cases[i].wanted);
        buffer_done(&shown);
    }
    test_tokenizer_done(&test);
}
