/* SPDX-License-Identifier: Apache-2.0 */
/* Too little memory: who gives way, that it goes on as if nothing had been, and that nothing stays behind. */
#include "tests/scheduler/rig.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_BYTES = 16384 }; /* of the dense class of the fake engine, f16: 64 tokens of 8 heads */

/* What the model says depends on all that its pages hold. */
static RigParams tight(uint32_t n_pages)
{
    return (RigParams){.engine = {.context = 1024,
                                  .max_batch_rows = 64,
                                  .n_layers = FAKE_LAYERS,
                                  .policies = fake_policies,
                                  .n_policies = FAKE_POLICIES,
                                  .kv_bytes = (uint64_t)n_pages * PAGE_BYTES * 2},
                       .prefill_chunk = 64,
                       .max_swap_bytes = 1 << 24};
}

/* As tight, and the lists of three beside the pages: of 8 heads, two banks of a page of the system each. */
static RigParams tight_for(PolicyId policy)
{
    RigParams params = tight(7);
    if (fake_policies[policy].selection.stages[0].keep_tokens) params.engine.kv_bytes += 3 * 8 * 2 * 4096;
    return params;
}

/* Prompts of ids 10 apart are the same. */
static Request *request_for(RequestId id, uint32_t n_prompt, uint32_t max_tokens, PolicyId policy)
{
    Request *request = request_of(id, "");
    uint32_t *ids = arena_array(&request->arena, n_prompt, sizeof *ids);
    cr_assert_not_null(ids);
    for (uint32_t i = 0; i < n_prompt; i++) ids[i] = byte_id((char)('a' + (i * 7 + id % 10) % 26));
    request->prompt = ids;
    request->n_prompt = n_prompt;
    request->max_tokens = max_tokens;
    request->ignore_eos = true;
    request->policy = policy;
    return request;
}

static void same_answers(const Rig *a, const Rig *b, RequestId id)
{
    const ChoiceRecord *x = &a->recorder.requests[id].choices[0], *y = &b->recorder.requests[id].choices[0];
    cr_assert_eq(x->n_tokens, y->n_tokens);
    cr_assert_eq(memcmp(x->ids, y->ids, x->n_tokens * sizeof *x->ids), 0, "request %u", (unsigned)id);
}

static Rig *run_three(const RigParams *params, PolicyId policy)
{
    Rig *rig = rig_open(params);
    for (RequestId id = 1; id <= 3; id++) rig_submit(rig, request_for(id, 100, 250, policy));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    for (RequestId id = 1; id <= 3; id++) {
        cr_assert_eq(rig->recorder.requests[id].n_done, 1, "%s", rig->recorder.requests[id].error.text);
        cr_assert_eq(rig->recorder.requests[id].choices[0].n_tokens, 250);
        cr_assert_eq(rig->recorder.requests[id].n_started, 1);
    }
    return rig;
}

/* With and without a swap store and a prefix cache, whatever the policy. */
/* deterministic: where decoded rows have other bits than prefilled ones whatever the policy. */
static void go_on_as_before(bool deterministic)
{
    for (PolicyId policy = 0; policy < FAKE_POLICIES; policy++) {
        RigParams ample = tight(1000);
        ample.engine.is_on_device = ample.engine.is_deterministic = deterministic;
        Rig *want = run_three(&ample, policy);
        cr_assert_eq(want->recorder.stats.preempted, 0);
        for (int variant = 0; variant < 4; variant++) {
            RigParams params = tight_for(policy);
            params.engine.is_on_device = params.engine.is_deterministic = deterministic;
            params.cache = variant & 1;
            if (variant & 2) params.max_swap_bytes = 0;
            Rig *rig = run_three(&params, policy);
            const RequestRecord *records = rig->recorder.requests;
            for (RequestId id = 1; id <= 3; id++) same_answers(rig, want, id);
            cr_assert_gt(rig->recorder.stats.preempted, 0);
            cr_assert_eq(records[1].timings.n_preempted, 0, "who came first never gives way");
            bool must_swap = (policy >= 2 || deterministic) && params.max_swap_bytes;
            cr_assert_eq(rig->recorder.stats.swapped_out_bytes > 0, must_swap);
            cr_assert_eq(rig->recorder.stats.swapped_in_bytes, rig->recorder.stats.swapped_out_bytes);
            cr_assert_eq(rig->recorder.stats.swap_bytes, 0);
            if (must_swap)
                cr_assert_eq(fake_engine_counts(rig->engine)->decode_rows, 3 * 249, "generated once, computed once");
            rig_free(rig);
        }
        rig_free(want);
    }
}

