/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers: any bytes in any form of calls and reasoning are taken apart, the same however they are cut, no byte of
 * content is made up, and what is made into JSON is JSON. The first byte says which form, the second where the text is
 * cut.
 */
#include "engine/text/answer_parser.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const formats[] = {"hermes",  "qwen3-coder", "mistral",       "gemma",   "gemma4",
                                      "lfm2",    "llama3-json", "pythonic",      "generic", "glm",
                                      "kimi-k2", "deepseek-v3", "deepseek-v3.1", "gpt-oss"};
static const MemberKinds kinds[] = {{"city", KIND_STRING}, {"days", KIND_NUMBER | KIND_STRING}};
static const ToolSpec tools[] = {{"weather", {kinds, 2, KINDS_ALL}}, {"add", {.others = KINDS_ALL}}};

enum { N_FORMATS = sizeof formats / sizeof *formats, MAX_BYTES = 1 << 22 };

/* ---- JSON, strictly ---- */

/* At a text's byte, or behind it: -1. */
typedef struct Json {
    const char *text;
    size_t n, at;
} Json;

static int peek(const Json *json)
{
    return json->at < json->n ? (unsigned char)json->text[json->at] : -1;
}

static bool take(Json *json, int byte)
{
    if (peek(json) != byte) return false;
    json->at++;
    return true;
}

static void skip_blanks(Json *json)
{
    while (take(json, ' ') || take(json, '\t') || take(json, '\n') || take(json, '\r')) continue;
}

static bool take_digits(Json *json)
{
    size_t from = json->at;
    while (peek(json) >= '0' && peek(json) <= '9') json->at++;
    return json->at > from;
}

static bool take_number(Json *json)
{
    (void)take(json, '-');
    if (!take(json, '0') && !take_digits(json)) return false;
    if (take(json, '.') && !take_digits(json)) return false;
    if (!take(json, 'e') && !take(json, 'E')) return true;
    if (!take(json, '+')) (void)take(json, '-');
    return take_digits(json);
}

static bool take_string(Json *json)
{
    if (!take(json, '"')) return false;
    while (!take(json, '"')) {
        if (peek(json) < 0x20) return false;
        if (!take(json, '\\')) {
            json->at++;
        } else if (take(json, 'u')) {
            for (int i = 0; i < 4; i++, json->at++)
                if (peek(json) <= 0 || !strchr("0123456789abcdefABCDEF", peek(json))) return false;
        } else {
            if (peek(json) <= 0 || !strchr("\"\\/bfnrt", peek(json))) return false;
            json->at++;
        }
    }
    return true;
}

static bool take_word(Json *json, const char *word)
{
    size_t n = strlen(word);
    if (json->n - json->at < n || memcmp(json->text + json->at, word, n)) return false;
    json->at += n;
    return true;
}

static bool take_json(Json *json)
{
    skip_blanks(json);
    int close = peek(json) == '{' ? '}' : ']';
    if (peek(json) == '"') return take_string(json);
    if (peek(json) == '-' || (peek(json) >= '0' && peek(json) <= '9')) return take_number(json);
    if (!take(json, '{') && !take(json, '['))
        return take_word(json, "true") || take_word(json, "false") || take_word(json, "null");
    skip_blanks(json);
    if (take(json, close)) return true;
    do {
        skip_blanks(json);
        if (close == '}' && !take_string(json)) return false;
        skip_blanks(json);
        if ((close == '}' && !take(json, ':')) || !take_json(json)) return false;
        skip_blanks(json);
    } while (take(json, ','));
    return take(json, close);
}

static bool is_object(const char *text, size_t n)
{
    Json json = {text, n, 0};
    if (peek(&json) != '{' || !take_json(&json)) return false;
    return json.at == n;
}

/* ---- answers ---- */

static void push(AnswerParser *parser, const char *text, size_t n, AnswerParts *parts)
{
    Error error;
    if (!answer_parser_push(parser, text, n, parts, &error)) abort();
}

