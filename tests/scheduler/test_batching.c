/* SPDX-License-Identifier: Apache-2.0 */
/* Many requests at once: who is computed when, and how long others wait for it. */
#include "tests/scheduler/rig.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYER_USEC = 20, ROW_USEC = 10 }; /* what work costs on the fake clock */

static void work(void *arg, uint32_t n_rows, uint32_t n_layers, uint32_t depth)
{
    (void)arg;
    (void)depth;
    rig_now_usec += n_layers * (LAYER_USEC + n_rows * ROW_USEC);
}

/* Never ends of itself. */
static uint32_t babble(void *arg, const uint32_t *tokens, uint32_t n)
{
    (void)arg;
    return byte_id((char)('a' + (tokens[n - 1] + n) % 26));
}

static Request *long_request(RequestId id, uint32_t n_prompt, uint32_t max_tokens)
{
    Request *request = request_of(id, "");
    uint32_t *ids = arena_array(&request->arena, n_prompt, sizeof *ids);
    cr_assert_not_null(ids);
    for (uint32_t i = 0; i < n_prompt; i++) ids[i] = byte_id((char)('a' + (i * 7 + id) % 26));
    request->prompt = ids;
    request->n_prompt = n_prompt;
    request->max_tokens = max_tokens;
    return request;
}

static RigParams timed(uint32_t max_stall_usec)
{
    return (RigParams){.engine = {.next = babble, .n_layers = FAKE_LAYERS, .max_batch_rows = 256, .work = work},
                       .max_live = 15,
                       .prefill_chunk = 256,
                       .max_stall_usec = max_stall_usec};
}

static uint32_t n_tokens(const Rig *rig, RequestId id)
{
    return rig->recorder.requests[id].choices[0].n_tokens;
}

static void run_until_tokens(Rig *rig, RequestId id, uint32_t n)
{
    for (int i = 0; i < 4000 && n_tokens(rig, id) < n; i++) (void)sched_step(rig->sched);
    cr_assert_geq(n_tokens(rig, id), n);
}

Test(batching, answers_are_written_together)
{
    RigParams params = timed(100000);
    Rig *rig = rig_open(&params);
    for (RequestId id = 1; id <= 5; id++) rig_submit(rig, long_request(id, 10 * (uint32_t)id, 20));
    run_until_tokens(rig, 5, 2);
    uint32_t forwards = fake_engine_counts(rig->engine)->forwards;
    (void)sched_step(rig->sched);
    cr_assert_eq(fake_engine_counts(rig->engine)->forwards, forwards + 1);
    cr_assert_eq(fake_engine_counts(rig->engine)->last_rows, 5);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    for (RequestId id = 1; id <= 5; id++) cr_assert_eq(n_tokens(rig, id), 20);
    cr_assert_eq(rig->recorder.stats.decode_rows, 5 * 19);
    rig_free(rig);
}

/* Short prompts that end in the same pass share it; a long one has a pass of its own. */
Test(batching, short_prompts_share_a_pass)
{
    RigParams params = timed(100000);
    Rig *rig = rig_open(&params);
    rig_submit(rig, long_request(1, 300, 1));
    for (RequestId id = 2; id <= 4; id++) rig_submit(rig, long_request(id, 40, 1));
    while (rig->recorder.requests[4].n_done == 0) (void)sched_step(rig->sched);
    cr_assert_eq(fake_engine_counts(rig->engine)->forwards, 1);
    cr_assert_eq(fake_engine_counts(rig->engine)->rows, 120);
    cr_assert_eq(rig->recorder.requests[1].n_progress, 0);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_eq(fake_engine_counts(rig->engine)->forwards, 3);
    rig_free(rig);
}

