/* SPDX-License-Identifier: Apache-2.0 */
/* 'inspect --plan': how many sequences of which length fit a card, or a host, by KV type and by policy. Main thread. */
#pragma once
#include "engine/capacity.h"
#include "server/cmd/inspect.h"

struct cJSON;

enum { PLAN_MAX_CONTEXTS = 4, PLAN_MAX_ROWS = 256, PLAN_POLICY_BYTES = 192 };

typedef struct PlanRow {
    bool on_gpu;
    uint64_t memory_bytes; /* that may be used there */
    const char *kv_type;
    char policy[PLAN_POLICY_BYTES];
    double token_bytes;                    /* of the longest context */
    uint64_t sequences[PLAN_MAX_CONTEXTS]; /* 0: not even one */
    uint32_t longest;                      /* tokens of one alone; 0: the weights do not fit either */
} PlanRow;

typedef struct Plan {
    uint64_t weight_bytes, buffer_bytes; /* on a GPU; a host maps weights from the file. Of a named shape as if Q8_0 */
    uint32_t contexts[PLAN_MAX_CONTEXTS], n_contexts, train_context;
    PlanRow rows[PLAN_MAX_ROWS];
    uint32_t n_rows;
} Plan;

LW_CHECK bool plan_make(const Inspection *inspection, Plan *ret_plan, Error *error);
LW_CHECK bool plan_write_text(const Plan *plan, Buffer *out, Error *error);
bool plan_add_json(const Plan *plan, struct cJSON *root); /* false: no memory */
