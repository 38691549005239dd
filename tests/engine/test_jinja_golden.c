/* SPDX-License-Identifier: Apache-2.0 */
/* Templates of every feature against what Python's jinja2 makes of them: tests/golden/make_jinja.py. */
#include "engine/text/jinja.h"
#include "tests/support/golden.h"

#include <criterion/criterion.h>
#include <string.h>

static bool render(const cJSON *golden, const char *template, JinjaRun **ret_run, JText *ret_text, Error *error)
{
    JinjaProgram *program;
    JinjaLimits limits = {.max_text_bytes = 1 << 20, .max_memory_bytes = 16 << 20, .max_steps = 1000000};
    int64_t now = (int64_t)cJSON_GetObjectItem(golden, "now_unix")->valuedouble;
    if (!jinja_parse(template, strlen(template), &program, error)) return false;
    bool ok = jinja_run_new(&limits, now, ret_run, error);
    cr_assert(ok);
    for (const cJSON *item = cJSON_GetObjectItem(golden, "context")->child; ok && item; item = item->next) {
        JValue value;
        ok = jinja_from_json(*ret_run, item, &value) && jinja_run_set(*ret_run, item->string, value);
    }
    ok = ok && jinja_render(*ret_run, program, ret_text);
    jinja_program_free(program);
    return ok;
}

static bool row_agrees(const cJSON *golden, const cJSON *row)
{
    const char *template = row->child->valuestring, *expected = row->child->next->valuestring;
    JinjaRun *run = NULL;
    JText text = {0};
    Error error;
    bool ok = render(golden, template, &run, &text, &error);
    bool agrees =
        ok == (expected != NULL) && (!ok || jinja_text_equal(text, (JText){.data = expected, .n = strlen(expected)}));
    if (!ok) cr_expect_eq(error.code, ERR_TEMPLATE);
    if (!agrees)
        cr_log_error("%s\n  expected: %s\n  got: %s%.*s", template, expected ? expected : "(refused)",
                     ok ? "" : error.text, (int)text.n, text.data ? text.data : "");
    jinja_run_free(run);
    return agrees;
}

Test(test_jinja_golden, equals_jinja2)
{
    cJSON *golden = golden_load("jinja.json");
    size_t n = 0, wrong = 0;
    const cJSON *row;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(golden, "rows"))
    {
        n++;
        wrong += !row_agrees(golden, row);
    }
    cr_expect(n > 600);
    cr_expect_eq(wrong, 0, "%zu of %zu rows differ", wrong, n);
    cJSON_Delete(golden);
}
