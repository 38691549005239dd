/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grammar and parser of each form are inverse: what a random model writes under the grammar of a random schema is read
 * back as arguments that the schema's own grammar in JSON takes.
 */
#include "tests/support/call_rig.h"
#include "tests/support/grammar_walk.h"
#include "tests/support/sanitized.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Error error;

static const struct {
    const char *format;
    bool has_bare_keys;
} formats[] = {{"hermes", false},      {"qwen3-coder", false},   {"glm", false},     {"kimi-k2", false},
               {"deepseek-v3", false}, {"deepseek-v3.1", false}, {"mistral", false}, {"gemma", true},
               {"gemma4", true},       {"lfm2", true},           {"pythonic", true}, {"llama3-json", false},
               {"generic", false},     {"gpt-oss", false}};

enum {
    N_FORMATS = sizeof formats / sizeof *formats,
    N_SCHEMAS = 40 / SANITIZED_SHARE,
    N_TEXTS = 4,
    MAX_BYTES = 1 << 20
};

static const char *const likely[] = {"\n</parameter>\n", "</arg_value>\n", "<escape>", "<|\"|>", "\"", "}", "]", ")"};

/* ---- random schemas ---- */

typedef struct Maker {
    GrammarWalk *walk;
    bool has_bare_keys;
} Maker;

static uint32_t draw(Maker *maker, uint32_t n)
{
    return (uint32_t)(grammar_walk_random(maker->walk) % n);
}

static cJSON *make_schema(Maker *maker, int depth);

static void set(cJSON *schema, const char *key, const char *json)
{
    cJSON_AddItemToObject(schema, key, cJSON_Parse(json));
}

static const char *draw_key(Maker *maker)
{
    static const char *const keys[] = {"city", "b_2", "käse", "x-y", "first name", "$filter", "a\"b", "null"};
    const char *key = keys[draw(maker, 8)];
    return maker->has_bare_keys && strpbrk(key, " $\"") ? "true" : key;
}

static void make_object(Maker *maker, cJSON *schema, int depth)
{
    static const char *const others[] = {"false", "true", "{\"type\":\"string\"}", "{\"type\":[\"null\",\"string\"]}"};
    cJSON *properties = cJSON_AddObjectToObject(schema, "properties"), *required = cJSON_CreateArray();
    for (uint32_t i = draw(maker, 4); i > 0; i--) {
        const char *key = draw_key(maker);
        if (cJSON_HasObjectItem(properties, key)) continue;
        cJSON_AddItemToObject(properties, key, make_schema(maker, depth - 1));
        if (draw(maker, 2)) cJSON_AddItemToArray(required, cJSON_CreateString(key));
    }
    set(schema, "additionalProperties", others[draw(maker, 4)]);
    cJSON_AddItemToObject(schema, "required", required);
    if (!draw(maker, 4)) set(schema, "patternProperties", "{\"^z\":{\"type\":[\"boolean\",\"string\"]}}");
}

static void make_text(Maker *maker, cJSON *schema)
{
    static const char *const limits[][2] = {{"maxLength", "5"},     {"minLength", "3"},   {"pattern", "\"^[a-z<&]+$\""},
                                            {"format", "\"date\""}, {"pattern", "\"<\""}, {"title", "\"any\""}};
    const char *const *limit = limits[draw(maker, 6)];
    set(schema, limit[0], limit[1]);
}

