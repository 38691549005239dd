/* SPDX-License-Identifier: Apache-2.0 */
/* From a row of logits to the next tokens of a choice. */
#include "scheduler/job.h"

#include <stdlib.h>
#include <string.h>

/* What one row has given. */
typedef struct Taken {
    EventToken tokens[GUIDE_MAX_AHEAD + 1];
    uint32_t n;
    AnswerParts parts; /* their text */
    AnswerState state;
    bool is_cut; /* by its grammar */
} Taken;

static bool append_token(Sequence *sequence, uint32_t id, Error *error)
{
    if (sequence->n_tokens == sequence->max_tokens) {
        uint32_t max = sequence->max_tokens + sequence->max_tokens / 2;
        uint32_t *tokens = realloc(sequence->tokens, (size_t)max * sizeof *tokens);
        if (!tokens) return error_set(error, ERR_NO_MEMORY, "no memory for %u tokens", max);
        sequence->tokens = tokens;
        sequence->max_tokens = max;
    }
    sequence->tokens[sequence->n_tokens++] = id;
    return true;
}

/* The grammar or a budget has chosen: the row tells only how likely that was. */
static bool force(Sequence *sequence, const float *logits, uint32_t id, SampleResult *ret_sample, Error *error)
{
    const Request *request = sequence->job->request;
    *ret_sample = (SampleResult){.id = id};
    if (request->want_logprobs && logits &&
        !sample_logprobs(logits, tok_n_vocab(sequence->answer.tokenizer), id, request->n_top_logprobs, ret_sample,
                         error))
        return false;
    return sampler_force(sequence->sampler, id, error);
}

/* words NULL: all ids, but an end too early. A mask knows itself what ends an answer, and when it may. */
static void restrict_to(Sequence *sequence, const uint64_t *words)
{
    const Answer *answer = &sequence->answer;
    sampler_ban(sequence->sampler, answer->enders, words || answer_may_end(answer) ? 0 : answer->n_enders);
    sampler_allow(sequence->sampler, words);
}

static bool pick(Sequence *sequence, const uint64_t *words, float *logits, SampleResult *ret_sample, Error *error)
{
    const Request *request = sequence->job->request;
    restrict_to(sequence, words);
    return sampler_pick(sequence->sampler, logits, request->want_logprobs, request->n_top_logprobs, ret_sample, error);
}

bool sequence_may_pick_early(const Sequence *sequence)
{
    uint32_t id;
    return sequence->n_tokens > sequence->job->request->n_prompt && !sequence->guide.matcher &&
           !answer_ends_reasoning(&sequence->answer, &id);
}

bool sequence_may_ask(Sequence *sequence)
{
    EarlyPick *early = &sequence->early;
    Error ignored; /* whoever takes the row meets it again */
    uint32_t id;
    early->is_asked = early->wants_row = false;
    return sequence->n_tokens > sequence->job->request->n_prompt && !answer_ends_reasoning(&sequence->answer, &id) &&
           guide_next(&sequence->guide, &sequence->answer, &early->step, &ignored);
}

/* A token that is known needs no row, but for its probability. */
static bool ask_forced(const Request *request, DigestAsk *ret_ask)
{
    *ret_ask = (DigestAsk){.is_wanted = true};
    return !request->want_logprobs;
}

bool sequence_ask(Sequence *sequence, SamplerSpace *space, DigestAsk *ret_ask)
{
    const Request *request = sequence->job->request;
    EarlyPick *early = &sequence->early;
    sampler_use_space(sequence->sampler, space);
    restrict_to(sequence, early->step.kind == GUIDE_MASKED ? sequence->guide.words : NULL);
    early->is_asked = early->step.kind == GUIDE_FORCED
                          ? ask_forced(request, ret_ask)
                          : sampler_ask(sequence->sampler, request->want_logprobs, request->n_top_logprobs, ret_ask);
    return early->is_asked;
}

/* is_enough false: the digest was not. */
static bool pick_digest(Sequence *sequence, const RowDigest *digest, const DigestItem *items, EarlyPick *early,
                        bool *ret_is_enough)
{
    const Request *request = sequence->job->request;
    *ret_is_enough = true;
    if (early->step.kind == GUIDE_FORCED) return force(sequence, NULL, early->step.id, &early->sample, &early->error);
    return sampler_pick_digest(sequence->sampler, digest, items, request->want_logprobs, request->n_top_logprobs,
                               &early->sample, ret_is_enough, &early->error);
}

void sequence_pick_early(Sequence *sequence, SamplerSpace *space, float *logits, const RowDigest *digest,
                         const DigestItem *items)
{
    const Request *request = sequence->job->request;
    EarlyPick *early = &sequence->early;
    bool is_enough = true;
    sampler_use_space(sequence->sampler, space);
    if (digest)
        early->ok = pick_digest(sequence, digest, items, early, &is_enough);
    else if (early->wants_row)
        early->ok = sampler_pick_asked(sequence->sampler, logits, request->want_logprobs, request->n_top_logprobs,
                                       &early->sample, &early->error);
    else
        early->ok = pick(sequence, NULL, logits, &early->sample, &early->error);
    early->is_there = is_enough;
    early->wants_row = !is_enough;
}

static bool take_early(EarlyPick *early, SampleResult *ret_sample, Error *error)
{
    early->is_there = false;
    if (early->ok)
        *ret_sample = early->sample;
    else
        *error = early->error;
    return early->ok;
}

