/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers: any bytes in any form of calls and reasoning are taken apart, the same however they are cut, and no byte of
 * content is made up. The first byte says which form, the second where the text is cut.
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

static void push(AnswerParser *parser, const char *text, size_t n, AnswerParts *parts)
{
    Error error;
    if (!answer_parser_push(parser, text, n, parts, &error)) abort();
}

static void parse(const AnswerPlan *plan, const char *text, size_t n, size_t cut, AnswerParts *parts)
{
    AnswerParser *parser;
    Error error;
    answer_parts_init(parts, MAX_BYTES);
    if (!answer_parser_new(plan, &parser, &error)) abort();
    for (size_t at = 0; at < n; at += cut) push(parser, text + at, n - at < cut ? n - at : cut, parts);
    if (!answer_parser_finish(parser, parts, &error)) abort();
    answer_parser_free(parser);
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
    parse(&plan, text, n - 2, n, &whole);
    parse(&plan, text, n - 2, 1 + data[1] % 16, &pieces);
    if (whole.n != pieces.n || whole.text.n != pieces.text.n) abort();
    if (whole.n && memcmp(whole.items, pieces.items, whole.n * sizeof *whole.items)) abort();
    if (whole.text.n && memcmp(whole.text.data, pieces.text.data, whole.text.n)) abort();
    check(&plan, &whole);
    answer_parts_done(&whole);
    answer_parts_done(&pieces);
    free(text);
    return 0;
}
