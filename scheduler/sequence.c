/* SPDX-License-Identifier: Apache-2.0 */
#include "base/numbers.h"
#include "scheduler/job.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_ANSWER_TOKENS = 64,
    APART_ROWS = 8, /* of a span whose rows go one by one: an item takes no longer than so many decode steps */
};

void sequence_post(Sequence *sequence, Event event)
{
    assert(sequence->n_pending < SEQUENCE_MAX_PENDING);
    event.id = sequence->job->id;
    event.choice = sequence->choice;
    sequence->pending[sequence->n_pending++] = event;
}

static bool recomputes(const Sequence *sequence, const SequenceTools *tools)
{
    return !engine_is_deterministic_device(tools->engine) &&
           policy_decodes_as_prefilled(engine_policy(tools->engine, sequence->job->request->policy));
}

bool sequence_goes_in_blocks(const Sequence *sequence, const SequenceTools *tools)
{
    return policy_selects_blocks(engine_policy(tools->engine, sequence->job->request->policy));
}

bool sequence_goes_row_by_row(const Sequence *sequence, const SequenceTools *tools)
{
    return engine_is_deterministic_device(tools->engine) ||
           (engine_is_on_device(tools->engine) &&
            engine_policy(tools->engine, sequence->job->request->policy)->selection.n_stages > 0);
}

/* ---- what it has and what it holds ---- */

bool sequence_open(Sequence *sequence, Job *job, uint32_t choice, const SequenceTools *tools, Error *error)
{
    const Request *request = job->request;
    *sequence = (Sequence){.job = job, .choice = choice};
    sequence->max_tokens = request->n_prompt + FIRST_ANSWER_TOKENS;
    sequence->tokens = malloc((size_t)sequence->max_tokens * sizeof *sequence->tokens);
    if (!sequence->tokens) return error_set(error, ERR_NO_MEMORY, "no memory for %u tokens", sequence->max_tokens);
    memcpy(sequence->tokens, request->prompt, request->n_prompt * sizeof *sequence->tokens);
    sequence->n_tokens = request->n_prompt;
    if (!sampler_new(tools->space, &sequence->sampler, error) ||
        !sampler_reset(sequence->sampler, &request->sampling, choice, request->prompt, request->n_prompt, error) ||
        !guide_open(&sequence->guide, request->grammar, tools->tokenizer, error) ||
        !answer_open(&sequence->answer, tools->tokenizer, request, tools->end_ids, tools->n_end_ids, error))
        return false;
    sequence->has_answer = true;
    sequence->state = SEQUENCE_WAITING;
    return true;
}

/* Rows of the prompt before this one need not be computed again for their log-probabilities. */
static uint32_t first_told_row(const Sequence *sequence)
{
    const Job *job = sequence->job;
    uint32_t n_posted = job->n_posted_prompt;
    bool tells = job->request->want_prompt_logprobs && sequence->choice == 0 && n_posted < job->request->n_prompt;
    return !tells ? UINT32_MAX : n_posted ? n_posted - 1 : 0;
}

static void note_cache(RequestTimings *timings, PrefixEnd end, uint32_t n_known)
{
    timings->cache_end = end;
    timings->known_tokens = n_known;
}

bool sequence_attach(Sequence *sequence, const SequenceTools *tools, uint32_t *ret_cached, Error *error)
{
    const Request *request = sequence->job->request;
    if (!engine_seq_new(tools->engine, request->policy, &sequence->seq, error)) return false;
    uint32_t n_cached = 0;
    engine_seq_set_prompt(tools->engine, sequence->seq, request->n_prompt);
    if (tools->cache) {
        uint32_t n_usable = min_u32(sequence->n_tokens - 1, first_told_row(sequence));
        if (!recomputes(sequence, tools)) n_usable = min_u32(n_usable, request->n_prompt);
        if (sequence->swapped) n_usable = min_u32(n_usable, swapped_first(sequence->swapped));
        const PageSet *sets;
        PrefixEnd end;
        const PrefixKey key = {request->policy, request->cache_salt, request->n_cache_salt};
        prefix_cache_open(tools->cache, &key, sequence->tokens, n_usable, &sequence->cursor, &sets, &n_cached, &end);
        if (n_cached && !engine_seq_adopt(tools->engine, sequence->seq, sets, n_cached, error)) {
            prefix_cache_close(tools->cache, &sequence->cursor);
            engine_seq_close(tools->engine, sequence->seq);
            return false;
        }
        if (sequence->job->state == JOB_WAITING) note_cache(&sequence->job->timings, end, sequence->cursor.n_known);
    }
    sequence->state = SEQUENCE_RUNNING;
    *ret_cached = n_cached;
    return true;
}