/* One token of the row; logits NULL: one that is known without. */
static bool choose(Sequence *sequence, float *logits, SampleResult *ret_sample, Error *error)
{
    const Answer *answer = &sequence->answer;
    GuideStep step;
    uint32_t id;
    if (sequence->early.is_there) return take_early(&sequence->early, ret_sample, error);
    if (answer_ends_reasoning(answer, &id)) return force(sequence, logits, id, ret_sample, error);
    if (!guide_next(&sequence->guide, answer, &step, error)) return false;
    if (step.kind == GUIDE_FORCED) return force(sequence, logits, step.id, ret_sample, error);
    return pick(sequence, step.kind == GUIDE_FREE ? NULL : sequence->guide.words, logits, ret_sample, error);
}

/* What the answer took last, with the text that it released. */
static bool tell_token(Sequence *sequence, const SampleResult *sample, Taken *taken, Error *error)
{
    Answer *answer = &sequence->answer;
    taken->tokens[taken->n++] = (EventToken){.sample = *sample, .text_bytes = (uint32_t)answer->text.n};
    const char *text = answer->text.data;
    if (!answer->parser) answer_parts_add(&taken->parts, PART_CONTENT, text, answer->text.n);
    for (uint32_t i = 0; answer->parser && i < answer->parts.n; text += answer->parts.items[i++].n_bytes)
        answer_parts_add(&taken->parts, answer->parts.items[i].kind, text, answer->parts.items[i].n_bytes);
    return answer_parts_end(&taken->parts, error);
}

static bool take(Sequence *sequence, const SampleResult *sample, Taken *taken, Error *error)
{
    Answer *answer = &sequence->answer;
    bool is_over;
    return append_token(sequence, sample->id, error) &&
           guide_take(&sequence->guide, answer, sample->id, &is_over, error) &&
           answer_take(answer, sample->id, is_over, &taken->state, error) && tell_token(sequence, sample, taken, error);
}

/* Text, and its parts where the answer has a form. */
static bool attach_text(const Sequence *sequence, Taken *taken, TokensPayload *payload, Error *error)
{
    uint32_t n = taken->parts.n;
    if (sequence->answer.parser && n) {
        payload->parts = malloc(n * sizeof *payload->parts);
        if (!payload->parts) return error_set(error, ERR_NO_MEMORY, "no memory for %u parts of an answer", n);
        memcpy(payload->parts, taken->parts.items, n * sizeof *payload->parts);
        payload->n_parts = n;
    }
    payload->text_bytes = (uint32_t)taken->parts.text.n;
    payload->text = payload->text_bytes ? buffer_take(&taken->parts.text) : NULL;
    return true;
}

static bool post_taken(Sequence *sequence, const SequenceTools *tools, Taken *taken, Error *error)
{
    Job *job = sequence->job;
    TokensPayload *payload;
    uint64_t now = tools->clock_usec();
    if (!tokens_payload_new(taken->n, &payload, error)) return false;
    for (uint32_t i = 0; i < taken->n; i++) payload->tokens[i] = taken->tokens[i];
    if (!attach_text(sequence, taken, payload, error)) {
        tokens_payload_free(payload);
        return false;
    }
    payload->step_usec = now;
    payload->gap_usec = sequence->last_token_usec ? now - sequence->last_token_usec : 0;
    sequence->last_token_usec = now;
    if (!job->first_token_usec) job->first_token_usec = now;
    job->timings.completion_tokens += taken->n;
    tools->stats->generated_tokens += taken->n;
    sequence_post(sequence, (Event){.kind = EVENT_TOKENS, .tokens = payload});
    return true;
}

/*
 * The grammar can be read in more ways than are followed, or no token goes on with it: an answer that has begun ends
 * here, by an end token that the model did not choose. One that has not is refused.
 */
static bool cut(Sequence *sequence, const float *logits, Taken *taken, Error *error)
{
    Answer *answer = &sequence->answer;
    SampleResult sample;
    uint32_t id = tok_eos(answer->tokenizer);
    bool is_of_grammar = sequence->guide.matcher && (error->code == ERR_TOO_LARGE || error->code == ERR_SCHEMA);
    if (!is_of_grammar || !answer->n_tokens || id == TOK_NONE) return false;
    if (!force(sequence, taken->n ? NULL : logits, id, &sample, error) || !append_token(sequence, id, error) ||
        !answer_take(answer, id, true, &taken->state, error) || !tell_token(sequence, &sample, taken, error))
        return false;
    taken->is_cut = true;
    return true;
}

bool sequence_sample(Sequence *sequence, const SequenceTools *tools, float *logits, Error *error)
{
    enum { MAX_TEXT_BYTES = 64 << 20 };
    const Request *request = sequence->job->request;
    Taken taken = {.state = ANSWER_OPEN};
    SampleResult sample;
    bool ok;
    answer_parts_init(&taken.parts, MAX_TEXT_BYTES);
    do {
        ok = choose(sequence, taken.n ? NULL : logits, &sample, error) && take(sequence, &sample, &taken, error);
    } while (ok && taken.state == ANSWER_OPEN && !request->want_logprobs && taken.n <= GUIDE_MAX_AHEAD &&
             guide_is_ahead(&sequence->guide));
    ok = (ok || cut(sequence, logits, &taken, error)) && post_taken(sequence, tools, &taken, error);
    answer_parts_done(&taken.parts);
    if (!ok) return false;
    if (taken.is_cut)
        sequence_finish(sequence, tools, FINISH_GRAMMAR);
    else if (taken.state == ANSWER_STOPPED)
        sequence_finish(sequence, tools, FINISH_STOP);
    else if (taken.state == ANSWER_FULL)
        sequence_finish(sequence, tools, FINISH_LENGTH);
    return true;
}
