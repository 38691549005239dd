/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_answer_logprobs.h"
#include "base/utf8.h"

#include <math.h>
#include <string.h>

enum { PART_TOKENS, PART_LOGPROBS, PART_TOP, PART_OFFSETS }; /* of completions */
enum { MAX_PIECE_BYTES = 64 << 10 };

static void comma(JsonOut *out)
{
    if (out->buffer->n) json_raw(out, ",");
}

static void write_logprob(JsonOut *out, double logprob)
{
    if (logprob < -9999.0) logprob = -9999.0; /* -infinity too */
    json_real(out, logprob, 7);
}

/* The token as a JSON string. prefix: before the bytes of what is no text. */
static void write_token(JsonOut *out, const char *prefix, const Buffer *piece)
{
    if (utf8_valid((const uint8_t *)piece->data, piece->n)) {
        json_string_n(out, piece->data, piece->n);
        return;
    }
    json_rawf(out, "\"%s", prefix);
    for (size_t i = 0; i < piece->n; i++) json_rawf(out, "\\\\x%02x", (unsigned char)piece->data[i]);
    json_raw(out, "\"");
}

static bool load_piece(const ApiAnswer *answer, uint32_t id, Buffer *piece, Error *error)
{
    buffer_clear(piece);
    return buffer_reserve(piece, 1, error) && tok_piece(answer->tokenizer, id, true, piece, error);
}

/* {"token":..,"logprob":..,"bytes":[..] without the closing brace */
static bool write_chat_token(const ApiAnswer *answer, JsonOut *out, uint32_t id, float logprob, Buffer *piece,
                             Error *error)
{
    if (!load_piece(answer, id, piece, error)) return false;
    json_raw(out, "{\"token\":");
    write_token(out, "", piece);
    json_raw(out, ",\"logprob\":");
    write_logprob(out, logprob);
    json_raw(out, ",\"bytes\":[");
    for (size_t i = 0; i < piece->n; i++) json_rawf(out, i ? ",%u" : "%u", (unsigned char)piece->data[i]);
    json_raw(out, "]");
    return true;
}

static bool add_chat(ApiAnswer *answer, ApiChoice *choice, const SampleResult *sample, Buffer *piece, Error *error)
{
    JsonOut out;
    json_begin(&out, &choice->logprobs[0]);
    comma(&out);
    if (!write_chat_token(answer, &out, sample->id, sample->logprob, piece, error)) return false;
    json_raw(&out, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < sample->n_top && i < answer->n_top_logprobs; i++) {
        if (i) json_raw(&out, ",");
        if (!write_chat_token(answer, &out, sample->top[i].id, sample->top[i].logprob, piece, error)) return false;
        json_raw(&out, "}");
    }
    json_raw(&out, "]}");
    return json_end(&out, error);
}

/* The first token of a prompt has no probability. */
static bool is_first(const ApiChoice *choice, bool is_prompt)
{
    return is_prompt && !choice->any_token;
}

/* Tokens of the same text would be one key twice: the likelier one, which comes first, is told. */
static bool is_told(const ApiAnswer *answer, const SampleResult *sample, uint32_t i, const Buffer *piece,
                    bool *ret_told, Error *error)
{
    Buffer other;
    bool ok = true;
    buffer_init(&other, MAX_PIECE_BYTES);
    *ret_told = false;
    for (uint32_t k = 0; ok && k < i && !*ret_told; k++) {
        ok = load_piece(answer, sample->top[k].id, &other, error);
        *ret_told = ok && other.n == piece->n && !memcmp(other.data, piece->data, piece->n);
    }
    buffer_done(&other);
    return ok;
}

static bool add_top(ApiAnswer *answer, const SampleResult *sample, bool none, JsonOut *out, Buffer *piece, Error *error)
{
    if (none || !answer->n_top_logprobs) {
        json_raw(out, "null");
        return true;
    }
    json_raw(out, "{");
    for (uint32_t i = 0; i < sample->n_top && i < answer->n_top_logprobs; i++) {
        bool told;
        if (!load_piece(answer, sample->top[i].id, piece, error) || !is_told(answer, sample, i, piece, &told, error))
            return false;
        if (told) continue;
        if (i) json_raw(out, ",");
        write_token(out, "bytes:", piece);
        json_raw(out, ":");
        write_logprob(out, sample->top[i].logprob);
    }
    json_raw(out, "}");
    return true;
}

