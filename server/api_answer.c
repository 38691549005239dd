/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_answer.h"
#include "server/api_answer_logprobs.h"
#include "server/api_answer_parts.h"
#include "server/sse.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 64 << 20 };

/* What differs between the two kinds of answer. */
static const struct {
    const char *object, *chunk_object;
    const char *delta_open, *delta_close; /* around a part of a chunk */
    const char *finish;                   /* an empty chunk */
    const char *whole_open, *whole_close; /* around the text of a whole answer */
} forms[] = {
    [ANSWER_CHAT] = {"chat.completion", "chat.completion.chunk", "\"delta\":{", "}", "\"delta\":{}",
                     "\"message\":{\"role\":\"assistant\",\"content\":", ",\"refusal\":null}"},
    [ANSWER_COMPLETION] = {"text_completion", "text_completion", "\"text\":", "", "\"text\":\"\"", "\"text\":", ""},
};

const char *api_finish_name(FinishReason finish)
{
    static const char *const names[] = {[FINISH_STOP] = "stop",
                                        [FINISH_LENGTH] = "length",
                                        [FINISH_GRAMMAR] = "length",
                                        [FINISH_TOOL_CALLS] = "tool_calls"};
    return names[finish];
}

bool api_answer_init(ApiAnswer *answer, Error *error)
{
    answer->choices = calloc(answer->n_choices, sizeof *answer->choices);
    if (!answer->choices) return error_set(error, ERR_NO_MEMORY, "no memory for an answer");
    for (uint32_t i = 0; i < answer->n_choices; i++) {
        answer_parts_init(&answer->choices[i].parts, MAX_TEXT_BYTES);
        for (size_t part = 0; part < ANSWER_LOGPROB_PARTS; part++)
            buffer_init(&answer->choices[i].logprobs[part], MAX_TEXT_BYTES);
    }
    return true;
}

void api_answer_done(ApiAnswer *answer)
{
    for (uint32_t i = 0; answer->choices && i < answer->n_choices; i++) {
        answer_parts_done(&answer->choices[i].parts);
        for (size_t part = 0; part < ANSWER_LOGPROB_PARTS; part++) buffer_done(&answer->choices[i].logprobs[part]);
    }
    free(answer->choices);
    answer->choices = NULL;
}

bool api_answer_add_text(ApiAnswer *answer, uint32_t choice, const char *text, size_t n, Error *error)
{
    answer_parts_add(&answer->choices[choice].parts, PART_CONTENT, text, n);
    return answer_parts_end(&answer->choices[choice].parts, error);
}

static bool add_parts(ApiAnswer *answer, uint32_t choice, const TokensPayload *tokens, Error *error)
{
    ApiChoice *state = &answer->choices[choice];
    const char *text = tokens->text;
    for (uint32_t i = 0; i < tokens->n_parts; text += tokens->parts[i++].n_bytes) {
        answer_parts_add(&state->parts, tokens->parts[i].kind, text, tokens->parts[i].n_bytes);
        state->n_calls += tokens->parts[i].kind == PART_CALL;
    }
    return answer_parts_end(&state->parts, error);
}

bool api_answer_add_tokens(ApiAnswer *answer, uint32_t choice, const TokensPayload *tokens, Error *error)
{
    for (uint32_t i = 0; answer->want_logprobs && i < tokens->n_tokens; i++) {
        const EventToken *token = &tokens->tokens[i];
        /* The token that ended the answer is no part of it. */
        if (!tokens->is_prompt && !token->text_bytes && tok_is_end(answer->tokenizer, token->sample.id)) continue;
        if (!api_answer_add_logprob(answer, choice, tokens->is_prompt, &token->sample, error)) return false;
    }
    if (tokens->is_prompt) return true; /* an echoed prompt's text is there from the start */
    if (tokens->n_parts) return add_parts(answer, choice, tokens, error);
    return !tokens->text_bytes || api_answer_add_text(answer, choice, tokens->text, tokens->text_bytes, error);
}

bool api_answer_has_delta(const ApiAnswer *answer, uint32_t choice)
{
    return answer->choices[choice].parts.n || answer->choices[choice].logprobs[0].n;
}

static void write_head(const ApiAnswer *answer, const char *object, JsonOut *out)
{
    json_rawf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", answer->id, object,
              (long long)answer->created_unix);
    json_string(out, answer->model);
    json_raw(out, ",\"system_fingerprint\":");
    json_string(out, answer->fingerprint);
}

static void frame_open(const ApiAnswer *answer, JsonOut *out)
{
    sse_data_begin(out);
    write_head(answer, forms[answer->kind].chunk_object, out);
    json_raw(out, ",\"choices\":[");
}

