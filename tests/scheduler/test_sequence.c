/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sequence.h"
#include "tests/scheduler/rig.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* No winner: a draw at temperature 1.5 lands anywhere. */
static void flatten(void *arg, const uint32_t *tokens, uint32_t n, float *row)
{
    (void)arg;
    for (uint32_t i = 0; i < tiny_model_vocab(); i++) row[i] = fminf(row[i], 1);
    row[(n * 7 + tokens[n - 1]) % tiny_model_vocab()] = 1.5f;
}

static Request *wild_request(RequestId id, uint64_t seed)
{
    Request *request = request_of(id, "go");
    request->sampling.temperature = 1.5f;
    request->sampling.top_k = 100;
    request->sampling.seed = seed;
    request->max_tokens = 200;
    return request;
}

/* All tokens of a choice decoded at once. */
static void decode(const Engine *engine, const ChoiceRecord *choice, Buffer *out)
{
    Error error;
    TokStream stream = {0};
    for (uint32_t i = 0; i < choice->n_tokens; i++)
        cr_assert(tok_stream_push(&stream, engine_tokenizer(engine), choice->ids[i], false, out, &error));
    cr_assert(tok_stream_flush(&stream, out, &error));
}

static uint64_t text_bytes(const ChoiceRecord *choice)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < choice->n_tokens; i++) sum += choice->tokens[i].text_bytes;
    return sum;
}

/* Temperature 1.5 and top_k 100 on a small model give bytes that are no UTF-8: the answer ends as any other. */
Test(sequence, wild_sampling_gives_whole_code_points)
{
    uint32_t n_long = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        Rig *rig = rig_new(&(FakeEngineParams){.edit = flatten}, 4, 64);
        rig_submit(rig, wild_request(1, seed));
        cr_assert_eq(rig_run(rig), SCHED_IDLE);
        const ChoiceRecord *choice = &rig->recorder.requests[1].choices[0];
        Buffer want;
        buffer_init(&want, 1 << 20);
        decode(rig->engine, choice, &want);
        cr_assert_eq(rig->recorder.requests[1].n_done, 1);
        cr_assert_eq(choice->n_text, want.n);
        cr_assert_eq(memcmp(choice->text, want.data, want.n), 0);
        cr_assert_eq(text_bytes(choice), want.n);
        n_long += choice->n_tokens > 50;
        buffer_done(&want);
        rig_free(rig);
    }
    cr_assert_gt(n_long, 5);
}

Test(sequence, same_seed_same_text_and_other_choices_differ)
{
    Rig *rig = rig_new(&(FakeEngineParams){.edit = flatten}, 4, 64);
    for (RequestId id = 1; id <= 3; id++) {
        Request *request = wild_request(id, id == 3 ? 8 : 7);
        request->n_choices = id == 1 ? 1 : 3;
        rig_submit(rig, request);
    }
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    const RequestRecord *one = &rig->recorder.requests[1], *three = &rig->recorder.requests[2];
    cr_assert_str_eq(one->choices[0].text, three->choices[0].text);
    cr_assert_str_neq(three->choices[0].text, three->choices[1].text);
    cr_assert_str_neq(three->choices[1].text, three->choices[2].text);
    cr_assert_str_neq(three->choices[0].text, rig->recorder.requests[3].choices[0].text);
    cr_assert_eq(three->timings.prompt_tokens, 2);
    uint32_t n_tokens = 0;
    for (int i = 0; i < 3; i++) {
        cr_assert(three->choices[i].is_done);
        n_tokens += three->choices[i].n_tokens;
    }
    cr_assert_eq(three->timings.completion_tokens, n_tokens);
    rig_free(rig);
}