static bool add_completion(ApiAnswer *answer, ApiChoice *choice, bool is_prompt, const SampleResult *sample,
                           Buffer *piece, Error *error)
{
    JsonOut out[ANSWER_LOGPROB_PARTS];
    bool none = is_first(choice, is_prompt);
    for (size_t i = 0; i < ANSWER_LOGPROB_PARTS; i++) {
        json_begin(&out[i], &choice->logprobs[i]);
        comma(&out[i]);
    }
    if (!load_piece(answer, sample->id, piece, error)) return false;
    write_token(&out[PART_TOKENS], "bytes:", piece);
    write_logprob(&out[PART_LOGPROBS], none ? NAN : (double)sample->logprob);
    json_rawf(&out[PART_OFFSETS], "%llu", (unsigned long long)choice->offset_chars);
    if (!add_top(answer, sample, none, &out[PART_TOP], piece, error)) return false;
    for (size_t i = 0; i < ANSWER_LOGPROB_PARTS; i++)
        if (!json_end(&out[i], error)) return false;
    return true;
}

static uint64_t count_chars(const Buffer *text)
{
    uint64_t n = 0;
    for (size_t i = 0; i < text->n; i++) n += ((unsigned char)text->data[i] & 0xC0) != 0x80;
    return n;
}

/* The end of a prompt: what was no whole code point never becomes one. */
static bool end_prompt(ApiChoice *choice, Buffer *text, Error *error)
{
    buffer_clear(text);
    if (!tok_stream_flush(&choice->shown, text, error)) return false;
    choice->offset_chars += count_chars(text);
    choice->any_generated = true;
    return true;
}

static bool show_token(const ApiAnswer *answer, ApiChoice *choice, uint32_t id, Buffer *text, Error *error)
{
    buffer_clear(text);
    if (!tok_stream_push(&choice->shown, answer->tokenizer, id, false, text, error)) return false;
    choice->offset_chars += count_chars(text);
    return true;
}

bool api_answer_add_logprob(ApiAnswer *answer, uint32_t choice_index, bool is_prompt, const SampleResult *sample,
                            Error *error)
{
    ApiChoice *choice = &answer->choices[choice_index];
    Buffer piece;
    buffer_init(&piece, MAX_PIECE_BYTES);
    bool ok = is_prompt || choice->any_generated || end_prompt(choice, &piece, error);
    if (answer->kind == ANSWER_CHAT)
        ok = ok && add_chat(answer, choice, sample, &piece, error);
    else
        ok = ok && add_completion(answer, choice, is_prompt, sample, &piece, error) &&
             show_token(answer, choice, sample->id, &piece, error);
    buffer_done(&piece);
    choice->any_token = true;
    return ok;
}

static void write_list(JsonOut *out, const char *name, const Buffer *items)
{
    json_rawf(out, "\"%s\":[", name);
    json_bytes(out, items->data ? items->data : "", items->n);
    json_raw(out, "]");
}

void api_answer_write_logprobs(const ApiAnswer *answer, uint32_t choice, JsonOut *out)
{
    const Buffer *parts = answer->choices[choice].logprobs;
    if (!answer->want_logprobs) {
        json_raw(out, "null");
        return;
    }
    json_raw(out, "{");
    if (answer->kind == ANSWER_CHAT) {
        write_list(out, "content", &parts[0]);
        json_raw(out, ",\"refusal\":null}");
        return;
    }
    static const char *const names[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    for (size_t i = 0; i < ANSWER_LOGPROB_PARTS; i++) {
        if (i) json_raw(out, ",");
        write_list(out, names[i], &parts[i]);
    }
    json_raw(out, "}");
}
