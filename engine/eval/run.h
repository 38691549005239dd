/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measurements of eval, of all policies of one engine, into Results: what is there already is not done again, and
 * each prompt is read once for all policies whose prompts come out alike. Engine thread.
 */
#pragma once
#include "engine/eval/results.h"
#include "engine/eval/tasks.h"

typedef struct EvalPolicy {
    const char *name; /* in the results */
    PolicyId id;
} EvalPolicy;

typedef struct EvalRun {
    Engine *engine;
    Results *results;
    const EvalPolicy *policies; /* [n_policies]; the first is dense */
    uint32_t n_policies;
    const PromptFrame *frame;
    const TaskSpec *tasks; /* [n_tasks] */
    uint32_t n_tasks;
    const uint32_t *lengths; /* [n_lengths] tokens */
    uint32_t n_lengths;
    uint32_t n_questions, per_haystack, first_haystack, max_open;
    RowKind question_rows;
    uint64_t seed;
    const uint32_t *text; /* [n_text] tokens whose rows are compared */
    uint32_t n_text;
    uint32_t n_positions, n_rows; /* behind each of so many positions so many rows */
    uint32_t recall_stride;       /* every so many of them the lists are looked at; 0: never */
    const char *trace_dir;        /* NULL: no .npy files */
    bool (*saved)(void *arg, double fraction, Error *error); /* called after each measurement, to save or to give up */
    void *saved_arg;
} EvalRun;

/* Questions of all tasks at all lengths. */
LW_CHECK bool eval_run_answers(const EvalRun *run, Error *error);
/* Rows of the text: decoded under every policy, and prefilled where prompts are not dense. */
LW_CHECK bool eval_run_rows(const EvalRun *run, Error *error);
