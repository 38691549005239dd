/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Head roles and crossover lengths of one model (calibration.h has what comes out). Heads are ranked without training:
 * prompts and questions (tasks.h) are read densely, then one KV head after the other sees sink and recent tokens alone
 * while the right answers are fed; what their surprise rises by is its loss. The heads with the least loss stream,
 * which is checked on other prompts, read under these roles. Opens its own engines; one thread.
 */
#pragma once
#include "engine/eval/calibration.h"
#include "engine/eval/run.h"

/* By this name policies of the crossover take the roles that were found: "lserve-4k:roles=found". */
#define CALIBRATE_ROLES "found"

typedef struct CalibrateParams {
    const EngineParams *engine; /* model, memory, threads, types; the rest is set here */
    const char *kv_type;        /* as the engine's were given */
    const char *output;         /* the file, and what is there already */
    const char *gates;          /* [n_gates_bytes] text of gates that rank instead; NULL: none */
    size_t n_gates_bytes;
    double sparsity;            /* in [0, 1] */
    const char *tasks;          /* a list with commas */
    uint32_t length, n_prompts; /* tokens; prompts of each task */
    uint32_t per_haystack, max_open;
    uint32_t sink, recent, recent_prefill; /* tokens, multiples of KV_PAGE_TOKENS */
    const char *policies;                  /* of the crossover, as eval takes them; NULL: none */
    const uint32_t *lengths;               /* [n_lengths] tokens, of the crossover */
    uint32_t n_lengths;
    bool is_raw; /* no chat template */
    uint64_t seed;
    void (*progress)(void *arg, double fraction);
    void *progress_arg;
} CalibrateParams;

typedef struct Calibrate Calibrate;

/* Checks all that was asked for, and reads what is there. params' pointers are the caller's until calibrate_free. */
LW_CHECK bool calibrate_new(const CalibrateParams *params, Calibrate **ret_calibrate, Error *error);
void calibrate_free(Calibrate *calibrate); /* NULL is fine */
/* Measures what is not there yet and writes the file; after a failure it has what was measured before. */
LW_CHECK bool calibrate_run(Calibrate *calibrate, Error *error);
const Calibration *calibrate_found(const Calibrate *calibrate);
