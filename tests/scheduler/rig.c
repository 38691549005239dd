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

Rig *rig_new(const FakeEngineParams *engine, uint32_t max_live, uint32_t prefill_chunk)
{
    Rig *rig = calloc(1, sizeof *rig);
    cr_assert_not_null(rig);
    rig_now_usec = 1000;
    rig->engine = fake_engine_new(engine);
    rig->room = UINT32_MAX;
    Error error;
    const SchedParams params = {.engine = rig->engine,
                                .max_live = max_live,
                                .prefill_chunk = prefill_chunk,
                                .clock_usec = rig_clock,
                                .emit = rig_emit,
                                .emit_arg = rig};
    cr_assert(sched_new(&params, &rig->sched, &error), "%s", error.text);
    return rig;
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
