/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/scheduler/rig.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

uint64_t rig_now_usec;

uint64_t rig_clock(void)
{
    return rig_now_usec;
}

bool rig_emit(void *arg, const Event *event)
{
    Rig *rig = arg;
    if (rig->room == 0) return false;
    rig->room--;
    Event copy = *event;
    recorder_take(&rig->recorder, &copy);
    return true;
}

Rig *rig_open(const RigParams *params)
{
    Rig *rig = calloc(1, sizeof *rig);
    cr_assert_not_null(rig);
    rig_now_usec = 1000;
    rig->engine = fake_engine_new(&params->engine);
    rig->room = UINT32_MAX;
    Error error;
    const PrefixParams cache = {.engine = rig->engine, .max_nodes = 1024, .clock_usec = rig_clock};
    if (params->cache) cr_assert(prefix_cache_new(&cache, &rig->cache, &error), "%s", error.text);
    const SchedParams sched = {
        .engine = rig->engine,
        .cache = rig->cache,
        .order = params->order,
        .max_live = params->max_live ? params->max_live : RECORDER_MAX_REQUESTS,
        .max_batch = params->max_batch ? params->max_batch : 16,
        .max_passes = params->engine.max_passes ? params->engine.max_passes : 4,
        .prefill_chunk = params->prefill_chunk ? params->prefill_chunk : 64,
        .max_stall_usec = params->max_stall_usec ? params->max_stall_usec : 100000,
        .max_swap_bytes = params->max_swap_bytes,
        .clock_usec = rig_clock,
        .emit = rig_emit,
        .emit_arg = rig,
    };
    cr_assert(sched_new(&sched, &rig->sched, &error), "%s", error.text);
    return rig;
}

Rig *rig_new(const FakeEngineParams *engine, uint32_t max_live, uint32_t prefill_chunk)
{
    return rig_open(&(RigParams){.engine = *engine,
                                 .max_live = max_live,
                                 .max_batch = 1,
                                 .prefill_chunk = prefill_chunk,
                                 .order = SCHEDULE_PRIORITY});
}

void rig_submit(Rig *rig, Request *request)
{
    Error error;
    cr_assert(sched_submit(rig->sched, request, &error), "%s", error.text);
}

SchedState rig_run(Rig *rig)
{
    for (int i = 0; i < 4000; i++) {
        SchedState state = sched_step(rig->sched);
        if (state != SCHED_READY) return state;
    }
    cr_assert_fail("still busy after 4000 steps");
    return SCHED_READY;
}

void rig_free(Rig *rig)
{
    cr_assert_eq(fake_engine_counts(rig->engine)->broken_promises, 0);
    sched_free(rig->sched);
    cr_assert_eq(fake_engine_counts(rig->engine)->open, 0, "a sequence was left open");
    cr_assert_eq(fake_engine_counts(rig->engine)->open_passes, 0, "a pass was left open");
    prefix_cache_free(rig->cache);
    cr_assert_eq(fake_engine_counts(rig->engine)->broken_promises, 0);
    cr_assert_eq(engine_kv_usage(rig->engine).used_bytes, 0, "a page was left behind");
    engine_close(rig->engine);
    for (int i = 0; i < RECORDER_MAX_REQUESTS; i++) cr_assert_eq(rig->recorder.requests[i].n_after_last, 0);
    free(rig);
}

uint32_t speaker_next(void *arg, const uint32_t *tokens, uint32_t n)
{
    const Speaker *speaker = arg;
    (void)tokens;
    size_t at = n - speaker->n_prompt;
    return n >= speaker->n_prompt && at < strlen(speaker->text) ? byte_id(speaker->text[at]) : TINY_IM_END;
}
