/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/answer_cases.h"
#include "tests/support/sanitized.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pushes text cut behind the bytes that 'cuts' says, ascending; the pieces of a code point stay together. */
static void parse(const AnswerPlan *plan, const char *text, size_t n, const size_t *cuts, size_t n_cuts, Buffer *shown)
{
    Error error;
    AnswerParser *parser;
    AnswerParts parts, all;
    answer_parts_init(&parts, 1 << 20);
    answer_parts_init(&all, 1 << 20);
    cr_assert(answer_parser_new(plan, &parser, &error));
    for (size_t i = 0, at = 0; i <= n_cuts; i++) {
        size_t end = i < n_cuts ? cuts[i] : n;
        answer_parts_clear(&parts);
        cr_assert(answer_parser_push(parser, text + at, end - at, &parts, &error), "%s", error.text);
        cr_assert(i < n_cuts || answer_parser_finish(parser, &parts, &error));
        const char *piece = parts.text.data;
        for (uint32_t k = 0; k < parts.n; piece += parts.items[k++].n_bytes)
            answer_parts_add(&all, parts.items[k].kind, piece, parts.items[k].n_bytes);
        at = end;
    }
    answer_case_show(&all, shown);
    answer_parser_free(parser);
    answer_parts_done(&parts);
    answer_parts_done(&all);
}

static void expect(const AnswerCase *one, const AnswerPlan *plan, const size_t *cuts, size_t n_cuts)
{
    Buffer shown;
    buffer_init(&shown, 1 << 20);
    parse(plan, one->text, strlen(one->text), cuts, n_cuts, &shown);
    const char *text = shown.data ? shown.data : "";
    cr_expect_eq(strcmp(text, one->wanted), 0, "%s, %zu cuts at %zu: %s\n   gives %s\n  wanted %s", one->format, n_cuts,
                 n_cuts ? cuts[0] : 0, one->text, text, one->wanted);
    buffer_done(&shown);
}

Test(answer_parser, every_format_is_read)
{
    for (size_t i = 0; i < n_answer_cases; i++) {
        AnswerStyle style;
        AnswerPlan plan = answer_case_plan(&answer_cases[i], &style);
        expect(&answer_cases[i], &plan, NULL, 0);
    }
}

Test(answer_parser, cuts_change_nothing)
{
    srand(1);
    for (size_t i = 0; i < n_answer_cases; i++) {
        const AnswerCase *one = &answer_cases[i];
        AnswerStyle style;
        AnswerPlan plan = answer_case_plan(one, &style);
        size_t n = strlen(one->text), cuts[1024];
        for (cuts[0] = 0; cuts[0] <= n; cuts[0]++)
            for (cuts[1] = cuts[0]; cuts[1] <= n; cuts[1] += SANITIZED_SHARE) expect(one, &plan, cuts, 2);
        for (int round = 0; round < 100; round++) {
            size_t n_cuts = 0;
            for (size_t at = 0; at < n && n_cuts < 1024; at++)
                if (rand() % (round % 7 + 1) == 0) cuts[n_cuts++] = at;
            expect(one, &plan, cuts, n_cuts);
        }
    }
}

/* ---- long words ---- */

/* {"kkk...": 1} in a form whose calls are before, the key, behind. */
static void expect_long_key(const char *format, const char *template, const char *before, const char *behind, size_t n)
{
    char *text = malloc(3 * n + 200), *wanted = malloc(n + 64), *key = malloc(n + 1);
    cr_assert(text && wanted && key);
    memset(key, 'k', n);
    key[n] = '\0';
    sprintf(text, "%s%s%s", before, key, behind);
    sprintf(wanted, "add({\"%s\": 1})", key);
    const AnswerCase one = {format, template, text, wanted, 0, 0};
    AnswerStyle style;
    AnswerPlan plan = answer_case_plan(&one, &style);
    Buffer shown;
    buffer_init(&shown, 1 << 20);
    parse(&plan, text, strlen(text), NULL, 0, &shown);
    cr_expect(shown.data && !strcmp(shown.data, wanted), "%s, a key of %zu bytes: %.60s", format, n, shown.data);
    buffer_done(&shown);
    free(text);
    free(wanted);
    free(key);
}

Test(answer_parser, keys_may_be_long)
{
    static const size_t sizes[] = {512, 513, 4096, 4097, 100000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        expect_long_key("pythonic", "none", "[add(", "=1)]", sizes[i]);
        expect_long_key("gemma", "none", "<start_function_call>call:add{", ":1}<end_function_call>", sizes[i]);
        expect_long_key("qwen3-coder", "none",
                        "<tool_call>\n<function=add>\n<parameter=", ">\n1\n</parameter>\n</function>\n</tool_call>",
                        sizes[i]);
    }
}