/* *ret_is_within: the text ends within a call. */
static void parse(const AnswerPlan *plan, const char *text, size_t n, size_t cut, AnswerParts *parts,
                  bool *ret_is_within)
{
    AnswerParser *parser;
    Error error;
    answer_parts_init(parts, MAX_BYTES);
    if (!answer_parser_new(plan, &parser, &error)) abort();
    for (size_t at = 0; at < n; at += cut) push(parser, text + at, n - at < cut ? n - at : cut, parts);
    *ret_is_within = answer_parser_phase(parser) == PHASE_CALL;
    if (!answer_parser_finish(parser, parts, &error)) abort();
    answer_parser_free(parser);
}

/* Of whole calls in the forms that are no JSON: theirs is made here. */
static void check_arguments(const AnswerPlan *plan, const AnswerParts *parts, bool is_within)
{
    CallBody body = plan->style->format->body;
    size_t at = 0;
    uint32_t last = parts->n;
    if (body != CALL_TAGS && body != CALL_PYTHON && body != CALL_GEMMA) return;
    for (uint32_t i = 0; i < parts->n; i++)
        if (parts->items[i].kind == PART_CALL) last = i;
    for (uint32_t i = 0; i < parts->n; at += parts->items[i++].n_bytes) {
        if (parts->items[i].kind != PART_CALL || (i == last && is_within)) continue;
        const AnswerPart *next = i + 1 < parts->n ? &parts->items[i + 1] : NULL;
        if (!next || next->kind != PART_ARGUMENTS) abort();
        if (!is_object(parts->text.data + at + parts->items[i].n_bytes, next->n_bytes)) abort();
    }
}

static void check(const AnswerPlan *plan, const AnswerParts *parts)
{
    size_t n_bytes = 0;
    uint32_t n_calls = 0;
    for (uint32_t i = 0; i < parts->n; n_bytes += parts->items[i++].n_bytes) {
        bool is_call = parts->items[i].kind == PART_CALL;
        n_calls += is_call;
        if (parts->items[i].kind == PART_ARGUMENTS && !n_calls) abort();
        if (is_call && strncmp(parts->text.data + n_bytes, "weather", 7) &&
            strncmp(parts->text.data + n_bytes, "add", 3))
            abort();
    }
    if (n_bytes != parts->text.n || (plan->max_calls && n_calls > plan->max_calls)) abort();
    if (parts->text.n && memchr(parts->text.data, ANSWER_CONTROL, parts->text.n)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    AnswerStyle style;
    AnswerParts whole, pieces;
    bool is_within;
    Error error;
    if (n < 2) return 0;
    const char *format = formats[(data[0] & 31) % N_FORMATS];
    const char *thoughts = strcmp(format, "gpt-oss") ? "think" : "gpt-oss";
    const char *reasoning = data[0] & 64 ? "none" : data[0] & 32 ? "mistral" : thoughts;
    if (!answer_style_find(NULL, NULL, format, reasoning, &style, &error)) abort();
    AnswerPlan plan = {.style = &style,
                       .splits_reasoning = style.has_reasoning,
                       .begins_in_reasoning = data[0] & 128,
                       .tools = tools,
                       .n_tools = 2,
                       .max_calls = data[1] & 128 ? 1 : 0};
    char *text = malloc(n - 1);
    if (!text) abort();
    for (size_t i = 2; i < n; i++) text[i - 2] = (char)(data[i] == 0xFF ? 0xFE : data[i]); /* no text has that byte */
    parse(&plan, text, n - 2, n, &whole, &is_within);
    parse(&plan, text, n - 2, 1 + data[1] % 16, &pieces, &is_within);
    if (whole.n != pieces.n || whole.text.n != pieces.text.n) abort();
    if (whole.n && memcmp(whole.items, pieces.items, whole.n * sizeof *whole.items)) abort();
    if (whole.text.n && memcmp(whole.text.data, pieces.text.data, whole.text.n)) abort();
    check(&plan, &whole);
    check_arguments(&plan, &whole, is_within);
    answer_parts_done(&whole);
    answer_parts_done(&pieces);
    free(text);
    return 0;
}