Test(pressure, who_gave_way_goes_on_as_it_would_have)
{
    go_on_as_before(false);
}

Test(pressure, who_gave_way_on_a_deterministic_device_goes_on_as_it_would_have)
{
    go_on_as_before(true);
}

Test(pressure, the_last_of_the_lowest_priority_gives_way)
{
    RigParams params = tight(6);
    params.order = SCHEDULE_PRIORITY;
    Rig *rig = rig_open(&params);
    static const int64_t priorities[] = {5, 0, 5};
    for (RequestId id = 1; id <= 3; id++) {
        Request *request = request_for(id, 60, 200, 0);
        request->priority = priorities[id - 1];
        rig_submit(rig, request);
    }
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_eq(rig->recorder.requests[2].timings.n_preempted, 0);
    cr_assert_gt(rig->recorder.requests[3].timings.n_preempted, 0);
    cr_assert_leq(rig->recorder.requests[1].timings.n_preempted, rig->recorder.requests[3].timings.n_preempted);
    for (RequestId id = 1; id <= 3; id++) cr_assert_eq(rig->recorder.requests[id].n_done, 1);
    rig_free(rig);
}

Test(pressure, what_could_never_fit_is_refused)
{
    RigParams params = tight(4);
    Rig *rig = rig_open(&params);
    rig_submit(rig, request_for(1, 100, 900, 0));
    rig_submit(rig, request_for(2, 100, 50, 0));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_eq(rig->recorder.requests[1].error.code, ERR_CONTEXT_LENGTH);
    cr_assert_str_eq(rig->recorder.requests[1].error.param, "max_tokens");
    cr_assert_not_null(strstr(rig->recorder.requests[1].error.text, "100 prompt tokens and up to 900"));
    cr_assert_eq(rig->recorder.requests[2].n_done, 1);
    rig_free(rig);
}

/* Choices of one request give way to each other. */
Test(pressure, choices_that_do_not_fit_together_come_one_after_another)
{
    for (PolicyId policy = 0; policy < FAKE_POLICIES; policy++)
        for (int with_cache = 0; with_cache < 2; with_cache++) {
            RigParams params = tight_for(policy);
            params.cache = with_cache;
            Rig *rig = rig_open(&params);
            Request *request = request_for(1, 100, 250, policy);
            request->n_choices = 4;
            rig_submit(rig, request);
            cr_assert_eq(rig_run(rig), SCHED_IDLE);
            const RequestRecord *record = &rig->recorder.requests[1];
            cr_assert_eq(record->n_done, 1);
            cr_assert_gt(record->timings.n_preempted, 0);
            for (int i = 1; i < 4; i++)
                cr_assert_eq(memcmp(record->choices[i].ids, record->choices[0].ids, 250 * sizeof(uint32_t)), 0);
            rig_free(rig);
        }
}

/*
 * In 14 pages the long one gives way when the others need a third page each. The room that the short one leaves would
 * do for one page more than it had; it waits for the other one, too, and never gives way again.
 */
