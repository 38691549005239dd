/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/calls/answer_grammar.h"
#include "engine/sample/grammar/matcher.h"
#include "engine/sample/grammar/vocab.h"
#include "engine/text/answer_parser.h"
#include "tests/engine/token_rig.h"
#include "tests/support/grammar_rig.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Error error;

#define WEATHER                                                                                                        \
    "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\",\"minimum\":"  \
    "1,"                                                                                                               \
    "\"maximum\":9},\"unit\":{\"type\":\"string\",\"enum\":[\"C\",\"F\"]}},\"required\":[\"city\"]}"

static const MemberKinds weather_kinds[] = {{"city", KIND_STRING}, {"days", KIND_NUMBER}, {"unit", KIND_STRING}};
static const ToolSpec specs[] = {{"weather", {weather_kinds, 3, 0}}, {"add", {.others = KINDS_ALL}}};

typedef struct World {
    AnswerStyle style;
    cJSON *schema;
    CallTool tools[2];
    AnswerRules rules;
    AnswerPlan plan;
} World;

static void world_init(World *world, const char *format, const char *reasoning, const char *schema)
{
    *world = (World){.schema = cJSON_Parse(schema)};
    cr_assert(world->schema != NULL);
    cr_assert(answer_style_find(NULL, NULL, format, reasoning, &world->style, &error), "%s", error.text);
    world->tools[0] = (CallTool){.name = "weather", .parameters = world->schema};
    world->tools[1] = (CallTool){.name = "add", .index = 1};
    world->rules = (AnswerRules){.style = &world->style, .tools = world->tools, .n_tools = 2};
    world->plan = (AnswerPlan){
        .style = &world->style, .splits_reasoning = world->style.has_reasoning, .tools = specs, .n_tools = 2};
}

static bool compile(const World *world, const GrammarVocab *vocab, GrammarRig *rig)
{
    cr_assert(grammar_builder_new(&rig->builder, &error));
    rig->grammar = NULL;
    return answer_grammar(rig->builder, &world->rules, &rig->root, &error) &&
           grammar_compile(rig->builder, rig->root, vocab, &rig->grammar, &error);
}

static void expect_takes(World *world, const char *text, bool takes)
{
    GrammarRig rig;
    cr_assert(compile(world, NULL, &rig), "%s", error.text);
    cr_expect_eq(grammar_rig_takes(&rig, text), takes, "%s: %s", world->style.format->name, text);
    grammar_rig_done(&rig);
}