/* Of one type, of several, by its values, or of any. */
static cJSON *make_schema(Maker *maker, int depth)
{
    static const char *const scalars[] = {"\"integer\"",           "\"number\"",
                                          "\"boolean\"",           "\"null\"",
                                          "[\"string\",\"null\"]", "[\"integer\",\"string\",\"boolean\"]"};
    static const char *const values[] = {"[\"a\",\"12\",\"true\",\"<b>\"]", "[1,\"1\",null,\"null\"]",
                                         "[[1],{\"a\":2}]", "[\"\",\" x \\n\"]"};
    cJSON *schema = cJSON_CreateObject(), *list;
    switch (draw(maker, depth > 0 ? 10 : 6)) {
    case 0:
        set(schema, "enum", values[draw(maker, 4)]);
        break;
    case 1:
        if (draw(maker, 2)) break;
        set(schema, "minimum", "-5");
        /* fall through */
    case 2:
        set(schema, "type", scalars[draw(maker, 6)]);
        break;
    case 3:
    case 4:
    case 5:
        set(schema, "type", "\"string\"");
        make_text(maker, schema);
        break;
    case 6:
        set(schema, "type", "\"array\"");
        cJSON_AddItemToObject(schema, "items", make_schema(maker, depth - 1));
        set(schema, "maxItems", "3");
        break;
    case 7:
        list = cJSON_AddArrayToObject(schema, "anyOf");
        for (int i = 0; i < 2; i++) cJSON_AddItemToArray(list, make_schema(maker, depth - 1));
        break;
    default:
        set(schema, "type", "\"object\"");
        make_object(maker, schema, depth);
    }
    return schema;
}

/* ---- there and back ---- */

static void check_text(const CallRig *rig, const CallRig *oracle, const Buffer *text, Buffer *arguments,
                       const char *schema)
{
    char *wrapped;
    cr_assert(call_rig_read(rig, text->data, text->n, arguments), "%s\n%s\n%s", rig->style.format->name, schema,
              text->data);
    cr_assert_geq(
        asprintf(&wrapped, "<tool_call>\n{\"name\": \"f\", \"arguments\": %s}\n</tool_call>", arguments->data), 0);
    GrammarRig json = oracle->grammar;
    cr_expect(grammar_rig_takes(&json, wrapped), "%s\n%s\n%s\n%s", rig->style.format->name, schema, text->data,
              arguments->data);
    free(wrapped);
}

static void check_schema(GrammarWalk *walk, size_t format, const cJSON *parameters, int *n_ended)
{
    CallRig rig, oracle;
    Buffer text, arguments;
    char *schema = cJSON_PrintUnformatted(parameters);
    buffer_init(&text, MAX_BYTES);
    buffer_init(&arguments, MAX_BYTES);
    cr_assert(call_rig_init(&oracle, "hermes", parameters, walk->vocab, &error), "%s: %s", schema, error.text);
    cr_assert(call_rig_init(&rig, formats[format].format, parameters, walk->vocab, &error), "%s: %s: %s",
              formats[format].format, schema, error.text);
    for (int i = 0; i < N_TEXTS; i++) {
        bool ended;
        cr_assert(grammar_walk(walk, rig.grammar.grammar, &text, &ended, &error), "%s: %s: %s", formats[format].format,
                  schema, error.text);
        if (ended) check_text(&rig, &oracle, &text, &arguments, schema);
        *n_ended += ended;
    }
    buffer_done(&text);
    buffer_done(&arguments);
    call_rig_done(&rig);
    call_rig_done(&oracle);
    free(schema);
}

Test(call_round_trip, random_schemas)
{
    GrammarVocab *vocab;
    GrammarWalk walk;
    cr_assert(grammar_walk_bytes(&vocab, &error) && grammar_walk_init(&walk, vocab, &error));
    walk.likely = (const char **)likely;
    walk.n_likely = sizeof likely / sizeof *likely;
    for (size_t format = 0; format < N_FORMATS; format++) {
        int n_ended = 0;
        walk.seed = 11 + format;
        for (int i = 0; i < N_SCHEMAS; i++) {
            Maker maker = {&walk, formats[format].has_bare_keys};
            cJSON *parameters = cJSON_CreateObject();
            set(parameters, "type", "\"object\"");
            make_object(&maker, parameters, 3);
            check_schema(&walk, format, parameters, &n_ended);
            cJSON_Delete(parameters);
        }
        cr_expect_gt(n_ended, N_SCHEMAS * N_TEXTS / 2, "%s: %d texts", formats[format].format, n_ended);
    }
    grammar_walk_done(&walk);
    grammar_vocab_free(vocab);
}