Test(pressure, who_comes_back_stays_for_a_while)
{
    RigParams params = tight(14);
    Rig *rig = rig_open(&params);
    rig_submit(rig, request_for(1, 60, 250, 0));
    rig_submit(rig, request_for(2, 60, 120, 0));
    rig_submit(rig, request_for(3, 500, 250, 0));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    for (RequestId id = 1; id <= 3; id++) {
        cr_assert_eq(rig->recorder.requests[id].n_done, 1);
        cr_expect_eq(rig->recorder.requests[id].timings.n_preempted, id == 3);
    }
    cr_assert_str_eq(rig->recorder.order, "1S 2S 3S 2D 1D 3D ");
    rig_free(rig);
}

/* What is cached of a prompt that has to wait is looked for when it comes, and when it can start: not in between. */
Test(pressure, who_waits_is_not_looked_up_whenever_somebody_leaves)
{
    RigParams params = tight(16);
    params.cache = true;
    Rig *rig = rig_open(&params);
    rig_submit(rig, request_for(1, 60, 250, 0));
    rig_submit(rig, request_for(2, 60, 120, 0));
    rig_submit(rig, request_for(3, 800, 200, 0));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    for (RequestId id = 1; id <= 3; id++) cr_assert_eq(rig->recorder.requests[id].n_done, 1);
    cr_assert_str_eq(rig->recorder.order, "1S 2S 2D 1D 3S 3D ");
    cr_assert_eq(prefix_cache_stats(rig->cache).looked_up_tokens, 59 + 59 + 2 * 799);
    rig_free(rig);
}

static uint64_t used_bytes(const Rig *rig)
{
    return engine_kv_usage(rig->engine).used_bytes;
}

/* Steps until the request has given way, and its pages are in the swap store if they have to be. */
static void run_until_preempted(Rig *rig, bool is_swapped)
{
    for (int i = 0; i < 4000; i++) {
        EngineStats stats = sched_stats(rig->sched);
        if (stats.preempted && (stats.swap_bytes || !is_swapped)) return;
        (void)sched_step(rig->sched);
    }
    cr_assert_fail("nothing gave way");
}

Test(pressure, a_cancel_frees_what_gave_way)
{
    for (PolicyId policy = 0; policy < FAKE_POLICIES; policy += 2) {
        RigParams params = tight(7);
        Rig *rig = rig_open(&params);
        for (RequestId id = 1; id <= 3; id++) rig_submit(rig, request_for(id, 100, 250, policy));
        run_until_preempted(rig, policy == 2);
        for (RequestId id = 3; id >= 1; id--) sched_cancel(rig->sched, id);
        cr_assert_eq(used_bytes(rig), 0);
        cr_assert_eq(sched_stats(rig->sched).swap_bytes, 0);
        cr_assert_eq(fake_engine_counts(rig->engine)->open, 0);
        cr_assert_eq(rig_run(rig), SCHED_IDLE);
        for (RequestId id = 1; id <= 3; id++) cr_assert_eq(rig->recorder.requests[id].error.code, ERR_CANCELLED);
        rig_free(rig);
    }
}

static void slow_work(void *arg, uint32_t n_rows, uint32_t n_layers, uint32_t depth)
{
    (void)arg;
    (void)depth;
    rig_now_usec += (uint64_t)n_rows * n_layers * 100;
}

/* As a GPU that reads all weights for each launch: its time, and layers of the last item of 8 rows. */
static uint32_t layers_of_eight;

static void work_by_launch(void *arg, uint32_t n_rows, uint32_t n_layers, uint32_t depth)
{
    (void)arg;
    (void)depth;
    rig_now_usec += (uint64_t)n_layers * (1000 + 10 * n_rows);
    if (n_rows == 8) layers_of_eight = n_layers;
}

static void run_one(Rig *rig, Request *request)
{
    RequestId id = request->id;
    rig_submit(rig, request);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_eq(rig->recorder.requests[id].n_done, 1);
}