bool sequence_fork(Sequence *sequence, const Sequence *from, const SequenceTools *tools, Error *error)
{
    if (!engine_seq_fork(tools->engine, from->seq, &sequence->seq, error)) return false;
    if (tools->cache) sequence->cursor = prefix_cache_fork(tools->cache, &from->cursor);
    sequence->state = SEQUENCE_RUNNING;
    return true;
}

void sequence_detach(Sequence *sequence, const SequenceTools *tools, bool keep)
{
    const Request *request = sequence->job->request;
    uint32_t n_held = engine_seq_tokens(tools->engine, sequence->seq);
    if (keep && !sequence->swapped && n_held > request->n_prompt && !recomputes(sequence, tools)) {
        /* Without a copy its generated tokens take the way of decode rows once more. */
        Error ignored;
        uint32_t first = request->n_prompt / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
        if (swap_out(tools->swap, tools->engine, request->policy, sequence->seq, first, &sequence->swapped, &ignored))
            tools->stats->swapped_out_bytes += swapped_bytes(sequence->swapped);
    }
    if (keep && !sequence->swapped) {
        /* What was read was read, also for rows that are computed once more; a copy takes it along. */
        const AttentionStats stats = engine_seq_attention(tools->engine, sequence->seq, ROWS_DECODE);
        attention_stats_add(&sequence->job->timings.attention, &stats);
    }
    if (tools->cache) prefix_cache_close(tools->cache, &sequence->cursor);
    engine_seq_close(tools->engine, sequence->seq);
    sequence->state = SEQUENCE_WAITING;
    sequence->in_pass = false;
}

bool sequence_leave_cache(Sequence *sequence, const SequenceTools *tools)
{
    if (!tools->cache || !prefix_cursor_is_open(&sequence->cursor)) return false;
    prefix_cache_close(tools->cache, &sequence->cursor);
    return true;
}

void sequence_close(Sequence *sequence, const SequenceTools *tools)
{
    if (sequence->state == SEQUENCE_RUNNING) sequence_detach(sequence, tools, false);
    swap_drop(tools->swap, sequence->swapped);
    sampler_free(sequence->sampler);
    guide_done(&sequence->guide);
    if (sequence->has_answer) answer_done(&sequence->answer);
    free(sequence->tokens);
    sequence->swapped = NULL;
    sequence->sampler = NULL;
    sequence->has_answer = false;
    sequence->tokens = NULL;
    sequence->state = SEQUENCE_OVER;
}

/* ---- what comes next ---- */

uint32_t sequence_missing(const Sequence *sequence, const SequenceTools *tools)
{
    return sequence->n_tokens - engine_seq_tokens(tools->engine, sequence->seq);
}

bool sequence_decodes(const Sequence *sequence, const SequenceTools *tools)
{
    return !sequence->swapped && sequence->n_tokens > sequence->job->request->n_prompt &&
           sequence_missing(sequence, tools) == 1;
}

bool sequence_must_restore(const Sequence *sequence, const SequenceTools *tools)
{
    return sequence->swapped && engine_seq_tokens(tools->engine, sequence->seq) == swapped_first(sequence->swapped);
}

bool sequence_restore(Sequence *sequence, const SequenceTools *tools, Error *error)
{
    if (!swap_in(tools->engine, sequence->seq, sequence->swapped, error)) return false;
    tools->stats->swapped_in_bytes += swapped_bytes(sequence->swapped);
    swap_drop(tools->swap, sequence->swapped);
    sequence->swapped = NULL;
    return true;
}

static bool has_windows(const Sequence *sequence, const SequenceTools *tools)
{
    uint32_t n_classes;
    const KvClassInfo *classes = engine_policy_classes(tools->engine, sequence->job->request->policy, &n_classes);
    return kv_classes_have_windows(classes, n_classes);
}

/*
 * Windowed classes can be published at a checkpoint only before the sequence has gone on: the last page boundary up to
 * one that lies within the rows ends them.
 */
