/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_answer_parts.h"

#include <string.h>
#include <sys/random.h>

enum { LONG_ID_LETTERS = 24, SHORT_ID_LETTERS = 9 };

/* Templates of Mistral's models take ids of nine letters only. */
static void write_id(const ApiAnswer *answer, JsonOut *out)
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint8_t random[LONG_ID_LETTERS] = {0};
    char id[LONG_ID_LETTERS + 1];
    size_t n = answer->short_call_ids ? SHORT_ID_LETTERS : LONG_ID_LETTERS;
    if (getrandom(random, n, GRND_NONBLOCK) != (ssize_t)n)
        for (size_t i = 0; i < n; i++) random[i] = (uint8_t)((uintptr_t)out->buffer->n * 31 + i * 7);
    for (size_t i = 0; i < n; i++) id[i] = letters[random[i] % (sizeof letters - 1)];
    id[n] = '\0';
    json_rawf(out, "\"id\":\"%s%s\"", answer->short_call_ids ? "" : "call_", id);
}

static void write_call(ApiAnswer *answer, uint32_t choice, const char *name, size_t n, JsonOut *out)
{
    json_rawf(out, "\"tool_calls\":[{\"index\":%u,", answer->choices[choice].n_written_calls++);
    write_id(answer, out);
    json_raw(out, ",\"type\":\"function\",\"function\":{\"name\":");
    json_string_n(out, name, n);
    json_raw(out, ",\"arguments\":\"\"}}]");
}

void api_answer_write_part(ApiAnswer *answer, uint32_t choice, const AnswerPart *part, const char *text, JsonOut *out)
{
    switch (part->kind) {
    case PART_CONTENT:
    case PART_REASONING:
        json_raw(out, part->kind == PART_CONTENT ? "\"content\":" : "\"reasoning_content\":");
        json_string_n(out, text, part->n_bytes);
        break;
    case PART_CALL:
        write_call(answer, choice, text, part->n_bytes, out);
        break;
    case PART_ARGUMENTS:
        json_rawf(out, "\"tool_calls\":[{\"index\":%u,\"function\":{\"arguments\":",
                  answer->choices[choice].n_written_calls - 1);
        json_string_n(out, text, part->n_bytes);
        json_raw(out, "}}]");
        break;
    }
}

/* All text of one kind; false: there is none. */
static bool gather(const AnswerParts *parts, PartKind kind, Buffer *text, Error *error)
{
    const char *at = parts->text.data;
    bool any = false;
    buffer_clear(text);
    for (uint32_t i = 0; i < parts->n; at += parts->items[i++].n_bytes) {
        if (parts->items[i].kind != kind) continue;
        if (!buffer_append(text, at, parts->items[i].n_bytes, error)) return false;
        any = true;
    }
    return any;
}

static void write_calls(const ApiAnswer *answer, const AnswerParts *parts, JsonOut *out)
{
    const char *at = parts->text.data;
    uint32_t n = 0;
    for (uint32_t i = 0; i < parts->n; at += parts->items[i++].n_bytes) {
        if (parts->items[i].kind != PART_CALL) continue;
        json_raw(out, n++ ? ",{" : ",\"tool_calls\":[{");
        write_id(answer, out);
        json_raw(out, ",\"type\":\"function\",\"function\":{\"name\":");
        json_string_n(out, at, parts->items[i].n_bytes);
        bool has_arguments = i + 1 < parts->n && parts->items[i + 1].kind == PART_ARGUMENTS;
        json_raw(out, ",\"arguments\":");
        json_string_n(out, at + parts->items[i].n_bytes, has_arguments ? parts->items[i + 1].n_bytes : 0);
        json_raw(out, "}}");
    }
    if (n) json_raw(out, "]");
}

void api_answer_write_message(const ApiAnswer *answer, uint32_t choice, JsonOut *out)
{
    const AnswerParts *parts = &answer->choices[choice].parts;
    Buffer text;
    Error error = {0};
    buffer_init(&text, SIZE_MAX);
    if (gather(parts, PART_CONTENT, &text, &error))
        json_string_n(out, text.data, text.n);
    else
        json_raw(out, answer->choices[choice].n_calls ? "null" : "\"\"");
    if (gather(parts, PART_REASONING, &text, &error)) {
        json_raw(out, ",\"reasoning_content\":");
        json_string_n(out, text.data, text.n);
    }
    if (error.code != ERR_NONE && !out->failed) {
        out->failed = true;
        out->error = error;
    }
    write_calls(answer, parts, out);
    buffer_done(&text);
}