/* On a device each selecting row of an answer that is computed once more costs what a step does. */
Test(pressure, an_answer_computed_again_row_by_row_keeps_the_stall)
{
    enum { POLICY = 3, STALL_USEC = 20000 };
    RigParams ample = tight(1000), params = tight_for(POLICY);
    Rig *want = run_three(&ample, POLICY);
    params.max_swap_bytes = 0;
    params.max_stall_usec = STALL_USEC;
    params.engine.is_on_device = true;
    params.engine.work = work_by_launch;
    Rig *rig = rig_open(&params);
    /* The last 8 rows of it are a pass. */
    for (RequestId id = 11; id <= 12; id++) run_one(rig, request_for(id, 264, 1, 0));
    cr_assert_eq(layers_of_eight, FAKE_LAYERS, "known by now");
    for (RequestId id = 1; id <= 3; id++) rig_submit(rig, request_for(id, 100, 250, POLICY));
    SchedState state = SCHED_READY;
    while (state == SCHED_READY) {
        uint64_t begin_usec = rig_now_usec;
        state = sched_step(rig->sched);
        cr_assert_leq(rig_now_usec - begin_usec, STALL_USEC);
    }
    cr_expect_gt(rig->recorder.stats.preempted, 0);
    cr_expect_gt(fake_engine_counts(rig->engine)->decode_rows, 3 * 249 + 64);
    for (RequestId id = 1; id <= 3; id++) same_answers(rig, want, id);
    layers_of_eight = 0;
    run_one(rig, request_for(13, 264, 1, 0));
    cr_expect_eq(layers_of_eight, FAKE_LAYERS, "those rows have not made others dear");
    rig_free(rig);
    rig_free(want);
}

/* While its pass is suspended between two layers. */
Test(pressure, a_cancel_frees_what_is_in_a_suspended_pass)
{
    RigParams params = tight(100);
    params.engine.work = slow_work;
    params.max_stall_usec = 7000; /* a layer */
    Rig *rig = rig_open(&params);
    rig_submit(rig, request_for(1, 300, 5, 0));
    rig_submit(rig, request_for(2, 300, 5, 0));
    cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    cr_assert_eq(fake_engine_counts(rig->engine)->open_passes, 1);
    sched_cancel(rig->sched, 1);
    sched_cancel(rig->sched, 2);
    cr_assert_eq(fake_engine_counts(rig->engine)->open_passes, 0);
    cr_assert_eq(used_bytes(rig), 0);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    rig_free(rig);
}

/* Of a prompt that was read before only the last row is computed, and the answer is the same. */
Test(pressure, a_prompt_that_was_read_is_not_read_again)
{
    RigParams params = tight(100);
    params.cache = true;
    Rig *rig = rig_open(&params);
    rig_submit(rig, request_for(1, 200, 100, 0));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    uint32_t rows = fake_engine_counts(rig->engine)->rows;
    cr_assert_eq(rows, 299);
    rig_submit(rig, request_for(11, 200, 100, 0));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    const RequestRecord *first = &rig->recorder.requests[1], *second = &rig->recorder.requests[11];
    cr_assert_eq(memcmp(first->choices[0].ids, second->choices[0].ids, 100 * sizeof(uint32_t)), 0);
    cr_assert_eq(first->timings.cached_tokens, 0);
    cr_assert_eq(second->timings.cached_tokens, 199);
    cr_assert_eq(second->timings.prompt_tokens, 200);
    cr_assert_eq(fake_engine_counts(rig->engine)->rows, rows + 100);
    cr_assert_eq(rig->recorder.stats.prefix_queried_tokens, 400);
    cr_assert_eq(rig->recorder.stats.prefix_hit_tokens, 199);
    cr_assert_eq(rig->recorder.stats.prompt_tokens, 400);
    cr_assert_gt(rig->recorder.stats.prefix_pages, 0);
    rig_free(rig);
}