/* A name ends where it is said to, not at a NUL, and none is read beyond. */
Test(answer_parser, a_nul_is_a_byte_like_another)
{
    static const char text[] = "<tool_call><function=weather><parameter=city\0\0\0\0\0\0\0\0\0>\n12\n</parameter>"
                               "<parameter=ok>true\0s</parameter></function></tool_call>";
    static const char wanted[] =
        "weather({\"city\\u0000\\u0000\\u0000\\u0000\\u0000\\u0000\\u0000\\u0000\\u0000\": 12, "
        "\"ok\": \"true\\u0000s\"})";
    const AnswerCase one = {"qwen3-coder", "none", text, wanted, 0, 0};
    AnswerStyle style;
    AnswerPlan plan = answer_case_plan(&one, &style);
    Buffer shown;
    buffer_init(&shown, 1 << 16);
    parse(&plan, text, sizeof text - 1, NULL, 0, &shown);
    cr_expect_str_eq(shown.data, wanted);
    buffer_done(&shown);
}

/* ---- marks that are control tokens ---- */

/* A tag is text, and what opens reasoning in a channel is three tokens. */
static bool may_be_token(const AnswerStyle *style, int mark)
{
    return mark != MARK_CALL_ALSO && (mark != MARK_THINK || style->format->body != CALL_CHANNELS);
}

/* The text with each mark as the parser gets it when it is a control token. */
static void replace_marks(const AnswerStyle *style, const char *text, size_t n, Buffer *out)
{
    Error error;
    for (size_t at = 0; at < n;) {
        int found = ANSWER_MARKS;
        for (int mark = 0; mark < ANSWER_MARKS; mark++) {
            size_t n_mark = strlen(style->marks[mark].text);
            bool fits = may_be_token(style, mark) && style->marks[mark].n && n_mark <= n - at &&
                        !memcmp(text + at, style->marks[mark].text, n_mark);
            if (fits && (found == ANSWER_MARKS || n_mark >= strlen(style->marks[found].text))) found = mark;
        }
        const char control[] = {ANSWER_CONTROL, (char)('0' + found)};
        cr_assert(
            buffer_append(out, found == ANSWER_MARKS ? text + at : control, found == ANSWER_MARKS ? 1 : 2, &error));
        at += found == ANSWER_MARKS ? 1 : strlen(style->marks[found].text);
    }
}

static void set_control(const AnswerStyle *from, AnswerMarker *marker)
{
    Buffer bytes;
    buffer_init(&bytes, ANSWER_MARK_MAX_BYTES);
    replace_marks(from, marker->bytes, marker->n, &bytes);
    marker->n = (uint32_t)bytes.n;
    if (bytes.n) memcpy(marker->bytes, bytes.data, bytes.n);
    buffer_done(&bytes);
}

static bool has_rest_of_mark(const char *text)
{
    static const char *const beginnings[] = {"<|",    "<｜",   "<tool", "</tool", "<th",  "</th",
                                             "[TOOL", "[ARGS", "[TH",   "<start", "<end", "<esc"};
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (strstr(text, beginnings[i])) return true;
    return false;
}

/* All that has whole marks alone reads the same when these are control tokens. */
Test(answer_parser, marks_may_be_control_tokens)
{
    int n_cases = 0;
    for (size_t i = 0; i < n_answer_cases; i++) {
        const AnswerCase *one = &answer_cases[i];
        AnswerStyle texts, style;
        AnswerPlan plan = answer_case_plan(one, &texts);
        Buffer text, shown;
        buffer_init(&text, 1 << 16);
        buffer_init(&shown, 1 << 16);
        style = texts;
        for (int mark = 0; mark < ANSWER_MARKS; mark++)
            if (mark != MARK_CALL_ALSO) set_control(&texts, &style.marks[mark]);
        set_control(&texts, &style.call_head);
        set_control(&texts, &style.call_neck);
        set_control(&texts, &style.call_tail);
        plan.style = &style;
        replace_marks(&texts, one->text, strlen(one->text), &text);
        if (text.n && !has_rest_of_mark(text.data) && !has_rest_of_mark(one->wanted) && text.n < strlen(one->text)) {
            parse(&plan, text.data, text.n, NULL, 0, &shown);
            const char *got = shown.data ? shown.data : "";
            cr_expect_str_eq(got, one->wanted, "%s: %s gives %s", one->format, one->text, got);
            n_cases++;
        }
        buffer_done(&text);
        buffer_done(&shown);
    }
    cr_expect_gt(n_cases, 30, "%d", n_cases);
}
