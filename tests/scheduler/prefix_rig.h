/* SPDX-License-Identifier: Apache-2.0 */
/* A prefix cache on fake pages with a clock of its own, and runs through it. Test code; asserts with Criterion. */
#pragma once
#include "scheduler/prefix_cache.h"
#include "tests/scheduler/fake_pages.h"

/* Policies of every rig: classes and provenance that differ. */
enum { FULL, QUANTISED, STREAM, WINDOW_QUANTISED, ALL_WINDOWED, N_POLICIES };
extern const FakePolicy rig_policies[N_POLICIES];

typedef struct PrefixRig {
    Engine *engine;
    PrefixCache *cache;
} PrefixRig;

extern uint64_t rig_usec;
PrefixRig prefix_rig_new(uint32_t max_nodes, bool exact);
/* A page is a byte. */
PrefixRig prefix_rig_limited(uint64_t max_idle_bytes);
/* Checks that nothing is kept when the cache is gone. */
void prefix_rig_free(PrefixRig *rig);

typedef struct RigRun {
    PolicyId policy;
    uint32_t salt; /* a number that stands for one */
    SeqId seq;
    PrefixCursor cursor;
    uint32_t n_cached, n_prefilled, n_given; /* n_given: tokens that the cache was told of */
    PrefixEnd end;
} RigRun;

/* Looks for tokens [n], checks that the pages are those of these tokens, and adopts them. */
RigRun rig_open(PrefixRig *rig, PolicyId policy, uint32_t salt, const uint32_t *tokens, uint32_t n);
/* Computes up to tokens [n], decoding from n_prefilled on, publishing as often as 'step' tokens. */
void rig_run_to(PrefixRig *rig, RigRun *run, const uint32_t *tokens, uint32_t n, uint32_t step);
void rig_finish(PrefixRig *rig, RigRun *run);
void rig_close(PrefixRig *rig, RigRun *run);
/* All of it: from the cache what it has, then computed, finished. Returns what was cached of n - 1. */
uint32_t rig_serve(PrefixRig *rig, PolicyId policy, const uint32_t *tokens, uint32_t n_prompt, uint32_t n);
/* What a request for these tokens would find. */
uint32_t rig_look(PrefixRig *rig, PolicyId policy, uint32_t salt, const uint32_t *tokens, uint32_t n,
                  PrefixEnd *ret_end);
/* first, first + 1, ... */
void rig_count_up(uint32_t *tokens, uint32_t n, uint32_t first);