/* Log-probabilities of a prompt take its rows, and another salt is another world. */
Test(pressure, what_the_cache_must_not_save)
{
    RigParams params = tight(100);
    params.cache = true;
    Rig *rig = rig_open(&params);
    rig_submit(rig, request_for(1, 100, 5, 0));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    Request *told = request_for(11, 100, 5, 0), *salted = request_for(1, 100, 5, 0);
    told->want_prompt_logprobs = true;
    rig_submit(rig, told);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_eq(rig->recorder.requests[11].n_prompt, 100);
    cr_assert_eq(rig->recorder.requests[11].timings.cached_tokens, 0);
    salted->id = 2;
    salted->cache_salt = "salt";
    salted->n_cache_salt = 4;
    rig_submit(rig, salted);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_eq(rig->recorder.requests[2].timings.cached_tokens, 0);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(rig->recorder.requests[2].choices[0].ids[i], rig->recorder.requests[1].choices[0].ids[i]);
    rig_free(rig);
}

/* Checkpoints of a prompt that is still read keep pages of its windows: they go when nothing else can. */
Test(pressure, checkpoints_of_the_only_request_give_way)
{
    for (PolicyId policy = 1; policy < FAKE_POLICIES; policy++) {
        RigParams params = tight(1000);
        Engine *measure = fake_engine_new(&params.engine);
        params.engine.kv_bytes = engine_need_bytes(measure, policy, 1000);
        engine_close(measure);
        params.cache = true;
        Rig *rig = rig_open(&params);
        Request *request = request_for(1, 900, 100, policy);
        uint32_t *ids = (uint32_t *)request->prompt;
        for (uint32_t i = 40; i < 900; i += 50) ids[i] = TINY_IM_END;
        rig_submit(rig, request);
        cr_assert_eq(rig_run(rig), SCHED_IDLE);
        cr_assert_eq(rig->recorder.requests[1].n_done, 1, "%s", rig->recorder.requests[1].error.text);
        rig_free(rig);
    }
}

/* Beside request 2, with 4 pages of request 1 in the cache: request 3 has to wait whatever they do, or starts for them.
 */
Test(pressure, who_has_to_wait_anyhow_takes_nothing_from_the_cache)
{
    for (int fits = 0; fits < 2; fits++) {
        RigParams params = tight(12);
        params.cache = true;
        Rig *rig = rig_open(&params);
        rig_submit(rig, request_for(1, 200, 5, 0));
        cr_assert_eq(rig_run(rig), SCHED_IDLE);
        rig_submit(rig, request_for(2, 300, 150, 0));
        while (rig->recorder.requests[2].choices[0].n_tokens == 0) (void)sched_step(rig->sched);
        rig_submit(rig, request_for(3, fits ? 150 : 400, 10, 0));
        for (int i = 0; i < 10; i++) (void)sched_step(rig->sched);
        cr_assert_eq(rig->recorder.requests[2].n_done, 0);
        cr_assert_eq(rig->recorder.requests[3].n_started, (uint32_t)fits);
        cr_assert_eq(prefix_cache_stats(rig->cache).evicted_pages > 0, fits);
        cr_assert_eq(rig_run(rig), SCHED_IDLE);
        cr_assert_eq(rig->recorder.requests[3].n_done, 1);
        rig_free(rig);
    }
}

/* Beside request 2 the first in the queue has to wait; when it leaves, or another comes before it, that one starts. */
Test(pressure, who_fits_starts_when_the_first_in_the_queue_is_another)
{
    for (int cancels = 0; cancels < 2; cancels++) {
        RigParams params = tight(12);
        params.order = SCHEDULE_PRIORITY;
        Rig *rig = rig_open(&params);
        rig_submit(rig, request_for(2, 300, 150, 0));
        while (rig->recorder.requests[2].choices[0].n_tokens == 0) (void)sched_step(rig->sched);
        rig_submit(rig, request_for(3, 500, 10, 0));
        if (cancels) rig_submit(rig, request_for(4, 60, 10, 0));
        for (int i = 0; i < 5; i++) (void)sched_step(rig->sched);
        cr_assert_eq(rig->recorder.requests[3].n_started + rig->recorder.requests[4].n_started, 0);
        Request *preferred = request_for(5, 60, 10, 0);
        preferred->priority = -1;
        if (cancels)
            sched_cancel(rig->sched, 3);
        else
            rig_submit(rig, preferred);
        (void)sched_step(rig->sched);
        cr_assert_eq(rig->recorder.requests[cancels ? 4 : 5].n_started, 1);
        if (cancels) request_free(preferred);
        cr_assert_eq(rig_run(rig), SCHED_IDLE);
        rig_free(rig);
    }
}