static void frame_close(const ApiAnswer *answer, JsonOut *out)
{
    if (answer->include_usage) json_raw(out, ",\"usage\":null");
    json_raw(out, "}");
    sse_data_end(out);
}

void api_answer_write_role(const ApiAnswer *answer, uint32_t choice, JsonOut *out)
{
    frame_open(answer, out);
    json_rawf(out,
              "{\"index\":%u,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
              "\"finish_reason\":null}]",
              choice);
    frame_close(answer, out);
}

static void clear_delta(ApiChoice *choice)
{
    answer_parts_clear(&choice->parts);
    for (size_t part = 0; part < ANSWER_LOGPROB_PARTS; part++) buffer_clear(&choice->logprobs[part]);
}

/* One frame for each part; the first one has the log-probabilities. */
static void write_part(ApiAnswer *answer, uint32_t choice, const AnswerPart *part, const char *text, bool is_first,
                       JsonOut *out)
{
    frame_open(answer, out);
    json_rawf(out, "{\"index\":%u,", choice);
    json_raw(out, forms[answer->kind].delta_open);
    if (answer->kind == ANSWER_CHAT)
        api_answer_write_part(answer, choice, part, text, out);
    else
        json_string_n(out, text, part->n_bytes);
    json_raw(out, forms[answer->kind].delta_close);
    json_raw(out, ",\"logprobs\":");
    if (is_first)
        api_answer_write_logprobs(answer, choice, out);
    else
        json_raw(out, "null");
    json_raw(out, ",\"finish_reason\":null}]");
    frame_close(answer, out);
}

void api_answer_write_delta(ApiAnswer *answer, uint32_t choice, JsonOut *out)
{
    const AnswerParts *parts = &answer->choices[choice].parts;
    const AnswerPart nothing = {.kind = PART_CONTENT};
    const char *text = parts->text.data;
    if (!parts->n) write_part(answer, choice, &nothing, "", true, out);
    for (uint32_t i = 0; i < parts->n; text += parts->items[i++].n_bytes)
        write_part(answer, choice, &parts->items[i], text, !i, out);
    clear_delta(&answer->choices[choice]);
}

static void write_timings(const ApiAnswer *answer, JsonOut *out)
{
    const RequestTimings *timings = &answer->timings;
    uint32_t read = timings->prompt_tokens - timings->cached_tokens;
    json_rawf(out, "\"timings\":{\"queue_ms\":%.3f,\"prefill_ms\":%.3f,\"decode_ms\":%.3f",
              (double)timings->queue_usec / 1e3, (double)timings->prefill_usec / 1e3,
              (double)timings->decode_usec / 1e3);
    json_rawf(out, ",\"prefill_tokens_per_second\":%.3f,\"decode_tokens_per_second\":%.3f",
              api_per_second(read, timings->prefill_usec),
              api_per_second(timings->completion_tokens, timings->decode_usec));
    json_rawf(out, ",\"preemptions\":%u}", timings->n_preempted);
}

static void write_cache(const ApiAnswer *answer, JsonOut *out)
{
    const ApiDivergence *divergence = &answer->divergence;
    json_rawf(out, "\"cache\":{\"matched\":%u,\"divergence\":", answer->timings.cached_tokens);
    if (!divergence->reason) {
        json_raw(out, "null}");
        return;
    }
    if (divergence->place.message == PROMPT_MAP_NONE)
        json_raw(out, "{\"message\":null");
    else
        json_rawf(out, "{\"message\":%u", divergence->place.message);
    json_rawf(out, ",\"character\":%u,\"token\":%u,\"reason\":\"%s\"}}", divergence->place.character, divergence->token,
              divergence->reason);
}

/* Means over the decoded rows and their heads, of layers without a sliding window. */
static void write_attention(const ApiAnswer *answer, JsonOut *out)
{
    const AttentionStats *stats = &answer->timings.attention;
    json_raw(out, "\"attention\":{\"preset\":");
    json_string(out, answer->attention.preset);
    json_raw(out, ",\"roles\":");
    if (answer->attention.roles)
        json_string(out, answer->attention.roles);
    else
        json_raw(out, "null");
    if (stats->n_queries)
        json_rawf(out, ",\"tokens_attended\":%.1f,\"tokens_of_context\":%.1f",
                  (double)stats->n_tokens / (double)stats->n_queries,
                  (double)stats->n_context / (double)stats->n_queries);
    if (stats->context_bytes)
        json_rawf(out, ",\"bytes_read\":%llu,\"bytes_of_context\":%llu",
                  (unsigned long long)(stats->kv_bytes + stats->select_bytes),
                  (unsigned long long)stats->context_bytes);
    if (stats->n_estimates)
        json_rawf(out, ",\"missing_mass\":%.6f", stats->estimated_mass / (double)stats->n_estimates);
    if (stats->n_audits)
        json_rawf(out, ",\"audited_missing_mass\":%.6f", stats->audited_mass / (double)stats->n_audits);
    if (answer->timings.n_audited)
        json_rawf(out, ",\"audited_kl\":%.6f", answer->timings.audited_kl / (double)answer->timings.n_audited);
    json_raw(out, "}");
}

