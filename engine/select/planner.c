/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/planner.h"

static bool serves_streaming(const PlanQuery *query)
{
    const HeadRoles *roles = query->policy->roles;
    return roles && roles->streams[(size_t)query->layer * query->shape->n_kv_heads + query->kv_head];
}

/* LServe 3.3. */
static AttnPlan plan_streaming(const PlanQuery *query)
{
    const AttnPolicy *policy = query->policy;
    return (AttnPlan){.sink = policy->sink,
                      .recent = query->kind == ROWS_PREFILL ? policy->recent_prefill : policy->recent_decode};
}

static bool serves_grouped(const PlanQuery *query)
{
    return query->policy->positions == POSITIONS_GROUPED && !shape_layer_window(query->shape, query->layer);
}

/* SelfExtend: all of the context, at positions that the model knows. */
static AttnPlan plan_grouped(const PlanQuery *query)
{
    const AttnPolicy *policy = query->policy;
    return (AttnPlan){.recent = policy->near, .positions = POSITIONS_GROUPED, .group = policy->group};
}

static bool serves_all(const PlanQuery *query)
{
    (void)query;
    return true;
}

/* All that the model itself looks at. */
static AttnPlan plan_dense(const PlanQuery *query)
{
    uint32_t window = shape_layer_window(query->shape, query->layer);
    return (AttnPlan){.recent = window ? window : PLAN_ALL};
}

/* The first that serves a query answers it. */
static const Planner planners[] = {
    {"streaming", serves_streaming, plan_streaming},
    {"grouped", serves_grouped, plan_grouped},
    {"dense", serves_all, plan_dense},
};

const Planner *planner_of(const PlanQuery *query)
{
    const Planner *planner = planners;
    while (!planner->serves(query)) planner++;
    return planner;
}

void planner_fill(const ModelShape *shape, const AttnPolicy *policy, RowKind kind, AttnPlan *ret_plans)
{
    PlanQuery query = {.shape = shape, .policy = policy, .kind = kind};
    for (query.layer = 0; query.layer < shape->n_layers; query.layer++)
        for (query.kv_head = 0; query.kv_head < shape->n_kv_heads; query.kv_head++)
            ret_plans[(size_t)query.layer * shape->n_kv_heads + query.kv_head] = planner_of(&query)->plan(&query);
}
