/* SPDX-License-Identifier: Apache-2.0 */
/* Answers are the same whether the engine's steps bring rows of logits, their digests, or digests that are too short.
 */
#include "tests/scheduler/rig.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum {
    N_REQUESTS = 10,
    N_TOKENS = 24,
    GREEDY = 1,
    LOGPROBS,
    SEEDED,
    NUCLEUS,
    FEW,
    CHOICES,
    TYPICAL,
    BIASED,
    PENALISED,
    BROKEN
};

static const LogitBias bias = {5, 4};

/* Never ends of itself. */
static uint32_t babble(void *arg, const uint32_t *tokens, uint32_t n)
{
    (void)arg;
    return byte_id((char)('a' + (tokens[n - 1] + n) % 26));
}

/* The last request's row is no number when it has 10 tokens. */
static void spoil(void *arg, const uint32_t *tokens, uint32_t n, float *row)
{
    (void)arg;
    if (n == 13 && tokens[0] == byte_id('z')) row[3] = NAN;
}

static Request *make_request(RequestId id)
{
    Request *request = request_of(id, id == BROKEN ? "zzz" : "abc");
    request->max_tokens = N_TOKENS;
    request->sampling.temperature = id == GREEDY || id == LOGPROBS || id == BROKEN ? 0 : 2;
    request->sampling.seed = id * 7919;
    request->want_logprobs = id == LOGPROBS || id == SEEDED || id == NUCLEUS;
    request->n_top_logprobs = id == SEEDED ? 0 : 5;
    if (id == NUCLEUS) request->sampling.top_p = 0.9f;
    if (id == FEW) request->sampling.top_k = 7;
    if (id == CHOICES) request->n_choices = 2;
    if (id == TYPICAL) request->sampling.typical_p = 0.5f;
    if (id == BIASED) request->sampling.bias = &bias;
    if (id == BIASED) request->sampling.n_bias = 1;
    if (id == PENALISED) {
        request->sampling.repetition_penalty = 1.2f;
        request->sampling.presence_penalty = 0.5f;
        request->sampling.top_p = 0.8f;
        request->min_tokens = N_TOKENS - 2;
    }
    return request;
}

static Rig *run(bool makes_digests, bool short_digests)
{
    Rig *rig = rig_open(&(RigParams){
        .engine = {.next = babble, .edit = spoil, .makes_digests = makes_digests, .short_digests = short_digests}});
    for (RequestId id = 1; id <= N_REQUESTS; id++) rig_submit(rig, make_request(id));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    return rig;
}

static void check_choice(const ChoiceRecord *want, const ChoiceRecord *got, RequestId id)
{
    cr_assert_eq(got->n_tokens, want->n_tokens, "request %llu", (unsigned long long)id);
    cr_assert_eq(memcmp(got->ids, want->ids, want->n_tokens * sizeof *want->ids), 0, "request %llu",
                 (unsigned long long)id);
    for (uint32_t i = 0; i < want->n_tokens; i++) {
        const SampleResult *a = &want->tokens[i].sample, *b = &got->tokens[i].sample;
        cr_assert_eq(a->n_top, b->n_top);
        cr_assert_eq(memcmp(&a->logprob, &b->logprob, sizeof a->logprob), 0, "request %llu, token %u",
                     (unsigned long long)id, i);
        cr_assert_eq(memcmp(a->top, b->top, a->n_top * sizeof *a->top), 0);
    }
}

static void check_same(const Rig *want, const Rig *got)
{
    for (RequestId id = 1; id <= N_REQUESTS; id++) {
        const RequestRecord *a = &want->recorder.requests[id], *b = &got->recorder.requests[id];
        cr_assert_eq(a->n_failed, id == BROKEN);
        cr_assert_eq(b->n_failed, a->n_failed);
        cr_assert_eq(b->error.code, a->error.code);
        check_choice(&a->choices[0], &b->choices[0], id);
        if (id == CHOICES) check_choice(&a->choices[1], &b->choices[1], id);
    }
}

Test(digests, answers_are_those_of_the_rows)
{
    Rig *rows = run(false, false), *digests = run(true, false), *shorts = run(true, true);
    cr_assert_gt(rows->recorder.requests[SEEDED].choices[0].n_tokens, 10);
    check_same(rows, digests);
    check_same(rows, shorts);
    cr_assert_eq(fake_engine_counts(rows->engine)->digests, 0);
    cr_assert_eq(sched_stats(rows->sched).digested_rows, 0);
    uint32_t n = fake_engine_counts(digests->engine)->digests,
             n_short = fake_engine_counts(shorts->engine)->brought_rows;
    cr_assert_gt(n, 5 * 10);
    cr_assert_eq(fake_engine_counts(digests->engine)->brought_rows, 0);
    cr_assert_eq(sched_stats(digests->sched).digested_rows, n);
    cr_assert_gt(n_short, 10, "rows with a list");
    cr_assert_eq(sched_stats(shorts->sched).digested_rows, n - n_short);
    rig_free(rows);
    rig_free(digests);
    rig_free(shorts);
}