static void write_unconstrained(const ApiAnswer *answer, JsonOut *out)
{
    for (uint32_t i = 0; i < answer->n_notes; i++) {
        json_raw(out, i ? ",{\"name\":" : ",\"tools_unconstrained\":[{\"name\":");
        json_string(out, answer->notes[i].what);
        json_raw(out, ",\"reason\":");
        json_string(out, answer->notes[i].why);
        json_raw(out, "}");
    }
    if (answer->n_notes) json_raw(out, "]");
}

/* Why answers are short that max_tokens did not cut. */
static void write_cut(const ApiAnswer *answer, JsonOut *out)
{
    bool is_cut = false;
    for (uint32_t i = 0; i < answer->n_choices; i++) {
        if (answer->choices[i].finish != FINISH_GRAMMAR) continue;
        json_rawf(out, is_cut ? ",%u" : ",\"cut_by_grammar\":[%u", i);
        is_cut = true;
    }
    if (is_cut) json_raw(out, "]");
}

static void write_longwave(const ApiAnswer *answer, JsonOut *out)
{
    json_raw(out, ",\"longwave\":{");
    write_timings(answer, out);
    json_raw(out, ",");
    write_cache(answer, out);
    json_raw(out, ",");
    write_attention(answer, out);
    write_unconstrained(answer, out);
    write_cut(answer, out);
    json_raw(out, "}");
}

static void write_usage(const ApiAnswer *answer, JsonOut *out)
{
    const RequestTimings *timings = &answer->timings;
    json_rawf(out, ",\"usage\":{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%u",
              timings->prompt_tokens, timings->completion_tokens, timings->prompt_tokens + timings->completion_tokens);
    json_rawf(out, ",\"prompt_tokens_details\":{\"cached_tokens\":%u}", timings->cached_tokens);
    json_rawf(out, ",\"completion_tokens_details\":{\"reasoning_tokens\":%u}}", timings->reasoning_tokens);
}

void api_answer_write_finish(const ApiAnswer *answer, uint32_t choice, bool final, JsonOut *out)
{
    frame_open(answer, out);
    json_rawf(out, "{\"index\":%u,", choice);
    json_raw(out, forms[answer->kind].finish);
    json_rawf(out, ",\"logprobs\":null,\"finish_reason\":\"%s\"}]", api_finish_name(answer->choices[choice].finish));
    if (final) write_longwave(answer, out);
    frame_close(answer, out);
}

void api_answer_write_usage_frame(const ApiAnswer *answer, JsonOut *out)
{
    frame_open(answer, out);
    json_raw(out, "]");
    write_usage(answer, out);
    json_raw(out, "}");
    sse_data_end(out);
}

void api_answer_write_progress(const ApiAnswer *answer, const ApiProgress *progress, JsonOut *out)
{
    frame_open(answer, out);
    json_rawf(out, "],\"longwave\":{\"progress\":{\"prompt\":%u,\"total\":%u,\"cached\":%u,\"processed\":%u",
              progress->prompt, progress->total, progress->cached, progress->processed);
    json_rawf(out, ",\"ms\":%.3f}}", progress->ms);
    frame_close(answer, out);
}

static void write_text(const ApiChoice *choice, JsonOut *out)
{
    json_string_n(out, choice->parts.text.data ? choice->parts.text.data : "", choice->parts.text.n);
}

static void write_choice(const ApiAnswer *answer, uint32_t choice, JsonOut *out)
{
    if (choice) json_raw(out, ",");
    json_rawf(out, "{\"index\":%u,", choice);
    json_raw(out, forms[answer->kind].whole_open);
    if (answer->kind == ANSWER_CHAT)
        api_answer_write_message(answer, choice, out);
    else
        write_text(&answer->choices[choice], out);
    json_raw(out, forms[answer->kind].whole_close);
    json_raw(out, ",\"logprobs\":");
    api_answer_write_logprobs(answer, choice, out);
    json_rawf(out, ",\"finish_reason\":\"%s\"}", api_finish_name(answer->choices[choice].finish));
}

void api_answer_write_object(const ApiAnswer *answer, JsonOut *out)
{
    write_head(answer, forms[answer->kind].object, out);
    json_raw(out, ",\"choices\":[");
    for (uint32_t i = 0; i < answer->n_choices; i++) write_choice(answer, i, out);
    json_raw(out, "]");
    write_usage(answer, out);
    write_longwave(answer, out);
    json_raw(out, "}");
}