/* The largest gap between two tokens of request 1 from its second token on, while others are read. */
static uint64_t largest_gap(Rig *rig)
{
    uint64_t largest = 0, last_usec = rig_now_usec;
    for (uint32_t n = n_tokens(rig, 1); rig->recorder.requests[2].n_done == 0;) {
        cr_assert_eq(sched_step(rig->sched), SCHED_READY);
        if (n_tokens(rig, 1) == n) continue;
        cr_assert_eq(n_tokens(rig, 1), n + 1, "one token a step");
        if (n > 2 && rig_now_usec - last_usec > largest) largest = rig_now_usec - last_usec;
        last_usec = rig_now_usec;
        n++;
    }
    return largest;
}

/* A layer of 256 rows takes 2580 usec: passes are suspended between layers, and within them when they must. */
Test(batching, prefill_keeps_the_gap_between_tokens)
{
    static const uint32_t stalls[] = {20000, 6000, 1500, 700};
    for (size_t i = 0; i < sizeof stalls / sizeof *stalls; i++) {
        RigParams params = timed(stalls[i]);
        Rig *rig = rig_open(&params);
        rig_submit(rig, long_request(1, 10, 2000));
        run_until_tokens(rig, 1, 3);
        rig_submit(rig, long_request(2, 1500, 1));
        uint64_t begin_usec = rig_now_usec, gap_usec = largest_gap(rig);
        uint64_t alone_usec = 1500 * FAKE_LAYERS * ROW_USEC, took_usec = rig_now_usec - begin_usec;
        /* The first item is one layer, whatever it takes. */
        cr_assert_leq(gap_usec, stalls[i] > 2700 ? stalls[i] : 2900, "%u: %u", stalls[i], (unsigned)gap_usec);
        cr_assert_leq(took_usec, alone_usec * (stalls[i] > 5000 ? 3 : 8) / 2, "%u: %u", stalls[i], (unsigned)took_usec);
        sched_cancel(rig->sched, 1);
        cr_assert_eq(rig_run(rig), SCHED_IDLE);
        rig_free(rig);
    }
}

enum { GPU_LAYERS = 32, GPU_PROMPT = 32768, GPU_DECODERS = 4, GPU_PASS_END_USEC = 500, LONG_ID = 15 };

/*
 * About what a GPU takes for a model of 8B: few rows cost what reading the weights costs, many what their products
 * cost, and attention what it looks back on, here as at four times the depth.
 */
static void work_like_gpu(void *arg, uint32_t n_rows, uint32_t n_layers, uint32_t depth)
{
    (void)arg;
    double usec = (n_rows <= 64 ? 130 : 250 + 0.9 * n_rows) + 1.4e-4 * n_rows * depth;
    rig_now_usec += n_layers ? (uint64_t)(n_layers * usec) : GPU_PASS_END_USEC;
}

