/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the raw results of eval say: shares of right answers with intervals, differences from the model's own dense run
 * on the same questions, distances of distributions by position, and whether a policy passes. One thread.
 */
#pragma once
#include "base/arena.h"
#include "engine/eval/results.h"
#include "engine/eval/stats.h"

enum { SUMMARY_MAX_DEPTHS = 20 };

/* One task at one length under one policy. Texts are those of the results. */
typedef struct TaskSummary {
    const char *policy, *task;
    uint32_t length, n, right;
    Interval share;
    bool has_dense; /* what follows compares with dense on the same questions */
    uint32_t dense_right;
    Interval change;          /* of the share, in [-1, 1]; negative: worse than dense */
    Interval log_prob_change; /* nats an answer */
    uint32_t n_depths, depth_n[SUMMARY_MAX_DEPTHS], depth_right[SUMMARY_MAX_DEPTHS];
    KvCounts counts;
    double seconds, prefill_seconds; /* mean of a haystack */
} TaskSummary;

/* A policy at one length over the tasks that count: where dense is right often enough, and rows were decoded. */
typedef struct PolicySummary {
    const char *policy;
    uint32_t length, n_tasks, n_counted, n_questions; /* questions of the counted task that had fewest */
    double mean_change, worst_change;
    Interval change; /* of all counted questions together */
    KvCounts counts;
} PolicySummary;

/* Rows of one kind behind a position under one policy; position SUMMARY_ALL: over all positions. */
#define SUMMARY_ALL UINT32_MAX
typedef struct RowsSummary {
    const char *policy, *kind;
    uint32_t position, n;
    Interval kl, top, nll_change;
    double perplexity, dense_perplexity;
    KvCounts counts;
} RowsSummary;

/* Mean over layers, of heads that select. */
typedef struct RecallSummary {
    const char *policy;
    uint32_t position, n;
    double recall, mass, best_mass, range_mass;
} RecallSummary;

/* How good the estimates of what lists leave out are, over all positions. */
typedef struct EstimateSummary {
    const char *policy;
    uint32_t n, n_within;
    Interval within;           /* rows whose estimate is at least half and at most twice the truth */
    double estimated, missing; /* mean */
} EstimateSummary;

typedef struct Summary {
    TaskSummary *tasks;
    PolicySummary *policies;
    RowsSummary *rows;
    RecallSummary *recalls;
    EstimateSummary *estimates;
    uint32_t n_tasks, n_policies, n_rows, n_recalls, n_estimates;
} Summary;

typedef struct SummaryRules {
    uint32_t n_depths;
    double least_dense;         /* share that makes a task count: 0.6 */
    double max_mean, max_worst; /* losses that pass: 0.01, 0.02 */
} SummaryRules;

/* All lives in the arena, but for the texts. dense: the policy that others are compared with. */
LW_CHECK bool summary_make(const Results *results, const char *dense, const SummaryRules *rules, Arena *arena,
                           Summary *ret_summary, Error *error);
const TaskSummary *summary_task(const Summary *summary, const char *policy, const char *task, uint32_t length);
bool summary_passes(const PolicySummary *policy, const SummaryRules *rules);
