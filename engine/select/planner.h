/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Planners hold the policy: which keys the rows of one kind see, at one KV head of one layer. Those of this version
 * depend on nothing else, so their plans are made once, when the engine opens. Immutable.
 */
#pragma once
#include "engine/batch.h"
#include "engine/model/family.h"
#include "engine/select/policy.h"

typedef struct PlanQuery {
    const ModelShape *shape;
    const AttnPolicy *policy;
    uint32_t layer, kv_head;
    RowKind kind;
} PlanQuery;

typedef struct Planner {
    const char *name; /* "dense", "streaming", "grouped" */
    bool (*serves)(const PlanQuery *query);
    AttnPlan (*plan)(const PlanQuery *query);
} Planner;

/* The first row of the table that serves the query. */
const Planner *planner_of(const PlanQuery *query);
/* Plans of all heads: [n_layers, n_kv_heads]. */
void planner_fill(const ModelShape *shape, const AttnPolicy *policy, RowKind kind, AttnPlan *ret_plans);