/* Side by side they share its pages; without a place each computes it again. */
Test(sequence, choices_share_the_prompt)
{
    for (uint32_t max_batch = 1; max_batch <= 4; max_batch++) {
        Speaker speaker = {20, "abc"};
        const RigParams params = {
            .engine = {.next = speaker_next, .next_arg = &speaker}, .max_batch = max_batch, .prefill_chunk = 8};
        Rig *rig = rig_open(&params);
        Request *request = request_of(1, "a prompt of 20 bytes");
        request->n_choices = 3;
        request_set_stop(request, "c");
        request->sampling.presence_penalty = 2; /* would change later choices, if it were shared */
        rig_submit(rig, request);
        cr_assert_eq(rig_run(rig), SCHED_IDLE);
        for (int i = 0; i < 3; i++) cr_assert_str_eq(rig->recorder.requests[1].choices[i].text, "ab");
        uint32_t n_shared = max_batch < 3 ? max_batch : 3;
        /* Each has two rows of its answer; one that comes later computes the prompt and its first token again. */
        cr_assert_eq(fake_engine_counts(rig->engine)->rows, 20 + 2 * 3 + (3 - n_shared) * 20);
        cr_assert_eq(fake_engine_counts(rig->engine)->forked, n_shared - 1);
        cr_assert_eq(rig->recorder.requests[1].n_progress, 3);
        cr_assert_eq(rig->recorder.stats.prompt_tokens, 20);
        rig_free(rig);
    }
}

Test(sequence, a_prompt_of_one_token_with_choices)
{
    Speaker speaker = {1, "abc"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 4, 8);
    Request *request = request_of(1, "x");
    request->n_choices = 2;
    rig_submit(rig, request);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    for (int i = 0; i < 2; i++) cr_assert_str_eq(rig->recorder.requests[1].choices[i].text, "abc");
    rig_free(rig);
}

Test(sequence, logprobs_come_when_asked_for)
{
    Speaker speaker = {1, "ab"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 4, 8);
    Request *request = request_of(1, "x");
    request->want_logprobs = true;
    request->n_top_logprobs = 3;
    rig_submit(rig, request);
    rig_submit(rig, request_of(2, "x"));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    const ChoiceRecord *choice = &rig->recorder.requests[1].choices[0];
    cr_assert_eq(choice->n_tokens, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const SampleResult *sample = &choice->tokens[i].sample;
        cr_assert(sample->logprob < 0 && sample->logprob > -1e-3f);
        cr_assert_eq(sample->n_top, 3);
        cr_assert_eq(sample->top[0].id, sample->id);
        cr_assert_lt(sample->top[2].logprob, -18);
    }
    cr_assert_eq(rig->recorder.requests[2].choices[0].tokens[0].sample.n_top, 0);
    cr_assert_eq(rig->recorder.requests[2].choices[0].tokens[0].sample.logprob, 0);
    rig_free(rig);
}

/* The model that foretells the alphabet. */
static uint32_t next_letter(void *arg, const uint32_t *tokens, uint32_t n)
{
    (void)arg;
    return tokens[n - 1] + 1;
}

static Request *echo_request(RequestId id, const char *prompt, uint32_t max_tokens)
{
    Request *request = request_of(id, prompt);
    request->want_prompt_logprobs = true;
    request->n_top_logprobs = 2;
    request->max_tokens = max_tokens;
    return request;
}

Test(sequence, prompt_logprobs_whatever_the_chunks)
{
    const char *prompt = "abcdXefghi";
    EventToken first[10];
    for (uint32_t chunk = 1; chunk <= 12; chunk++) {
        FakeEngineParams engine = {.next = next_letter, .max_logit_rows = chunk > 8 ? 4 : 64};
        Rig *rig = rig_new(&engine, 4, chunk);
        Request *request = echo_request(1, prompt, 2);
        request->n_choices = 2;
        rig_submit(rig, request);
        cr_assert_eq(rig_run(rig), SCHED_IDLE);
        const RequestRecord *record = &rig->recorder.requests[1];
        cr_assert_eq(record->n_prompt, 10); /* once, not with each choice */
        cr_assert_str_eq(record->prompt_text, prompt);
        cr_assert(isnan(record->prompt[0].sample.logprob));
        cr_assert_eq(record->prompt[0].sample.n_top, 0);
        for (uint32_t i = 0; i < 10; i++) {
            cr_assert_eq(record->prompt[i].sample.id, byte_id(prompt[i]));
            cr_assert_eq(record->prompt[i].text_bytes, 1);
            if (i == 0) continue;
            bool is_foretold = prompt[i] == prompt[i - 1] + 1;
            cr_assert(is_foretold ? record->prompt[i].sample.logprob > -1e-3f : record->prompt[i].sample.logprob < -18);
            cr_assert_eq(record->prompt[i].sample.top[0].id, byte_id((char)(prompt[i - 1] + 1)));
        }
        cr_assert_str_eq(record->choices[0].text, "jk");
        cr_assert_str_eq(record->choices[1].text, "jk");
        if (chunk == 1) memcpy(first, record->prompt, sizeof first);
        for (uint32_t i = 1; i < 10; i++) cr_assert_eq(memcmp(&first[i], &record->prompt[i], sizeof first[i]), 0);
        rig_free(rig);
    }
}