static const struct {
    const char *format, *one, *two; /* answers that are one call and two calls */
    const char *bad[3];
    const char *text, *before; /* stand before content, and between it and a call; NULL: nothing */
} formats[] = {
    {"hermes",
     "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}\n</tool_call>",
     "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"weather\", "
     "\"arguments\": {\"city\":\"\"}}\n</tool_call>",
     {"<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"days\": 3}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>"}},
    {"qwen3-coder",
     "<tool_call>\n<function=weather>\n<parameter=city>\nNew\nYork\n</parameter>\n<parameter=unit>\nC\n</parameter>\n"
     "</function>\n</tool_call>",
     "<tool_call>\n<function=add>\n</function>\n</tool_call>\n<tool_call>\n<function=add>\n</function>\n</tool_call>",
     {"<tool_call>\n<function=weather>\n</function>\n</tool_call>",
      "<tool_call>\n<function=weather>\n<parameter=city>\nA\n</parameter>\n<parameter=days>\nmany\n</parameter>\n"
      "</function>\n</tool_call>",
      "<tool_call>\n<function=weather>\n<parameter=city>\nA\n</parameter>\n<parameter=unit>\nK\n</parameter>\n"
      "</function>\n</tool_call>"}},
    {"glm",
     "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>New\nYork</arg_value>\n<arg_key>days</arg_key>\n"
     "<arg_value>3</arg_value>\n</tool_call>",
     "<tool_call>add\n</tool_call>\n<tool_call>add\n</tool_call>",
     {"<tool_call>weather\n</tool_call>",
      "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>A</arg_value>\n<arg_key>days</arg_key>\n"
      "<arg_value>many</arg_value>\n</tool_call>",
      "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"}},
    {"kimi-k2",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": \"A\"}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_call_begin|>functions.add:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     {"<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{}"
      "<|tool_call_end|><|tool_calls_section_end|>",
      "<|tool_calls_section_begin|><|tool_calls_section_end|>",
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.add<|tool_call_argument_begin|>{}<|tool_call_end|>"
      "<|tool_calls_section_end|>"}},
    {"deepseek-v3",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"A\"}\n```"
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{}\n```<｜tool▁call▁end｜>\n"
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{}\n```<｜tool▁call▁end｜>"
      "<｜tool▁calls▁end｜>",
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
      "<｜tool▁calls▁begin｜>"}},
    {"deepseek-v3.1",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"A\"}<｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁call▁begin｜>add<"
     "｜tool▁sep｜>{}"
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>sub<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
      "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>"}},
    {"mistral",
     "[TOOL_CALLS]weather[ARGS]{\"city\": \"A\"}",
     "[TOOL_CALLS]add[ARGS]{}[TOOL_CALLS]add[ARGS]{}",
     {"[TOOL_CALLS]weather[ARGS]{}", "[TOOL_CALLS]sub[ARGS]{}", "[TOOL_CALLS]add{}"}},
    {"gemma",
     "<start_function_call>call:weather{city:<escape>a, {b}<escape>,days:2,unit:<escape>F<escape>}<end_function_call>",
     "<start_function_call>call:add{}<end_function_call>\n<start_function_call>call:add{}<end_function_call>",
     {"<start_function_call>call:weather{days:2}<end_function_call>",
      "<start_function_call>call:weather{city:<escape>a<escape>,days:20}<end_function_call>",
      "<start_function_call>call:weather{city:<escape>a<escape>,unit:<escape>K<escape>}<end_function_call>"}},
    {"lfm2",
     "<|tool_call_start|>[weather(city=\"A\", days=2)]<|tool_call_end|>",
     "<|tool_call_start|>[add(), weather(city=\"A\")]<|tool_call_end|>",
     {"<|tool_call_start|>[weather(days=2)]<|tool_call_end|>", "<|tool_call_start|>[]<|tool_call_end|>",
      "<|tool_call_start|>[add(a=1)]<|tool_call_end|>"}},
    {"llama3-json",
     "{\"name\": \"weather\", \"parameters\": {\"city\": \"A\"}}",
     NULL,
     {"{\"name\": \"weather\", \"parameters\": {}}", "{\"name\":\"add\", \"parameters\": {}}",
      "{\"name\": \"add\", \"parameters\": {}}; {\"name\": \"add\", \"parameters\": {}}"}},
    {"gpt-oss",
     "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"A\"}",
     "<|channel|>commentary to=functions.add "
     "<|constrain|>json<|message|>{}<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.add <|constrain|>json<|message|>{}",
     {"<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{}",
      "<|channel|>commentary to=functions.sub <|constrain|>json<|message|>{}",
      "<|channel|>commentary to=functions.add <|constrain|>json<|message|>"},
     "<|channel|>final<|message|>",
     "<|end|><|start|>assistant"},
    {"pythonic",
     "[weather(city=\"A\", unit=\"F\")]",
     "[add(), add()]",
     {"[weather()]", "[weather(city=\"A\", unit=\"K\")]", "[add]"}},
};

enum { N_FORMATS = sizeof formats / sizeof *formats };

Test(answer_grammar, calls_that_must_come)
{
    for (size_t i = 0; i < N_FORMATS; i++) {
        World world;
        world_init(&world, formats[i].format, "none", WEATHER);
        world.rules.must_call = true;
        expect_takes(&world, formats[i].one, true);
        if (formats[i].two) expect_takes(&world, formats[i].two, true);
        for (size_t k = 0; k < 3; k++) expect_takes(&world, formats[i].bad[k], false);
        expect_takes(&world, "", false);
        expect_takes(&world, "No.", false);
        world.rules.one_call = true;
        expect_takes(&world, formats[i].one, true);
        if (formats[i].two) expect_takes(&world, formats[i].two, false);
        cJSON_Delete(world.schema);
    }
}

