/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/report.h"
#include "tests/engine/eval/results_maker.h"

#include <criterion/criterion.h>
#include <string.h>

static Error error;

typedef struct Fixture {
    Results results;
    Arena arena;
    Summary summary;
    Report report;
    Buffer out;
} Fixture;

static void open_fixture(Fixture *f, bool is_empty)
{
    f->results = results_maker_new();
    const char *hostile = "pages<script>&\"x\"";
    for (uint32_t l = 1000; !is_empty && l <= 2000; l += 1000) {
        results_maker_answers(&f->results, (AnswersKey){"dense", "kv", l, 0}, "11110", -1);
        results_maker_answers(&f->results, (AnswersKey){hostile, "kv", l, 0}, "01110", -2);
        results_maker_rows(&f->results, (RowsKey){hostile, "decode", l}, 8, 0.1 * l);
        results_maker_rows(&f->results, (RowsKey){hostile, "prefill", l}, 8, 0);
        const RecallCell recall = {hostile, l, 0, 1, 1, 0.5, 1, 0.25};
        cr_assert(results_add_recall(&f->results, &recall, &error));
    }
    f->summary = results_maker_summary(&f->results, &f->arena);
    f->report = (Report){&f->results, &f->summary, &results_maker_rules, "a <model>"};
    buffer_init(&f->out, 1 << 20);
}

static void close_fixture(Fixture *f)
{
    buffer_done(&f->out);
    arena_done(&f->arena);
    results_done(&f->results);
}

/* Every element that is opened is closed, in order. */
static void check_balance(const char *html)
{
    static const char *const alone[] = {"meta", "br", "th", "td", "tr", "rect", "line", "polyline", "!DOCTYPE"};
    char open[64][16];
    int depth = 0;
    for (const char *at = html; (at = strchr(at, '<')); at++) {
        bool closes = at[1] == '/', skipped = false;
        const char *name = at + 1 + closes;
        size_t n = strcspn(name, " >/\n");
        for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
            skipped |= strlen(alone[i]) == n && !memcmp(alone[i], name, n);
        if (skipped) continue;
        if (closes) {
            cr_assert(depth > 0 && strlen(open[depth - 1]) == n && !memcmp(open[depth - 1], name, n), "%.20s", at);
            depth--;
        } else {
            cr_assert(depth < 64 && n < sizeof open[0]);
            memcpy(open[depth], name, n);
            open[depth++][n] = '\0';
        }
    }
    cr_assert_eq(depth, 0);
}

Test(test_report, the_page_is_whole_and_fetches_nothing)
{
    for (int is_empty = 0; is_empty < 2; is_empty++) {
        Fixture f;
        open_fixture(&f, is_empty);
        cr_assert(report_html(&f.report, &f.out, &error), "%s", error.text);
        check_balance(f.out.data);
        cr_assert_null(strstr(f.out.data, "<script"));
        cr_assert_null(strstr(f.out.data, "http"));
        cr_assert_null(strstr(f.out.data, "nan"));
        cr_assert_null(strstr(f.out.data, "inf"));
        cr_assert_eq(strstr(f.out.data, "<rect") != NULL, !is_empty);
        cr_assert_eq(strstr(f.out.data, "<polyline") != NULL, !is_empty);
        close_fixture(&f);
    }
}

Test(test_report, the_object_says_what_the_summary_does)
{
    Fixture f;
    cJSON *object;
    open_fixture(&f, false);
    cr_assert(report_json(&f.report, &object, &error), "%s", error.text);
    char *text = cJSON_Print(object);
    cJSON *again = cJSON_Parse(text);
    cr_assert(cJSON_Compare(object, again, true));
    cr_assert_eq(cJSON_GetArraySize(cJSON_GetObjectItem(again, "tasks")), 4);
    cr_assert_eq(cJSON_GetArraySize(cJSON_GetObjectItem(again, "policies")), 4);
    cr_assert_eq(cJSON_GetArraySize(cJSON_GetObjectItem(again, "rows")), 6);
    cr_assert_eq(cJSON_GetArraySize(cJSON_GetObjectItem(again, "recall")), 2);
    const cJSON *task = cJSON_GetArrayItem(cJSON_GetObjectItem(again, "tasks"), 1);
    cr_assert_eq(cJSON_GetObjectItem(task, "right")->valuedouble, 3);
    cr_assert_eq(cJSON_GetObjectItem(task, "kv_share")->valuedouble, 0.25);
    cr_assert_eq(cJSON_GetArraySize(cJSON_GetObjectItem(task, "right_by_depth")), 4);
    cJSON_free(text);
    cJSON_Delete(again);
    cJSON_Delete(object);
    close_fixture(&f);
}

Test(test_report, the_text_has_a_line_for_each)
{
    Fixture f;
    open_fixture(&f, false);
    cr_assert(report_text(&f.report, &f.out, &error), "%s", error.text);
    uint32_t n = 0;
    for (const char *at = f.out.data; (at = strstr(at, "pages<script>")); at++) n++;
    cr_assert_eq(n, 2 + 2 + 6 + 2);
    close_fixture(&f);
}