static int compare_usec(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

typedef struct GapRecord {
    uint64_t usec[4096];
    uint32_t n;
} GapRecord;

/* Until the long prompt is read; the recorder has no room for all that is decoded meanwhile. */
static void record_gaps(Rig *rig, uint32_t n_decoders, GapRecord *gaps)
{
    uint64_t last_usec = rig_now_usec;
    for (uint64_t n = sched_stats(rig->sched).decode_steps; rig->recorder.requests[LONG_ID].n_done == 0;) {
        (void)sched_step(rig->sched);
        for (RequestId id = 1; id <= n_decoders; id++)
            rig->recorder.requests[id].choices[0].n_tokens = rig->recorder.requests[id].choices[0].n_text = 0;
        if (sched_stats(rig->sched).decode_steps == n) continue;
        n = sched_stats(rig->sched).decode_steps;
        cr_assert_lt(gaps->n, sizeof gaps->usec / sizeof *gaps->usec);
        gaps->usec[gaps->n++] = rig_now_usec - last_usec;
        last_usec = rig_now_usec;
    }
    qsort(gaps->usec, gaps->n, sizeof *gaps->usec, compare_usec);
}

/* How long a long prompt takes beside so many that decode. */
static uint64_t read_long(uint32_t stall_usec, uint32_t chunk, uint32_t n_decoders, GapRecord *gaps)
{
    RigParams params = timed(stall_usec);
    params.engine.n_layers = GPU_LAYERS;
    params.engine.context = GPU_PROMPT + 64;
    params.engine.max_batch_rows = params.prefill_chunk = chunk;
    params.engine.work = work_like_gpu;
    params.engine.kv_bytes = UINT64_C(1) << 32;
    Rig *rig = rig_open(&params);
    for (RequestId id = 1; id <= n_decoders; id++) rig_submit(rig, long_request(id, 100, GPU_PROMPT / 2));
    if (n_decoders) run_until_tokens(rig, n_decoders, 3);
    rig_submit(rig, long_request(LONG_ID, GPU_PROMPT, 1));
    uint64_t begin_usec = rig_now_usec;
    *gaps = (GapRecord){0};
    record_gaps(rig, n_decoders, gaps);
    uint64_t took_usec = rig_now_usec - begin_usec;
    sched_stop(rig->sched);
    (void)rig_run(rig);
    rig_free(rig);
    return took_usec;
}

/* Chunks of which a single layer takes up to 130 ms: the gaps are kept, and reading goes on. */
Test(batching, large_chunks_keep_the_gap_too)
{
    static const struct {
        uint32_t chunk, stall_usec;
        double least_rate; /* of that alone */
    } rows[] = {{8192, 100000, 0.9}, {8192, 30000, 0.7}, {32768, 100000, 0.9}, {32768, 30000, 0.7}};
    GapRecord *gaps = calloc(1, sizeof *gaps);
    cr_assert(gaps != NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t alone_usec = read_long(rows[i].stall_usec, rows[i].chunk, 0, gaps);
        uint64_t took_usec = read_long(rows[i].stall_usec, rows[i].chunk, GPU_DECODERS, gaps);
        uint64_t p99_usec = gaps->usec[(99 * gaps->n + 99) / 100 - 1];
        cr_expect_gt(gaps->n, 20);
        cr_expect_leq(p99_usec, rows[i].stall_usec, "%zu: %u us", i, (unsigned)p99_usec);
        cr_expect_geq((double)alone_usec / (double)took_usec, rows[i].least_rate, "%zu: %u and %u us", i,
                      (unsigned)alone_usec, (unsigned)took_usec);
    }
    free(gaps);
}

/* Beside four long prompts a short one takes its own time and no more than a work item. */
Test(batching, a_short_prompt_overtakes_long_ones)
{
    enum { STALL = 5000 };
    RigParams params = timed(STALL);
    params.engine.context = 8192;
    Rig *rig = rig_open(&params);
    for (RequestId id = 1; id <= 4; id++) rig_submit(rig, long_request(id, 4000, 1));
    for (int i = 0; i < 20; i++) cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    for (RequestId id = 5; id <= 7; id++) {
        uint64_t begin_usec = rig_now_usec, alone_usec = FAKE_LAYERS * (LAYER_USEC + 200 * ROW_USEC);
        rig_submit(rig, long_request(id, 200, 1));
        while (rig->recorder.requests[id].n_done == 0) cr_assert_eq(sched_step(rig->sched), SCHED_READY);
        cr_assert_leq(rig_now_usec - begin_usec, alone_usec + STALL);
    }
    cr_assert_eq(rig->recorder.requests[1].n_done, 0);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    rig_free(rig);
}

/* Short prompts without end: the long one that came first still gets its share. */
Test(batching, a_long_prompt_does_not_starve)
{
    RigParams params = timed(3000);
    Rig *rig = rig_open(&params);
    rig_submit(rig, long_request(1, 3000, 1));
    RequestId id = 2;
    uint32_t n_short = 0;
    while (rig->recorder.requests[1].n_done == 0) {
        for (id = 2; id <= 5; id++) {
            RequestRecord *record = &rig->recorder.requests[id];
            if (n_short >= 4 && record->n_done == 0) continue;
            memset(record, 0, sizeof *record);
            rig->recorder.order[0] = '\0';
            rig_submit(rig, long_request(id, 250, 1));
            cr_assert_lt(n_short++, 400, "it starves");
        }
        cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    }
    cr_assert_gt(n_short, 20);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    rig_free(rig);
}

Test(batching, fcfs_knows_no_priorities)
{
    Speaker speaker = {1, "hm"};
    const RigParams params = {.engine = {.next = speaker_next, .next_arg = &speaker}, .max_batch = 1};
    Rig *rig = rig_open(&params);
    for (RequestId id = 1; id <= 3; id++) {
        Request *request = request_of(id, "x");
        request->priority = 10 - (int64_t)id;
        rig_submit(rig, request);
    }
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_str_eq(rig->recorder.order, "1S 1D 2S 2D 3S 3D ");
    rig_free(rig);
}

static void submit_preferred(Rig *rig)
{
    for (RequestId id = 2; id <= 12; id++) {
        Request *request = request_of(id, "x");
        request->priority = -5;
        rig_submit(rig, request);
    }
}

/* Every eighth that starts is the one that came first, however many others are preferred to it. */
Test(batching, low_priority_does_not_starve)
{
    Speaker speaker = {1, "hm"};
    const RigParams params = {
        .engine = {.next = speaker_next, .next_arg = &speaker}, .max_batch = 1, .order = SCHEDULE_PRIORITY};
    Rig *rig = rig_open(&params);
    Request *patient = request_of(1, "x");
    patient->priority = INT64_MAX;
    submit_preferred(rig);
    rig_submit(rig, patient);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_str_eq(rig->recorder.order, "2S 2D 3S 3D 4S 4D 5S 5D 6S 6D 7S 7D 8S 8D 9S 9D 10S 10D 11S 11D 12S 12D "
                                          "1S 1D ");
    rig->recorder.order[0] = '\0';
    memset(rig->recorder.requests, 0, sizeof rig->recorder.requests);
    patient = request_of(1, "x");
    patient->priority = INT64_MAX;
    rig_submit(rig, patient);
    submit_preferred(rig);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_str_eq(rig->recorder.order, "2S 2D 3S 3D 4S 4D 1S 1D 5S 5D 6S 6D 7S 7D 8S 8D 9S 9D 10S 10D 11S 11D "
                                          "12S 12D ");
    rig_free(rig);
}

/* A device that fails in a shared pass fails those in it; the next request runs. */
Test(batching, a_failed_pass_fails_all_in_it)
{
    RigParams params = timed(100000);
    params.engine.fail_at_forward = 1;
    Rig *rig = rig_open(&params);
    for (RequestId id = 1; id <= 3; id++) rig_submit(rig, long_request(id, 20, 4));
    (void)sched_step(rig->sched);
    rig_submit(rig, long_request(4, 20, 4));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    for (RequestId id = 1; id <= 3; id++) cr_assert_eq(rig->recorder.requests[id].error.code, ERR_DEVICE);
    cr_assert_eq(rig->recorder.requests[4].n_done, 1);
    rig_free(rig);
}

/* With room for one event at a time all get theirs in turn. */
Test(batching, a_narrow_event_queue_serves_all_in_turn)
{
    RigParams params = timed(100000);
    Rig *rig = rig_open(&params);
    for (RequestId id = 1; id <= 4; id++) rig_submit(rig, long_request(id, 20, 60));
    for (int i = 0; i < 120; i++) {
        rig->room = 1;
        (void)sched_step(rig->sched);
    }
    for (RequestId id = 1; id <= 4; id++) cr_assert_geq(n_tokens(rig, id), 15);
    rig->room = UINT32_MAX;
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    rig_free(rig);
}

Test(batching, more_choices_than_places)
{
    for (uint32_t max_batch = 1; max_batch < 8; max_batch += 3) {
        RigParams params = timed(100000);
        params.max_batch = max_batch;
        params.cache = max_batch > 1;
        Rig *rig = rig_open(&params);
        Request *request = long_request(1, 100, 30);
        request->n_choices = RECORDER_MAX_CHOICES;
        rig_submit(rig, request);
        rig_submit(rig, long_request(2, 100, 30));
        cr_assert_eq(rig_run(rig), SCHED_IDLE);
        const RequestRecord *record = &rig->recorder.requests[1];
        for (uint32_t i = 1; i < RECORDER_MAX_CHOICES; i++)
            cr_assert_str_eq(record->choices[i].text, record->choices[0].text);
        cr_assert_eq(record->timings.completion_tokens, 30 * RECORDER_MAX_CHOICES);
        cr_assert_eq(rig->recorder.requests[2].n_done, 1);
        rig_free(rig);
    }
}

/* The time of a token, and the time since the one before. */
Test(batching, tokens_carry_their_time)
{
    RigParams params = timed(100000);
    Rig *rig = rig_open(&params);
    Request *request = long_request(1, 100, 3);
    request->arrival_usec = rig_now_usec;
    rig_now_usec += 50;
    rig_submit(rig, request);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    const RequestRecord *record = &rig->recorder.requests[1];
    uint64_t prefill_usec = FAKE_LAYERS * (LAYER_USEC + 100 * ROW_USEC),
             step_usec = FAKE_LAYERS * (LAYER_USEC + ROW_USEC);
    cr_assert_eq(record->timings.queue_usec, 50);
    cr_assert_eq(record->timings.prefill_usec, prefill_usec);
    cr_assert_eq(record->timings.decode_usec, 2 * step_usec);
    cr_assert_eq(rig->recorder.stats.decode_usec, 2 * step_usec);
    cr_assert_eq(rig->recorder.stats.prefill_usec, prefill_usec);
    rig_free(rig);
}

/* Among prompts that are read at once, too. */
Test(batching, a_prompt_of_higher_priority_is_read_before_shorter_ones)
{
    RigParams params = timed(3000);
    params.order = SCHEDULE_PRIORITY;
    Rig *rig = rig_open(&params);
    for (RequestId id = 1; id <= 4; id++) {
        Request *request = long_request(id, 600, 1);
        request->priority = 5;
        rig_submit(rig, request);
    }
    rig_submit(rig, long_request(5, 1500, 1));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    const char *order = rig->recorder.order, *preferred = strstr(order, "5D");
    cr_assert_not_null(preferred);
    for (RequestId id = 2; id <= 4; id++)
        cr_assert_gt(strstr(order, (char[]){(char)('0' + id), 'D', 0}), preferred, "%s", order);
    rig_free(rig);
}

static void break_row(void *arg, const uint32_t *tokens, uint32_t n, float *row)
{
    (void)arg;
    (void)tokens;
    if (n == 14) row[0] = NAN;
}

/* Of choices that are computed together one fails: the request ends once, whatever the others' rows say. */
Test(batching, a_choice_that_fails_ends_its_request)
{
    RigParams params = timed(100000);
    params.engine.edit = break_row;
    Rig *rig = rig_open(&params);
    Request *request = long_request(1, 10, 30);
    request->n_choices = 4;
    rig_submit(rig, request);
    rig_submit(rig, long_request(2, 20, 30));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    const RequestRecord *record = &rig->recorder.requests[1];
    cr_assert_eq(record->n_failed, 1);
    cr_assert_eq(record->error.code, ERR_NON_FINITE);
    for (uint32_t i = 0; i < 4; i++) cr_assert_eq(record->choices[i].n_tokens, 4);
    cr_assert_eq(rig->recorder.stats.non_finite, 1);
    cr_assert_eq(rig->recorder.requests[2].n_done, 1);
    rig_free(rig);
}
