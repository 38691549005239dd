/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention policy: planner, budgets and head roles, by which plans are made. An engine is opened with a list of them
 * and a sequence follows one for life (PolicyId: its index; 0 is dense). Immutable.
 */
#pragma once
#include "kernels/attention/plan.h"

typedef uint32_t PolicyId;

/* Which KV heads stream (LServe 3.3) instead of seeing everything. */
typedef struct HeadRoles {
    const char *name;
    const uint8_t *streams; /* [n_layers, n_kv_heads] 0 or 1; heads of sliding-window layers are 0 */
} HeadRoles;

typedef struct AttnPolicy {
    const char *name;       /* preset and roles as clients name them */
    const HeadRoles *roles; /* NULL: no head streams */
    /* Of streaming heads, tokens; multiples of KV_PAGE_TOKENS. Prefill rows are those of a prompt. */
    uint32_t sink, recent_prefill, recent_decode;
} AttnPolicy;

/* Do decoded rows get the same keys and values as prefilled ones would (so that both are one to the prefix cache)? */
static inline bool policy_decodes_as_prefilled(const AttnPolicy *policy)
{
    return !policy->roles || policy->recent_prefill == policy->recent_decode;
}