Test(answer_grammar, calls_that_may_come)
{
    static const char *const texts[] = {"",
                                        "No.",
                                        " {\"a\": 1}",
                                        "{\"name\": \"Bob\"}",
                                        "{\"name\": \"weather",
                                        "[1]",
                                        "[weather]",
                                        "\n",
                                        "{\"name\": \"weathers\", \"x\": 1}"};
    for (size_t i = 0; i < N_FORMATS; i++) {
        char text[1000];
        World world;
        world_init(&world, formats[i].format, "none", WEATHER);
        bool is_bare = world.style.bare;
        expect_takes(&world, formats[i].one, true);
        for (size_t k = 0; k < 3; k++)
            expect_takes(&world, formats[i].bad[k], k > 0 && is_bare && !strncmp(formats[i].bad[k], "[add]", 5));
        const char *before = formats[i].before ? formats[i].before : "";
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            snprintf(text, sizeof text, "%s%s", formats[i].text ? formats[i].text : "", texts[k]);
            expect_takes(&world, text, true);
        }
        snprintf(text, sizeof text, "%sI look.\n%s%s", *before ? "<|channel|>commentary<|message|>" : "", before,
                 formats[i].one);
        expect_takes(&world, text, true);
        snprintf(text, sizeof text, "%s Done.", formats[i].one);
        expect_takes(&world, text, !is_bare && !*before);
        world.rules.has_content = false;
        cJSON_Delete(world.schema);
    }
}

Test(answer_grammar, reasoning_comes_first)
{
    static const char call[] = "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>";
    char text[400];
    for (int within = 0; within < 2; within++) {
        World world;
        world_init(&world, "hermes", "think", WEATHER);
        world.rules.must_call = true;
        world.rules.in_reasoning = within;
        world.rules.may_reason = true;
        snprintf(text, sizeof text, "%shm <tool_call></think>\n\n%s", within ? "" : "<think>", call);
        expect_takes(&world, text, true);
        expect_takes(&world, call, !within);
        snprintf(text, sizeof text, "%shm</think>", within ? "" : "<think>");
        expect_takes(&world, text, false);
        world.rules = (AnswerRules){.style = &world.style, .in_reasoning = within, .may_reason = true};
        expect_takes(&world, text, true);
        cJSON_Delete(world.schema);
    }
}

static void expect_refuses_by(ErrorCode code, const char *format, const char *schema, bool strict, bool must_call,
                              const char *what)
{
    World world;
    GrammarRig rig;
    world_init(&world, format, "none", schema);
    world.tools[0].is_strict = strict;
    world.rules.must_call = must_call;
    bool ok = compile(&world, NULL, &rig);
    cr_expect_eq(ok, !what, "%s: %s", format, schema);
    if (what && !ok) {
        cr_expect(strstr(error.text, what) && strstr(error.text, "weather") &&
                      !strcmp(error.param, "tools[0].function.parameters"),
                  "%s: %s", error.param, error.text);
        cr_expect_eq(error.code, code);
    }
    grammar_rig_done(&rig);
    cJSON_Delete(world.schema);
}

static void expect_refuses(const char *format, const char *schema, bool strict, bool must_call, const char *what)
{
    expect_refuses_by(ERR_SCHEMA, format, schema, strict, must_call, what);
}

Test(answer_grammar, channels)
{
    static const char call[] = "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{}";
    static const char thought[] = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant";
    char text[400];
    World world;
    world_init(&world, "gpt-oss", "gpt-oss", WEATHER);
    world.rules.may_reason = true;
    for (int must = 0; must < 2; must++) {
        world.rules.must_call = must;
        snprintf(text, sizeof text, "%s%s%s", thought, thought, call);
        expect_takes(&world, text, true);
        snprintf(text, sizeof text, "%s<|channel|>final<|message|>It is.", thought);
        expect_takes(&world, text, !must);
        expect_takes(&world, thought, false);
        world.rules.in_reasoning = true;
        snprintf(text, sizeof text, "hm<|end|><|start|>assistant%s", call);
        expect_takes(&world, text, true);
        expect_takes(&world, call, false);
        world.rules.in_reasoning = false;
    }
    world.rules = (AnswerRules){.style = &world.style};
    expect_takes(&world, "<|channel|>final<|message|>a", true);
    expect_takes(&world, "a", false);
    cJSON_Delete(world.schema);
}