static uint32_t end_at_checkpoint(const Sequence *sequence, const SequenceTools *tools, uint32_t first, uint32_t end)
{
    const Job *job = sequence->job;
    if (!tools->cache || !has_windows(sequence, tools)) return end;
    end = min_u32(end, (first / PREFIX_CHECKPOINT_TOKENS + 1) * PREFIX_CHECKPOINT_TOKENS);
    for (uint32_t i = job->n_checkpoints; i-- > 0;) {
        uint32_t boundary = job->checkpoints[i] / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
        if (boundary <= first) return end;
        if (boundary < end) return boundary;
    }
    return end;
}

/* Of n rows from first on, which do not end the prompt, whole blocks; at least one, if a batch has room for it. */
static uint32_t cut_block(const Sequence *sequence, const SequenceTools *tools, uint32_t first, uint32_t n)
{
    uint32_t end = first + n, boundary = end / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    if (!sequence_goes_in_blocks(sequence, tools) || end >= sequence->job->request->n_prompt) return n;
    if (boundary > first) return boundary - first;
    uint32_t next = first / KV_PAGE_TOKENS * KV_PAGE_TOKENS + KV_PAGE_TOKENS;
    next = min_u32(next, sequence->job->request->n_prompt);
    return next - first <= engine_max_batch_rows(tools->engine) ? next - first : n;
}

BatchSpan sequence_span(const Sequence *sequence, const SequenceTools *tools, uint32_t max_rows)
{
    const Request *request = sequence->job->request;
    bool same = recomputes(sequence, tools);
    uint32_t first = engine_seq_tokens(tools->engine, sequence->seq), told = first_told_row(sequence);
    uint32_t end = sequence->swapped ? swapped_first(sequence->swapped) : sequence->n_tokens;
    if (!same && first < request->n_prompt) end = min_u32(end, request->n_prompt);
    BatchSpan span = {.seq = sequence->seq, .first_pos = first};
    if (first >= request->n_prompt && (!same || end - first == 1)) span.kind = ROWS_DECODE;
    if (span.kind == ROWS_DECODE && sequence_goes_row_by_row(sequence, tools)) max_rows = min_u32(max_rows, APART_ROWS);
    if (end - first > max_rows) end = first + max_rows;
    span.n_rows = end_at_checkpoint(sequence, tools, first, end) - first;
    if (first < told) {
        span.n_rows = cut_block(sequence, tools, first, min_u32(span.n_rows, told - first));
    } else {
        uint32_t most = engine_max_logit_rows(tools->engine);
        span.n_rows = min_u32(cut_block(sequence, tools, first, min_u32(span.n_rows, most)), most);
        span.logits = LOGITS_ALL;
        return span;
    }
    bool is_sampled = first + span.n_rows == sequence->n_tokens && request->max_tokens > 0;
    span.logits = is_sampled ? LOGITS_LAST : LOGITS_NONE;
    return span;
}

/* ---- prompt tokens ---- */

static void attach_text(TokensPayload *payload, Buffer *text)
{
    payload->text_bytes = (uint32_t)text->n;
    payload->text = text->n ? buffer_take(text) : NULL;
}

/* The text of prompt tokens from 'first' on; their shares go into payload. */
static bool decode_prompt(Job *job, const SequenceTools *tools, uint32_t first, TokensPayload *payload, Buffer *text,
                          Error *error)
{
    const Request *request = job->request;
    buffer_clear(text);
    for (uint32_t i = 0; i < payload->n_tokens; i++) {
        size_t before = text->n;
        uint32_t id = request->prompt[first + i];
        if (!tok_stream_push(&job->prompt_stream, tools->tokenizer, id, false, text, error)) return false;
        bool is_last = first + i + 1 == request->n_prompt;
        if (is_last && !tok_stream_flush(&job->prompt_stream, text, error)) return false;
        payload->tokens[i].text_bytes = (uint32_t)(text->n - before);
    }
    return true;
}

/* Row i of logits [n_rows, n_vocab], at first_row + i, tells about the prompt token behind it; none about the first. */
static bool post_prompt_tokens(Sequence *sequence, const SequenceTools *tools, uint32_t first_row, uint32_t n_rows,
                               const float *logits, Error *error)
{
    Job *job = sequence->job;
    const Request *request = job->request;
    uint32_t n_vocab = tok_n_vocab(tools->tokenizer), first = job->n_posted_prompt;
    uint32_t end = min_u32(first_row + n_rows + 1, request->n_prompt);
    TokensPayload *payload;
    if (!tokens_payload_new(end - first, &payload, error)) return false;
    payload->is_prompt = true;
    payload->step_usec = tools->clock_usec();
    for (uint32_t at = first; at < end; at++) {
        SampleResult *result = &payload->tokens[at - first].sample;
        if (at == 0)
            *result = (SampleResult){.id = request->prompt[0], .logprob = NAN};
        else if (!sample_logprobs(logits + (size_t)(at - 1 - first_row) * n_vocab, n_vocab, request->prompt[at],
                                  request->n_top_logprobs, result, error))
            goto failed;
    }
    if (!decode_prompt(job, tools, first, payload, &sequence->answer.text, error)) goto failed;
    attach_text(payload, &sequence->answer.text);
    job_post_early(job, (Event){.kind = EVENT_TOKENS, .tokens = payload});
    job->n_posted_prompt = end;
    return true;
failed:
    tokens_payload_free(payload);
    return false;
}

