/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles schemas and tells what their grammars do. usage: schema_check [MODEL.gguf]
 * Each line of the input is {"schema", "instances": [text...], "samples": n, "seed", "draft7": bool, "order": bool},
 * each line of the output {"error" | "empty" | "states", "usec", "accepts": [bool...], "samples": [text...]}. Samples
 * are random walks over the model's vocabulary (without one: over bytes) that came to an end.
 */
#include "base/clock.h"
#include "engine/sample/grammar/matcher.h"
#include "engine/sample/grammar/vocab.h"
#include "engine/sample/schema/schema.h"
#include "tests/support/grammar_walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TRIES = 200, MAX_TEXT_BYTES = 1 << 16 };

static void fail(const char *what, const Error *error)
{
    fprintf(stderr, "schema_check: %s: %s\n", what, error->text);
    exit(1);
}

static void add_samples(GrammarWalk *walk, Grammar *grammar, int wanted, cJSON *answer)
{
    Error error = {0};
    Buffer text;
    bool ended;
    cJSON *samples = cJSON_AddArrayToObject(answer, "samples");
    buffer_init(&text, MAX_TEXT_BYTES);
    for (int tries = 0; tries < MAX_TRIES && cJSON_GetArraySize(samples) < wanted; tries++) {
        if (!grammar_walk(walk, grammar, &text, &ended, &error)) fail("a walk", &error);
        if (ended) cJSON_AddItemToArray(samples, cJSON_CreateString(text.data ? text.data : ""));
    }
    buffer_done(&text);
}

static void add_accepts(GrammarMatcher *matcher, const cJSON *instances, cJSON *answer)
{
    cJSON *accepts = cJSON_AddArrayToObject(answer, "accepts");
    for (const cJSON *item = instances ? instances->child : NULL; item; item = item->next) {
        Error error = {0};
        bool ok = matcher_reset(matcher, &error) &&
                  matcher_push_bytes(matcher, (const uint8_t *)item->valuestring, strlen(item->valuestring), &error) &&
                  matcher_may_end(matcher);
        cJSON_AddItemToArray(accepts, cJSON_CreateBool(ok));
    }
}

/* Words that are tried when a text should end; for free(). */
static bool set_likely(GrammarWalk *walk, const cJSON *likely)
{
    size_t n = likely ? (size_t)cJSON_GetArraySize(likely) : 0;
    walk->likely = calloc(n + 1, sizeof *walk->likely);
    walk->n_likely = 0;
    for (const cJSON *item = likely && walk->likely ? likely->child : NULL; item; item = item->next)
        walk->likely[walk->n_likely++] = item->valuestring;
    return walk->likely;
}

static bool use(GrammarWalk *walk, Grammar *grammar, const cJSON *request, cJSON *answer, Error *error)
{
    GrammarMatcher *matcher = NULL;
    const cJSON *samples = cJSON_GetObjectItem(request, "samples"), *seed = cJSON_GetObjectItem(request, "seed");
    if (!set_likely(walk, cJSON_GetObjectItem(request, "likely")))
        return error_set(error, ERR_NO_MEMORY, "no memory for words");
    bool ok = matcher_new(grammar, &matcher, error);
    walk->seed = seed ? (uint64_t)seed->valuedouble : 0;
    cJSON_AddNumberToObject(answer, "states", grammar_n_states(grammar));
    if (ok) add_accepts(matcher, cJSON_GetObjectItem(request, "instances"), answer);
    if (ok && samples) add_samples(walk, grammar, samples->valueint, answer);
    matcher_free(matcher);
    free(walk->likely);
    return ok;
}

static bool check(GrammarWalk *walk, const cJSON *request, cJSON *answer, Error *error)
{
    SchemaOptions options = {.keeps_order = cJSON_IsTrue(cJSON_GetObjectItem(request, "order")),
                             .ref_stands_alone = cJSON_IsTrue(cJSON_GetObjectItem(request, "draft7"))};
    GrammarBuilder *builder;
    GrammarNode root;
    Grammar *grammar;
    bool is_empty = false;
    if (!grammar_builder_new(&builder, error)) return false;
    uint64_t began = clock_now_usec();
    bool ok = schema_compile(cJSON_GetObjectItem(request, "schema"), &options, builder, &root, &is_empty, error);
    uint64_t built = clock_now_usec();
    ok = ok && grammar_compile(builder, root, walk->vocab, &grammar, error);
    cJSON_AddNumberToObject(answer, "schema_usec", (double)(built - began));
    cJSON_AddNumberToObject(answer, "usec", (double)(clock_now_usec() - began));
    if (is_empty) cJSON_AddBoolToObject(answer, "empty", true);
    if (ok) {
        ok = use(walk, grammar, request, answer, error);
        grammar_release(grammar);
    }
    grammar_builder_free(builder);
    return ok;
}

static bool answer_line(GrammarWalk *walk, const char *line)
{
    cJSON *request = cJSON_Parse(line), *answer = cJSON_CreateObject();
    Error error = {0};
    if (!request || !answer) return false;
    if (!check(walk, request, answer, &error)) cJSON_AddStringToObject(answer, "error", error.text);
    char *text = cJSON_PrintUnformatted(answer);
    bool ok = text && puts(text) >= 0 && fflush(stdout) == 0;
    free(text);
    cJSON_Delete(answer);
    cJSON_Delete(request);
    return ok;
}

int main(int argc, char **argv)
{
    Error error = {0};
    Gguf *gguf = NULL;
    Tokenizer *tokenizer = NULL;
    GrammarVocab *vocab = NULL;
    GrammarWalk walk = {0};
    bool ok = argc > 1 ? gguf_open(argv[1], &gguf, &error) && tok_new(gguf, &tokenizer, &error) &&
                             grammar_vocab_of(tokenizer, &vocab, &error)
                       : grammar_walk_bytes(&vocab, &error);
    ok = ok && grammar_walk_init(&walk, vocab, &error);
    char *line = NULL;
    size_t capacity = 0;
    while (ok && getline(&line, &capacity, stdin) > 0) ok = answer_line(&walk, line);
    if (!ok) fprintf(stderr, "schema_check: %s\n", error.text);
    free(line);
    grammar_walk_done(&walk);
    grammar_vocab_free(vocab);
    tok_free(tokenizer);
    gguf_close(gguf);
    return ok ? 0 : 1;
}
