/* SPDX-License-Identifier: Apache-2.0 */
/* What the attention of a sequence's rows of one kind has cost and left out. Plain data. */
#pragma once
#include "engine/select/policy.h"

/* A query is one row at one KV head of one layer that has no sliding window. */
typedef struct AttentionStats {
    uint64_t n_queries, n_tokens, n_context; /* keys that they saw, and that there were, added up */
    uint64_t kv_bytes, context_bytes;        /* keys and values read, and those of dense attention; whole sectors */
    uint64_t select_bytes;                   /* read beside them: to select, by probes, by dense rows of a delta */
    uint64_t n_selections;                   /* lists that were made, in part or in full */
    uint64_t n_refreshes[SELECT_MAX_STAGES]; /* of which this stage was run */
    uint64_t n_estimates;                    /* of missing mass, from probes */
    double estimated_mass;                   /* added up */
    uint64_t n_audits;                       /* true missing masses, of queries that also ran dense */
    double audited_mass, audited_estimate;   /* added up; the estimates of the same queries */
} AttentionStats;

static inline void attention_stats_add(AttentionStats *to, const AttentionStats *more)
{
    to->n_queries += more->n_queries;
    to->n_tokens += more->n_tokens;
    to->n_context += more->n_context;
    to->kv_bytes += more->kv_bytes;
    to->context_bytes += more->context_bytes;
    to->select_bytes += more->select_bytes;
    to->n_selections += more->n_selections;
    for (int i = 0; i < SELECT_MAX_STAGES; i++) to->n_refreshes[i] += more->n_refreshes[i];
    to->n_estimates += more->n_estimates;
    to->estimated_mass += more->estimated_mass;
    to->n_audits += more->n_audits;
    to->audited_mass += more->audited_mass;
    to->audited_estimate += more->audited_estimate;
}
