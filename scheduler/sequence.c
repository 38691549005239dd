/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sequence.h"

#include <assert.h>
#include <math.h>
#include <string.h>

void sequence_init(Sequence *sequence, Request *request)
{
    *sequence = (Sequence){.state = SEQUENCE_WAITING, .id = request->id, .request = request};
}

/* Frees what only a running sequence needs. */
static void close_sequence(Sequence *sequence, const SequenceTools *tools)
{
    if (sequence->has_seq) engine_seq_close(tools->engine, sequence->seq);
    if (sequence->has_answer) answer_done(&sequence->answer);
    request_free(sequence->request);
    sequence->has_seq = sequence->has_answer = false;
    sequence->request = NULL;
    sequence->state = SEQUENCE_CLOSING;
}

void sequence_done(Sequence *sequence, const SequenceTools *tools)
{
    close_sequence(sequence, tools);
    for (uint32_t i = 0; i < sequence->n_pending; i++) event_done(&sequence->pending[i]);
    sequence->n_pending = 0;
}

static void post(Sequence *sequence, Event event)
{
    assert(sequence->n_pending < SEQUENCE_MAX_PENDING);
    event.id = sequence->id;
    event.choice = sequence->choice;
    sequence->pending[sequence->n_pending++] = event;
}

bool sequence_flush(Sequence *sequence, EmitFn emit, void *arg)
{
    uint32_t n = 0;
    while (n < sequence->n_pending && emit(arg, &sequence->pending[n])) n++;
    sequence->n_pending -= n;
    memmove(sequence->pending, sequence->pending + n, sequence->n_pending * sizeof *sequence->pending);
    return sequence->n_pending == 0;
}

static bool check_request(const Request *request, const SequenceTools *tools, Error *error)
{
    uint32_t context = engine_context(tools->engine);
    if (request->n_prompt == 0) return error_set_param(error, ERR_INVALID, "prompt", "the prompt has no tokens");
    if (request->n_choices == 0) return error_set_param(error, ERR_INVALID, "n", "n is 0");
    if ((uint64_t)request->n_prompt + request->max_tokens > context)
        return error_set_param(error, ERR_CONTEXT_LENGTH, "max_tokens",
                               "%u prompt tokens and up to %u generated ones do not fit the context of %u tokens",
                               request->n_prompt, request->max_tokens, context);
    return true;
}

bool sequence_start(Sequence *sequence, const SequenceTools *tools, Error *error)
{
    const Request *request = sequence->request;
    if (!check_request(request, tools, error)) return false;
    if (!sampler_reset(tools->sampler, &request->sampling, 0, request->prompt, request->n_prompt, error)) return false;
    if (!answer_open(&sequence->answer, tools->tokenizer, request, tools->end_ids, tools->n_end_ids, error))
        return false;
    sequence->has_answer = true;
    if (!engine_seq_open(tools->engine, &sequence->seq, error)) return false;
    sequence->has_seq = true;
    sequence->state = SEQUENCE_PREFILL;
    sequence->started_usec = tools->clock_usec();
    if (sequence->started_usec > request->arrival_usec)
        sequence->timings.queue_usec = sequence->started_usec - request->arrival_usec;
    sequence->timings.prompt_tokens = request->n_prompt;
    post(sequence, (Event){.kind = EVENT_STARTED});
    return true;
}

static bool wants_prompt_rows(const Sequence *sequence)
{
    return sequence->request->want_prompt_logprobs && sequence->choice == 0;
}

bool sequence_plan(const Sequence *sequence, const SequenceTools *tools, uint32_t max_rows, BatchBuild *build)
{
    const Request *request = sequence->request;
    if (sequence->state == SEQUENCE_DECODE)
        return batch_build_add(build, sequence->seq, &sequence->next_token, 1,
                               request->n_prompt + sequence->answer.n_tokens - 1, LOGITS_LAST);
    uint32_t first = sequence->n_prefilled, n = request->n_prompt - first, room = batch_build_room(build);
    if (n > max_rows) n = max_rows;
    if (n > room) n = room;
    if (wants_prompt_rows(sequence)) {
        uint32_t max_logit_rows = engine_max_logit_rows(tools->engine);
        if (n > max_logit_rows) n = max_logit_rows;
        return batch_build_add(build, sequence->seq, request->prompt + first, n, first, LOGITS_ALL);
    }
    bool is_sampled = first + n == request->n_prompt && request->max_tokens > 0;
    return batch_build_add(build, sequence->seq, request->prompt + first, n, first,
                           is_sampled ? LOGITS_LAST : LOGITS_NONE);
}

static void post_tokens(Sequence *sequence, TokensPayload *payload, Buffer *text)
{
    payload->text_bytes = (uint32_t)text->n;
    payload->text = text->n ? buffer_take(text) : NULL;
    post(sequence, (Event){.kind = EVENT_TOKENS, .tokens = payload});
}

/* The text of prompt tokens from 'first' on; their shares go into payload. */
static bool decode_prompt(Sequence *sequence, const SequenceTools *tools, uint32_t first, TokensPayload *payload,
                          Buffer *text, Error *error)
{
    const Request *request = sequence->request;
    buffer_clear(text);
    for (uint32_t i = 0; i < payload->n_tokens; i++) {
        size_t before = text->n;
        uint32_t id = request->prompt[first + i];
        if (!tok_stream_push(&sequence->prompt_stream, tools->tokenizer, id, false, text, error)) return false;
        bool is_last = first + i + 1 == request->n_prompt;
        if (is_last && !tok_stream_flush(&sequence->prompt_stream, text, error)) return false;
        payload->tokens[i].text_bytes = (uint32_t)(text->n - before);
    }
    return true;
}

