/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/answer_cases.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
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
            for (cuts[1] = cuts[0]; cuts[1] <= n; cuts[1]++) expect(one, &plan, cuts, 2);
        for (int round = 0; round < 100; round++) {
            size_t n_cuts = 0;
            for (size_t at = 0; at < n && n_cuts < 1024; at++)
                if (rand() % (round % 7 + 1) == 0) cuts[n_cuts++] = at;
            expect(one, &plan, cuts, n_cuts);
        }
    }
}
