/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long-context fidelity: policies against the model's own dense run. Owns what was asked for and what was measured; the
 * engine is the caller's and outlives it. One thread, the engine's.
 */
#pragma once
#include "engine/eval/report.h"
#include "engine/eval/run.h"

typedef struct Eval Eval;

typedef struct EvalParams {
    Engine *engine;
    const char *policies, *tasks; /* lists with commas, as policy_spec.h and tasks.h take them; NULL tasks: none */
    const uint32_t *lengths;      /* [n_lengths] tokens */
    uint32_t n_lengths;
    uint32_t n_questions; /* of each task at each length under each policy; 0: no tasks */
    uint32_t per_haystack, n_depths, max_open;
    uint32_t first_haystack; /* number of the first prompt of each task: who shares the work with others */
    uint32_t n_positions, n_rows, recall_stride; /* n_positions 0: no rows */
    bool is_raw;                                 /* no chat template */
    RowKind question_rows;
    uint64_t seed;
    const char *kv_type; /* as the engine was opened with */
    const char *rope;    /* the same; NULL: the model's own positions */
    const char *text;    /* [n_text_bytes] what rows are of; NULL: made from the seed */
    size_t n_text_bytes;
    const char *calibration; /* [n_calibration_bytes] a file of calibrate, from whose crossovers on policies are
                                certified; NULL: none */
    size_t n_calibration_bytes;
    const char *results_path, *trace_dir; /* NULL: none */
    void (*progress)(void *arg, double fraction);
    void *progress_arg;
} EvalParams;

/* Checks all that was asked for, and reads the results so far. params' pointers are the caller's until eval_free. */
LW_CHECK bool eval_new(const EvalParams *params, Eval **ret_eval, Error *error);
void eval_free(Eval *eval); /* NULL is fine */
/* Measures what is not there yet; what was measured before a failure is kept. */
LW_CHECK bool eval_measure(Eval *eval, Error *error);
/* After eval_measure; valid until eval_free. */
const Report *eval_report(const Eval *eval);
/*
 * Of the policies of this run that can be certified (certify.h), the one that reads least gets the model's certificate.
 * ERR_NOT_FOUND: none can, and why the last of them cannot.
 */
LW_CHECK bool eval_certify(const Eval *eval, const char *model_path, const char **ret_policy, Error *error);
