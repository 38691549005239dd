/* SPDX-License-Identifier: Apache-2.0 */
/*
 * render_template TEMPLATE CONTEXT...: renders a template file with each JSON file of variables and prints, for each,
 * one JSON line: {"text": ...} or {"error": ...}. For comparing with other implementations by hand.
 */
#include "engine/text/jinja.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_FILE_BYTES = 16 << 20 };

static char *read_file(const char *path, size_t *ret_n)
{
    FILE *file = fopen(path, "rb");
    char *data = malloc(MAX_FILE_BYTES + 1);
    *ret_n = file && data ? fread(data, 1, MAX_FILE_BYTES, file) : 0;
    if (!file || !data || !feof(file)) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(1);
    }
    fclose(file);
    data[*ret_n] = '\0';
    return data;
}

static bool render(const JinjaProgram *program, const cJSON *context, JinjaRun *run, JText *ret)
{
    for (const cJSON *item = context->child; item; item = item->next) {
        JValue value;
        if (!jinja_from_json(run, item, &value) || !jinja_run_set(run, item->string, value)) return false;
    }
    return jinja_render(run, program, ret);
}

static void print_result(bool ok, JText text, const Error *error)
{
    cJSON *line = cJSON_CreateObject();
    char *copy = calloc(1, text.n + 1);
    if (!line || !copy) exit(1);
    for (size_t i = 0; i < text.n; i++) copy[i] = text.data[i];
    cJSON_AddStringToObject(line, ok ? "text" : "error", ok ? copy : error->text);
    char *printed = cJSON_PrintUnformatted(line);
    puts(printed);
    cJSON_free(printed);
    cJSON_Delete(line);
    free(copy);
}

static void render_file(const JinjaProgram *program, const char *path)
{
    JinjaLimits limits = {.max_text_bytes = 64 << 20, .max_memory_bytes = 1 << 30, .max_steps = 100 * 1000 * 1000};
    size_t n;
    char *json = read_file(path, &n);
    cJSON *context = cJSON_Parse(json);
    Error error;
    JinjaRun *run;
    JText text = {0};
    if (!context || !jinja_run_new(&limits, 1700000000, &run, &error)) {
        fprintf(stderr, "%s is no JSON object\n", path);
        exit(1);
    }
    bool ok = render(program, context, run, &text);
    print_result(ok, text, &error);
    jinja_run_free(run);
    cJSON_Delete(context);
    free(json);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: render_template TEMPLATE CONTEXT...\n");
        return 2;
    }
    size_t n;
    char *source = read_file(argv[1], &n);
    Error error;
    JinjaProgram *program;
    if (jinja_parse(source, n, &program, &error)) {
        for (int i = 2; i < argc; i++) render_file(program, argv[i]);
        jinja_program_free(program);
    } else {
        for (int i = 2; i < argc; i++) print_result(false, (JText){0}, &error);
    }
    free(source);
    return 0;
}