#define MEMBER(key, value) "{\"type\":\"object\",\"properties\":{\"" key "\":" value "}}"

/* Strict tools and calls that must come: else a schema that cannot be followed asks for an object. */
Test(answer_grammar, schemas_that_cannot_be_followed)
{
    static const char hard[] = MEMBER("a", "{\"type\":\"array\",\"uniqueItems\":true}");
    static const char form[] = MEMBER("a", "{\"type\":\"string\",\"format\":\"date\"}");
    static const char open[] = MEMBER("a", "{\"type\":\"string\"}");
    for (size_t i = 0; i < N_FORMATS; i++) {
        const char *format = formats[i].format;
        expect_refuses(format, hard, false, false, NULL);
        expect_refuses(format, hard, false, true, "uniqueItems");
        expect_refuses(format, hard, true, false, "additionalProperties");
        expect_refuses(format, open, true, false, "additionalProperties");
        expect_refuses(format, form, false, true, NULL);
        expect_refuses(format, "{\"type\":\"object\",\"anyOf\":[{}]}", false, true, NULL);
        expect_refuses(format, "{\"type\":\"object\",\"minProperties\":1}", false, true, NULL);
        expect_refuses(format, "{\"type\":\"object\",\"required\":[\"x\"]}", false, true, NULL);
        expect_refuses(format, "{\"type\":\"string\"}", false, true, "no object");
    }
}