/* What a prompt that is still read will need is not there for others. */
Test(pressure, who_would_have_to_give_way_soon_does_not_start)
{
    RigParams params = tight(10);
    Rig *rig = rig_open(&params);
    rig_submit(rig, request_for(1, 500, 10, 0));
    (void)sched_step(rig->sched);
    rig_submit(rig, request_for(2, 300, 10, 0));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_eq(rig->recorder.stats.preempted, 0);
    cr_assert_str_eq(rig->recorder.order, "1S 1D 2S 2D ");
    rig_free(rig);
}

/* What the second of two prompts that share their first tokens finds of them; both have a message that ends at 130. */
static uint32_t cached_of_shared(uint32_t n_shared)
{
    RigParams params = tight(1000);
    params.engine.context = 8192;
    params.engine.max_batch_rows = params.prefill_chunk = 256;
    params.cache = true;
    Rig *rig = rig_open(&params);
    for (RequestId id = 1; id <= 2; id++) {
        Request *request = request_for(id, n_shared + 150, 5, 1);
        uint32_t *ids = (uint32_t *)request->prompt;
        for (uint32_t i = 0; i < n_shared; i++) ids[i] = byte_id((char)('a' + i % 26));
        ids[129] = TINY_IM_END;
        rig_submit(rig, request);
        cr_assert_eq(rig_run(rig), SCHED_IDLE);
    }
    uint32_t n_cached = rig->recorder.requests[2].timings.cached_tokens;
    rig_free(rig);
    return n_cached;
}

/* A pass ends where a message does, and every 4096 tokens, so that the windows of that place are found. */
Test(pressure, a_checkpoint_within_a_chunk_is_kept)
{
    cr_assert_eq(cached_of_shared(150), 128);
    cr_assert_eq(cached_of_shared(4150), 4096);
}

/* What only the cache keeps is as good as free; what a sequence uses of it is not. */
Test(pressure, pages_that_only_the_cache_keeps_are_told_apart)
{
    RigParams params = tight(12);
    params.cache = true;
    Rig *rig = rig_open(&params);
    rig_submit(rig, request_for(1, 300, 5, 0));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    EngineStats idle = sched_stats(rig->sched);
    cr_expect_gt(idle.kv_bytes_used, 4 * PAGE_BYTES);
    cr_expect_eq(idle.kv_bytes_idle, idle.kv_bytes_used);
    cr_expect_eq(engine_stats_kv_usage(&idle), 0);
    rig_submit(rig, request_for(1 + 10, 300, 20, 0));
    while (rig->recorder.requests[11].choices[0].n_tokens == 0) (void)sched_step(rig->sched);
    EngineStats busy = sched_stats(rig->sched);
    cr_expect_leq(busy.kv_bytes_idle, PAGE_BYTES * 2, "more than the end of the first answer");
    cr_expect_gt(engine_stats_kv_usage(&busy), 0.3);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_expect_eq(sched_stats(rig->sched).prefix_evicted_pages, 0);
    rig_submit(rig, request_for(12, 700, 5, 0));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_expect_gt(sched_stats(rig->sched).prefix_evicted_pages, 0);
    rig_free(rig);
}

