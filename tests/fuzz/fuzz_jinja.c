/* SPDX-License-Identifier: Apache-2.0 */
/* Templates: any bytes parse or fail with a reason, and what parses renders within its limits or fails with one. */
#include "engine/text/jinja.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char context[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\" h\\u00e9 <x>\\n\"},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":[1,2."
    "5,"
    "null,true]}}}]}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
    "\"object\"}}}],"
    "\"s\":\"text\",\"n\":7,\"f\":0.5,\"l\":[3,1,2],\"d\":{\"b\":1,\"a\":\"x\"},\"add_generation_prompt\":true}";

static void set_variables(JinjaRun *run, const cJSON *json)
{
    for (const cJSON *item = json->child; item; item = item->next) {
        JValue value;
        if (!jinja_from_json(run, item, &value) || !jinja_run_set(run, item->string, value)) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static cJSON *json;
    if (!json) json = cJSON_Parse(context);
    JinjaLimits limits = {.max_text_bytes = 1 << 16, .max_memory_bytes = 4 << 20, .max_steps = 100000};
    Error error = {0};
    JinjaProgram *program;
    JinjaRun *run;
    JText text;
    if (!jinja_parse((const char *)data, n, &program, &error)) {
        if (error.code != ERR_TEMPLATE) abort();
        return 0;
    }
    if (!jinja_run_new(&limits, 1700000000, &run, &error)) abort();
    set_variables(run, json);
    if (!jinja_render(run, program, &text)) {
        if (error.code != ERR_TEMPLATE && error.code != ERR_TOO_LARGE) abort();
    } else if (text.n > limits.max_text_bytes) {
        abort();
    }
    jinja_run_free(run);
    jinja_program_free(program);
    return 0;
}
