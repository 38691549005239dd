/* SPDX-License-Identifier: Apache-2.0 */
/* A scheduler on a fake engine and a fake clock, driven step by step. Test code; asserts with Criterion. One thread. */
#pragma once
#include "scheduler/sched.h"
#include "tests/scheduler/recorder.h"
#include "tests/support/fake_engine.h"

typedef struct RigParams {
    FakeEngineParams engine;
    bool cache;
    uint32_t max_live, max_batch, prefill_chunk, max_stall_usec; /* 0: 16, 16, 64, 100000 */
    uint64_t max_swap_bytes;
    ScheduleMode order;
} RigParams;

typedef struct Rig {
    Engine *engine;
    PrefixCache *cache;
    Sched *sched;
    Recorder recorder;
    uint32_t room; /* events that will be taken before the next is refused */
} Rig;

extern uint64_t rig_now_usec;
uint64_t rig_clock(void);
bool rig_emit(void *rig, const Event *event);

/* With room without end. */
Rig *rig_open(const RigParams *params);
/* One sequence at a time, by priority. */
Rig *rig_new(const FakeEngineParams *engine, uint32_t max_live, uint32_t prefill_chunk);
void rig_submit(Rig *rig, Request *request);
/* Steps until there is nothing to do. */
SchedState rig_run(Rig *rig);
/* Checks that the engine's contract was kept, all pages given back, and nothing came after a last event. */
void rig_free(Rig *rig);

/* For FakeEngineParams.next: behind a prompt of n_prompt tokens this text, byte by byte, then the end token. */
typedef struct Speaker {
    uint32_t n_prompt;
    const char *text;
} Speaker;
uint32_t speaker_next(void *speaker, const uint32_t *tokens, uint32_t n);