/* Row i of logits [n_rows, n_vocab] tells about the prompt token behind it; nothing tells about the first one. */
static bool post_prompt_tokens(Sequence *sequence, const SequenceTools *tools, uint32_t n_rows, const float *logits,
                               Error *error)
{
    const Request *request = sequence->request;
    uint32_t n_vocab = tok_n_vocab(tools->tokenizer), done = sequence->n_prefilled;
    uint32_t first = done == 0 ? 0 : done + 1, end = done + n_rows + 1;
    if (end > request->n_prompt) end = request->n_prompt;
    if (first == end) return true;
    TokensPayload *payload;
    if (!tokens_payload_new(end - first, &payload, error)) return false;
    payload->is_prompt = true;
    for (uint32_t at = first; at < end; at++) {
        SampleResult *result = &payload->tokens[at - first].sample;
        if (at == 0)
            *result = (SampleResult){.id = request->prompt[0], .logprob = NAN};
        else if (!sample_logprobs(logits + (size_t)(at - 1 - done) * n_vocab, n_vocab, request->prompt[at],
                                  request->n_top_logprobs, result, error))
            goto failed;
    }
    if (!decode_prompt(sequence, tools, first, payload, &sequence->answer.text, error)) goto failed;
    post_tokens(sequence, payload, &sequence->answer.text);
    return true;
failed:
    tokens_payload_free(payload);
    return false;
}

static void post_done(Sequence *sequence, const SequenceTools *tools)
{
    uint64_t now = tools->clock_usec();
    uint64_t first = sequence->first_token_usec ? sequence->first_token_usec : now;
    sequence->timings.prefill_usec = first - sequence->started_usec;
    sequence->timings.decode_usec = now - first;
    post(sequence, (Event){.kind = EVENT_DONE, .timings = sequence->timings});
    tools->stats->finished++;
    close_sequence(sequence, tools);
}

static bool finish_choice(Sequence *sequence, const SequenceTools *tools, FinishReason finish, Error *error)
{
    const Request *request = sequence->request;
    post(sequence, (Event){.kind = EVENT_CHOICE_DONE, .finish = finish});
    if (sequence->choice + 1 == request->n_choices) {
        post_done(sequence, tools);
        return true;
    }
    sequence->choice++;
    sequence->state = SEQUENCE_PREFILL;
    sequence->n_prefilled = request->n_prompt - 1; /* the last row again, for its logits */
    engine_seq_truncate(tools->engine, sequence->seq, sequence->n_prefilled);
    answer_restart(&sequence->answer);
    return sampler_reset(tools->sampler, &request->sampling, sequence->choice, request->prompt, request->n_prompt,
                         error);
}

/* One token from one row of logits, and what follows from it. */
static bool sample_token(Sequence *sequence, const SequenceTools *tools, float *logits, Error *error)
{
    const Request *request = sequence->request;
    Answer *answer = &sequence->answer;
    sampler_ban(tools->sampler, answer->enders, answer_may_end(answer) ? 0 : answer->n_enders);
    TokensPayload *payload;
    if (!tokens_payload_new(1, &payload, error)) return false;
    EventToken *token = payload->tokens;
    AnswerState state;
    if (!sampler_pick(tools->sampler, logits, request->want_logprobs, request->n_top_logprobs, &token->sample, error) ||
        !answer_take(answer, token->sample.id, &state, error)) {
        tokens_payload_free(payload);
        return false;
    }
    if (!sequence->first_token_usec) sequence->first_token_usec = tools->clock_usec();
    sequence->timings.completion_tokens++;
    tools->stats->generated_tokens++;
    sequence->next_token = token->sample.id;
    sequence->state = SEQUENCE_DECODE;
    token->text_bytes = (uint32_t)answer->text.n;
    post_tokens(sequence, payload, &answer->text);
    if (state == ANSWER_OPEN) return true;
    return finish_choice(sequence, tools, state == ANSWER_STOPPED ? FINISH_STOP : FINISH_LENGTH, error);
}

static bool advance_prefill(Sequence *sequence, const SequenceTools *tools, uint32_t n_rows, float *logits,
                            Error *error)
{
    const Request *request = sequence->request;
    uint32_t last_row = 0;
    if (wants_prompt_rows(sequence)) {
        if (!post_prompt_tokens(sequence, tools, n_rows, logits, error)) return false;
        last_row = n_rows - 1;
    }
    sequence->n_prefilled += n_rows;
    if (sequence->choice == 0) {
        tools->stats->prompt_tokens += n_rows;
        post(sequence,
             (Event){.kind = EVENT_PROGRESS, .progress = {.done = sequence->n_prefilled, .total = request->n_prompt}});
    }
    if (sequence->n_prefilled < request->n_prompt) return true;
    if (request->max_tokens == 0) return finish_choice(sequence, tools, FINISH_LENGTH, error);
    return sample_token(sequence, tools, logits + (size_t)last_row * tok_n_vocab(tools->tokenizer), error);
}

bool sequence_advance(Sequence *sequence, const SequenceTools *tools, uint32_t n_rows, float *logits, Error *error)
{
    if (sequence->state == SEQUENCE_DECODE) return sample_token(sequence, tools, logits, error);
    return advance_prefill(sequence, tools, n_rows, logits, error);
}

void sequence_fail(Sequence *sequence, const SequenceTools *tools, const Error *error)
{
    Error *failure = sequence->request->failure;
    sequence->request->failure = NULL;
    *failure = *error;
    if (error->code == ERR_CANCELLED || error->code == ERR_DEADLINE)
        tools->stats->cancelled++;
    else
        tools->stats->failed++;
    if (error->code == ERR_NON_FINITE) tools->stats->non_finite++;
    post(sequence, (Event){.kind = EVENT_FAILED, .error = failure});
    close_sequence(sequence, tools);
}