/* The shorter one is chosen, finds no page and gives way, again and again: the watchdog must not take that for life. */
Test(pressure, to_give_way_in_a_circle_is_no_step)
{
    bool is_full = false;
    RigParams params = tight(32);
    params.engine.is_full = &is_full;
    Rig *rig = rig_open(&params);
    rig_submit(rig, request_for(1, 300, 50, 0));
    cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    rig_submit(rig, request_for(2, 100, 50, 0));
    is_full = true;
    uint64_t n_steps = sched_steps(rig->sched), n_preempted = sched_stats(rig->sched).preempted;
    for (int i = 0; i < 20; i++) cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    cr_assert_eq(sched_steps(rig->sched), n_steps);
    cr_assert_geq(sched_stats(rig->sched).preempted, n_preempted + 20);
    is_full = false;
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    for (RequestId id = 1; id <= 2; id++) cr_assert_eq(rig->recorder.requests[id].n_done, 1);
    rig_free(rig);
}

/*
 * Behind 1,472 cached tokens a window holds a few pages, and while the next thousand are read those of a whole pass:
 * who starts beside others must find them all, else it starts and gives way in every step. Whatever the memory.
 */
Test(pressure, who_reads_on_behind_a_cached_prefix_does_not_start_in_vain)
{
    for (PolicyId policy = 1; policy < 3; policy++) {
        RigParams params = tight(1000);
        params.engine.context = 4096;
        params.engine.max_batch_rows = params.prefill_chunk = 1024;
        params.cache = true;
        Engine *measure = fake_engine_new(&params.engine);
        const uint64_t one = engine_need_bytes(measure, policy, 3000), page = engine_need_bytes(measure, policy, 64);
        engine_close(measure);
        for (uint64_t more = 0; more < 30; more++) {
            params.engine.kv_bytes = one + more * page;
            Rig *rig = rig_open(&params);
            rig_submit(rig, request_for(1, 1500, 1, policy));
            cr_assert_eq(rig_run(rig), SCHED_IDLE);
            rig_submit(rig, request_for(2, 600, 240, policy));
            while (rig->recorder.requests[2].choices[0].n_tokens == 0) (void)sched_step(rig->sched);
            rig_submit(rig, request_for(11, 2600, 10, policy));
            cr_assert_eq(rig_run(rig), SCHED_IDLE);
            cr_assert_eq(rig->recorder.requests[11].n_done, 1, "%s", rig->recorder.requests[11].error.text);
            cr_assert_leq(rig->recorder.stats.preempted, 4, "%llu pages more: %llu", (unsigned long long)more,
                          (unsigned long long)rig->recorder.stats.preempted);
            rig_free(rig);
        }
    }
}

/*
 * Of streaming heads a long sequence holds nearly all pages that see everything and few of the windows' pages, which a
 * device has in pools of their own: bytes are free, but not those that the next one needs. It waits for them.
 */
Test(pressure, pages_of_another_class_are_no_room)
{
    for (PolicyId policy = 1; policy < 3; policy++)
        for (int with_cache = 0; with_cache < 2; with_cache++) {
            RigParams params = tight(1000);
            params.engine.context = 4096;
            params.engine.max_batch_rows = params.prefill_chunk = 1024;
            params.engine.pool_tokens = 3000;
            params.cache = with_cache;
            Rig *rig = rig_open(&params);
            rig_submit(rig, request_for(1, 2600, 100, policy));
            while (rig->recorder.requests[1].choices[0].n_tokens == 0) (void)sched_step(rig->sched);
            for (RequestId id = 2; id <= 4; id++) rig_submit(rig, request_for(id, 600, 30, policy));
            cr_assert_eq(rig_run(rig), SCHED_IDLE);
            for (RequestId id = 1; id <= 4; id++)
                cr_assert_eq(rig->recorder.requests[id].n_done, 1, "%s", rig->recorder.requests[id].error.text);
            cr_assert_leq(rig->recorder.stats.preempted, 4, "%llu", (unsigned long long)rig->recorder.stats.preempted);
            rig_free(rig);
        }
}