Test(sequence, prompt_logprobs_without_an_answer)
{
    Rig *rig = rig_new(&(FakeEngineParams){.next = next_letter}, 4, 3);
    Request *request = echo_request(1, "abcd", 0);
    request->n_choices = 2;
    rig_submit(rig, request);
    rig_submit(rig, echo_request(2, "a", 0));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    const RequestRecord *record = &rig->recorder.requests[1];
    cr_assert_eq(record->n_done, 1);
    cr_assert_eq(record->n_prompt, 4);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(record->choices[i].n_tokens, 0);
        cr_assert(record->choices[i].is_done);
        cr_assert_eq(record->choices[i].finish, FINISH_LENGTH);
    }
    cr_assert_eq(record->timings.completion_tokens, 0);
    cr_assert_eq(rig->recorder.requests[2].n_prompt, 1);
    cr_assert(isnan(rig->recorder.requests[2].prompt[0].sample.logprob));
    rig_free(rig);
}

/* Code points that chunks cut, and dead bytes at the prompt's end. */
Test(sequence, prompt_text_is_whole_code_points)
{
    Rig *rig = rig_new(&(FakeEngineParams){.next = next_letter}, 4, 1);
    rig_submit(rig, echo_request(1, "\xF0\x9F\x98\x80\xE2\x82", 1));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_str_eq(rig->recorder.requests[1].prompt_text, "\U0001F600\uFFFD");
    cr_assert_eq(rig->recorder.requests[1].prompt[2].text_bytes, 0);
    cr_assert_eq(rig->recorder.requests[1].prompt[3].text_bytes, 4);
    rig_free(rig);
}

static void poison_third(void *arg, const uint32_t *tokens, uint32_t n, float *row)
{
    (void)arg;
    (void)tokens;
    if (n == 3) row[5] = INFINITY;
}

Test(sequence, non_finite_prompt_rows_fail_it)
{
    Rig *rig = rig_new(&(FakeEngineParams){.next = next_letter, .edit = poison_third}, 4, 64);
    rig_submit(rig, echo_request(1, "abcdef", 1));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_eq(rig->recorder.requests[1].error.code, ERR_NON_FINITE);
    cr_assert_eq(rig->recorder.requests[1].n_prompt, 0);
    rig_free(rig);
}

/* The most events that one step can post, going out one by one, and a failure on top of them. */
Test(sequence, the_fullest_step_fits)
{
    Rig *rig = rig_open(&(RigParams){.engine = {.next = next_letter}});
    Request *request = echo_request(1, "abc", 1);
    request->n_choices = 3;
    rig_submit(rig, request);
    rig->room = 1;
    cr_assert_eq(sched_step(rig->sched), SCHED_STALLED);
    for (uint32_t n = 2; n <= 10; n++) { /* started, prompt, progress, 3 tokens, 3 choices done, done */
        rig->room = 1;
        (void)sched_step(rig->sched);
        cr_assert_eq(rig->recorder.n_events, n);
    }
    cr_assert_str_eq(rig->recorder.order, "1S 1D ");
    rig->room = 100;
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    request = echo_request(2, "abc", 2);
    request->n_choices = 3;
    rig_submit(rig, request);
    rig->room = 1;
    cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    sched_cancel(rig->sched, 2);
    rig->room = 100;
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_str_eq(rig->recorder.order, "1S 1D 2S 2F ");
    for (int i = 0; i < 3; i++) cr_assert_str_eq(rig->recorder.requests[2].choices[i].text, "d");
    rig_free(rig);
}