/* A key that the form has no way to tell is an error also where the schema need not be followed. */
Test(answer_grammar, keys_that_cannot_be_written)
{
    static const struct {
        const char *format, *schema, *key; /* NULL: it can be written */
    } cases[] = {
        {"hermes", MEMBER("$filter", "{}"), NULL},
        {"llama3-json", MEMBER("first name", "{}"), NULL},
        {"qwen3-coder", MEMBER("$filter", "{}"), NULL},
        {"glm", MEMBER("first name", "{}"), NULL},
        {"qwen3-coder", MEMBER("a>b", "{}"), "a>b"},
        {"glm", MEMBER("a\\nb", "{}"), "a\nb"},
        {"gemma", MEMBER("$filter", "{}"), "$filter"},
        {"gemma", MEMBER("a", MEMBER("first name", "{}")), "first name"},
        {"pythonic", MEMBER("first name", "{}"), "first name"},
        {"pythonic", MEMBER("a", MEMBER("first name", "{}")), NULL},
        {"gemma", MEMBER("", "{}"), "''"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int must = 0; must < 2; must++)
            expect_refuses_by(ERR_UNSUPPORTED, cases[i].format, cases[i].schema, false, must, cases[i].key);
    expect_refuses_by(ERR_UNSUPPORTED, "qwen3-coder", MEMBER("a", "{\"const\":\"</parameter>\"}"), false, true,
                      "</parameter>");
}

/* ---- at random ---- */

/* How many members the arguments have; -1: they are no object. */
static int count_members(const char *arguments, size_t n)
{
    cJSON *json = cJSON_ParseWithLengthOpts(arguments, n + 1, NULL, true);
    int n_members = cJSON_IsObject(json) ? cJSON_GetArraySize(json) : -1;
    cJSON_Delete(json);
    return n_members;
}

static void check_calls(const AnswerParts *parts, const char *text)
{
    const char *at = parts->text.data;
    for (uint32_t i = 0; i < parts->n; at += parts->items[i++].n_bytes) {
        if (parts->items[i].kind != PART_CALL) continue;
        cr_assert(i + 1 < parts->n && parts->items[i + 1].kind == PART_ARGUMENTS, "%s", text);
        char *arguments = strndup(at + parts->items[i].n_bytes, parts->items[i + 1].n_bytes);
        cr_assert(arguments != NULL);
        int n_members = count_members(arguments, strlen(arguments));
        cr_expect(n_members >= 0, "%s\n%s", text, arguments);
        bool is_weather = !strncmp(at, "weather", 7);
        cr_expect(!is_weather || strstr(arguments, "\"city\""), "%s", text);
        cr_expect(is_weather || !n_members, "%s", text);
        free(arguments);
    }
}

/* Random tokens that the mask allows; *ret_ended: the text is one of the grammar. */
static void walk(GrammarMatcher *matcher, const TokenRig *rig, uint64_t *random, Buffer *text, bool *ret_ended)
{
    const uint64_t *words;
    uint32_t n;
    *ret_ended = false;
    for (int step = 0; step < 300 && !*ret_ended; step++) {
        *ret_ended = matcher_is_over(matcher) || (matcher_may_end(matcher) && rig_random(random) % 8 == 0);
        if (*ret_ended) break;
        cr_assert(matcher_mask(matcher, &words, &n, &error), "%s", error.text);
        cr_assert(n > 0, "%s", text->data);
        uint32_t skip = (uint32_t)(rig_random(random) % n), id = 0;
        for (;; id++)
            if (words[id / 64] >> id % 64 & 1 && skip-- == 0) break;
        cr_assert(matcher_push_token(matcher, id, &error));
        cr_assert(tok_piece(rig->tokenizer, id, true, text, &error));
    }
}

static void parse(const World *world, const Buffer *text, AnswerParts *parts)
{
    AnswerParser *parser;
    answer_parts_init(parts, 1 << 20);
    cr_assert(answer_parser_new(&world->plan, &parser, &error));
    cr_assert(answer_parser_push(parser, text->data, text->n, parts, &error));
    cr_assert(answer_parser_finish(parser, parts, &error));
    answer_parser_free(parser);
}

/* Whatever the model says: what the parser takes for calls are calls, and where one must come one is there. */
Test(answer_grammar, random_answers_hold_whole_calls)
{
    TokenRig rig = token_rig_new(1 << 16, 1 << 12);
    GrammarVocab *vocab;
    uint64_t random = 5;
    int n_ended = 0;
    cr_assert(grammar_vocab_of(rig.tokenizer, &vocab, &error));
    for (size_t i = 0; i < N_FORMATS; i++)
        for (int must = 0; must < 2; must++) {
            World world;
            GrammarRig made;
            world_init(&world, formats[i].format, "none", WEATHER);
            world.rules.must_call = must;
            cr_assert(compile(&world, vocab, &made), "%s", error.text);
            GrammarMatcher *matcher = grammar_rig_matcher(&made);
            for (int round = 0; round < 20; round++) {
                AnswerParts parts;
                Buffer text;
                bool ended;
                buffer_init(&text, 1 << 20);
                cr_assert(matcher_reset(matcher, &error));
                /* Free text seldom hits on a call by itself. */
                size_t n_given = must || round % 2 ? 0 : strlen(formats[i].one) / 2;
                cr_assert(matcher_push_bytes(matcher, (const uint8_t *)formats[i].one, n_given, &error));
                cr_assert(buffer_append(&text, formats[i].one, n_given, &error));
                walk(matcher, &rig, &random, &text, &ended);
                parse(&world, &text, &parts);
                if (ended) check_calls(&parts, text.data ? text.data : "");
                n_ended += ended;
                bool has_call = false;
                for (uint32_t k = 0; k < parts.n; k++) has_call |= parts.items[k].kind == PART_CALL;
                if (ended && must) cr_expect(has_call, "%s", text.data);
                if (ended && must) cr_expect_eq(parts.items[0].kind, PART_CALL, "%s", text.data);
                answer_parts_done(&parts);
                buffer_done(&text);
            }
            matcher_free(matcher);
            grammar_rig_done(&made);
            cJSON_Delete(world.schema);
        }
    cr_expect_gt(n_ended, 60);
    grammar_vocab_free(vocab);
    token_rig_free(&rig);
}
