/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes and reads calls of a tool at random. usage: call_check
 * Each line of the input is {"format", "parameters", "samples": n, "seed"}, each line of the output {"error", "code"}
 * or
 * {"samples": [{"text", "arguments"}...]}: what a random model wrote under the grammar, and what the parser made of it
 * (null: not one call and nothing else).
 */
#include "tests/support/call_rig.h"
#include "tests/support/grammar_walk.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_TRIES = 100, MAX_TEXT_BYTES = 1 << 16 };

static const char *likely[] = {"\n</parameter>\n", "</arg_value>\n", "<escape>", "<|\"|>", "\"", "}", "]", ")"};

static bool add_sample(const CallRig *rig, const Buffer *text, Buffer *arguments, cJSON *samples)
{
    cJSON *sample = cJSON_CreateObject();
    cJSON_AddItemToArray(samples, sample);
    bool ok = cJSON_AddStringToObject(sample, "text", text->data ? text->data : "");
    if (call_rig_read(rig, text->data, text->n, arguments))
        return ok && cJSON_AddStringToObject(sample, "arguments", arguments->data);
    return ok && cJSON_AddNullToObject(sample, "arguments");
}

static bool check(GrammarWalk *walk, const cJSON *request, cJSON *answer, Error *error)
{
    CallRig rig;
    Buffer text, arguments;
    const char *format = cJSON_GetObjectItem(request, "format")->valuestring;
    int wanted = cJSON_GetObjectItem(request, "samples")->valueint;
    walk->seed = (uint64_t)cJSON_GetObjectItem(request, "seed")->valuedouble;
    if (!call_rig_init(&rig, format, cJSON_GetObjectItem(request, "parameters"), walk->vocab, error)) return false;
    buffer_init(&text, MAX_TEXT_BYTES);
    buffer_init(&arguments, MAX_TEXT_BYTES);
    cJSON *samples = cJSON_AddArrayToObject(answer, "samples");
    bool ok = true, ended;
    for (int tries = 0; ok && tries < MAX_TRIES && cJSON_GetArraySize(samples) < wanted; tries++) {
        ok = grammar_walk(walk, rig.grammar.grammar, &text, &ended, error);
        if (ok && ended) ok = add_sample(&rig, &text, &arguments, samples);
    }
    buffer_done(&text);
    buffer_done(&arguments);
    call_rig_done(&rig);
    return ok;
}

static bool answer_line(GrammarWalk *walk, const char *line)
{
    cJSON *request = cJSON_Parse(line), *answer = cJSON_CreateObject();
    Error error = {0};
    if (!request || !answer) return false;
    if (!check(walk, request, answer, &error)) {
        cJSON_AddStringToObject(answer, "error", error.text);
        cJSON_AddNumberToObject(answer, "code", error.code);
    }
    char *text = cJSON_PrintUnformatted(answer);
    bool ok = text && puts(text) >= 0 && fflush(stdout) == 0;
    free(text);
    cJSON_Delete(answer);
    cJSON_Delete(request);
    return ok;
}

int main(void)
{
    Error error = {0};
    GrammarVocab *vocab = NULL;
    GrammarWalk walk = {0};
    bool ok = grammar_walk_bytes(&vocab, &error) && grammar_walk_init(&walk, vocab, &error);
    walk.likely = likely;
    walk.n_likely = sizeof likely / sizeof *likely;
    char *line = NULL;
    size_t capacity = 0;
    while (ok && getline(&line, &capacity, stdin) > 0) ok = answer_line(&walk, line);
    if (!ok) fprintf(stderr, "call_check: %s\n", error.text);
    free(line);
    grammar_walk_done(&walk);
    grammar_vocab_free(vocab);
    return ok ? 0 : 1;
}
