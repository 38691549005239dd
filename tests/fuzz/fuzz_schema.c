/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON schemas: any JSON compiles or is refused with a reason, in each form of writing values, and a random walk
 * through the grammar is never at a loss; where the form is JSON it ends in text that is.
 */
#include "base/clock.h"
#include "engine/sample/grammar/matcher.h"
#include "engine/sample/schema/schema.h"
#include "server/api_json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Instrumented code is many times slower: a unit that would use up the time that a request has is not worth it. */
enum { MAX_BYTES = 300, MAX_USEC = 1000000 };

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static bool push(GrammarMatcher *matcher, uint32_t byte)
{
    Error error;
    if (matcher_push_bytes(matcher, &(uint8_t){(uint8_t)byte}, 1, &error)) return true;
    if (error.code != ERR_INVALID && error.code != ERR_TOO_LARGE) abort();
    return false;
}

/* Any byte that may follow; what closes is tried first, the longer it takes. 0: none. */
static uint8_t push_any(GrammarMatcher *matcher, size_t at, uint32_t *state)
{
    static const char closing[] = "\"}]";
    for (const char *c = closing; at > 60 && *c; c++)
        if (next_random(state) % 4 && push(matcher, (uint8_t)*c)) return (uint8_t)*c;
    uint32_t first = next_random(state), step = 2 * (next_random(state) % 128) + 1;
    for (uint32_t i = 0; i < 256; i++) {
        uint8_t byte = (uint8_t)(first + i * step);
        if (byte && push(matcher, byte)) return byte;
    }
    return 0;
}

static void walk(Grammar *grammar, bool is_json, uint32_t state)
{
    GrammarMatcher *matcher;
    Error error = {0};
    char text[MAX_BYTES + 1];
    size_t n = 0;
    if (!matcher_new(grammar, &matcher, &error)) abort();
    while (n < MAX_BYTES && !(matcher_may_end(matcher) && (matcher_is_over(matcher) || next_random(&state) % 4 == 0))) {
        uint8_t byte = push_any(matcher, n, &state);
        if (!byte && !matcher_may_end(matcher)) abort();
        if (!byte) break;
        text[n++] = (char)byte;
    }
    text[n] = 0;
    if (is_json && matcher_may_end(matcher)) {
        cJSON *json = cJSON_ParseWithOpts(text, NULL, 1);
        if (!json) abort();
        cJSON_Delete(json);
    }
    matcher_free(matcher);
}

static void use(const cJSON *schema, const SchemaOptions *options, SchemaForm form, uint32_t seed)
{
    Error error = {0};
    GrammarBuilder *builder;
    GrammarNode root;
    Grammar *grammar;
    SchemaOptions own = options ? *options : (SchemaOptions){0};
    if (!grammar_builder_new(&builder, &error)) abort();
    grammar_builder_watch(builder, NULL, clock_now_usec() + MAX_USEC);
    const SchemaWriter writer = {.form = form,
                                 .mark = grammar_text(builder, "<q>"),
                                 .end = form == SCHEMA_TAGGED ? "</v>" : "<q>",
                                 .before_key = "<k=",
                                 .behind_key = ">",
                                 .behind_value = "</v>",
                                 .kinds_of = schema};
    own.is_object = form != SCHEMA_JSON;
    if (form != SCHEMA_JSON) own.writer = &writer;
    bool ok = schema_compile(schema, &own, builder, &root, NULL, &error);
    bool is_told = error.code == ERR_SCHEMA || (error.code == ERR_UNSUPPORTED && form != SCHEMA_JSON);
    /* what has a value has a text, so only limits are left, and values that a form cannot tell */
    bool is_limit = error.code == ERR_TOO_LARGE || error.code == ERR_NO_MEMORY || error.code == ERR_DEADLINE;
    if (!ok && !is_told && !is_limit) abort();
    if (ok && grammar_compile(builder, root, NULL, &grammar, &error)) {
        for (uint32_t i = 0; i < 3; i++) walk(grammar, form == SCHEMA_JSON, seed + i);
        grammar_release(grammar);
    } else if (ok && error.code != ERR_TOO_LARGE && error.code != ERR_DEADLINE && form == SCHEMA_JSON) {
        abort();
    }
    grammar_builder_free(builder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    Error error = {0};
    cJSON *schema;
    if (n > 4096) return 0;
    char *text = malloc(n + 1);
    if (!text) abort();
    if (n) memcpy(text, data, n);
    text[n] = 0;
    if (json_parse(text, n, &schema, &error)) {
        uint32_t seed = 2166136261u;
        for (size_t i = 0; i < n; i++) seed = (seed ^ data[i]) * 16777619u;
        const SchemaOptions ordered = {.keeps_order = true, .ref_stands_alone = true};
        use(schema, NULL, SCHEMA_JSON, seed);
        use(schema, &ordered, SCHEMA_JSON, seed);
        use(schema, &ordered, (SchemaForm)(1 + seed % 3), seed);
        if (!schema_check_strict(schema, &error) && error.code != ERR_SCHEMA) abort();
        cJSON_Delete(schema);
    }
    free(text);
    return 0;
}