/* ---- after a step ---- */

/* Tokens of the prompt whose keys do not tell where it ends. */
static uint32_t count_prefilled(const Sequence *sequence, const SequenceTools *tools)
{
    const Request *request = sequence->job->request;
    const AttnPolicy *policy = engine_policy(tools->engine, request->policy);
    if (!policy_selects_blocks(policy)) return request->n_prompt;
    uint32_t tail = min_u32(policy->selection.dense_tail_rows, request->n_prompt);
    return (request->n_prompt - tail) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
}

static PrefixRun run_of(const Sequence *sequence, const SequenceTools *tools)
{
    const Job *job = sequence->job;
    return (PrefixRun){.seq = sequence->seq,
                       .tokens = sequence->tokens,
                       .n_tokens = engine_seq_tokens(tools->engine, sequence->seq),
                       .n_prefilled = count_prefilled(sequence, tools),
                       .checkpoints = job->checkpoints,
                       .n_checkpoints = job->n_checkpoints};
}

void sequence_finish(Sequence *sequence, const SequenceTools *tools, FinishReason finish)
{
    sequence_post(sequence, (Event){.kind = EVENT_CHOICE_DONE, .finish = finish});
    sequence->job->n_over++;
    sequence->job->timings.reasoning_tokens += sequence->answer.n_reasoning;
    if (sequence->state == SEQUENCE_RUNNING) {
        const AttentionStats stats = engine_seq_attention(tools->engine, sequence->seq, ROWS_DECODE);
        attention_stats_add(&sequence->job->timings.attention, &stats);
        PrefixRun run = run_of(sequence, tools);
        if (tools->cache) prefix_cache_finish(tools->cache, &sequence->cursor, &run);
        engine_seq_close(tools->engine, sequence->seq);
        sequence->state = SEQUENCE_OVER;
    }
    sequence_close(sequence, tools);
}

static void tell_progress(Job *job, const SequenceTools *tools, uint32_t n_held)
{
    uint32_t n_prompt = job->request->n_prompt, done = min_u32(n_held, n_prompt);
    if (done <= job->n_progress) return;
    tools->stats->prompt_tokens += done - job->n_progress;
    job->n_progress = done;
    job_post_early(job, (Event){.kind = EVENT_PROGRESS, .progress = {.done = done, .total = n_prompt}});
}

uint32_t sequence_last_row(const Sequence *sequence, const SequenceTools *tools, uint32_t n_rows)
{
    uint32_t first = engine_seq_tokens(tools->engine, sequence->seq) - n_rows;
    return first >= first_told_row(sequence) ? n_rows - 1 : 0;
}

bool sequence_advance(Sequence *sequence, const SequenceTools *tools, uint32_t n_rows, float *logits, Error *error)
{
    const Request *request = sequence->job->request;
    uint32_t n_held = engine_seq_tokens(tools->engine, sequence->seq), first = n_held - n_rows;
    uint32_t last_row = sequence_last_row(sequence, tools, n_rows);
    bool tells = first >= first_told_row(sequence);
    if (tells && !post_prompt_tokens(sequence, tools, first, n_rows, logits, error)) return false;
    tell_progress(sequence->job, tools, n_held);
    if (tools->cache && n_held / KV_PAGE_TOKENS > first / KV_PAGE_TOKENS) {
        PrefixRun run = run_of(sequence, tools);
        prefix_cache_extend(tools->cache, &sequence->cursor, &run);
    }
    if (n_held < sequence->n_tokens) return true;
    if (request->max_tokens > 0)
        return sequence_sample(sequence, tools, logits + (size_t)last_row * tok_n_vocab(tools->tokenizer), error);
    sequence_finish(sequence, tools, FINISH_LENGTH);
    return true;
}
