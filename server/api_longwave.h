/* SPDX-License-Identifier: Apache-2.0 */
/* The extension object "longwave" of a request: how to attend, and what to tell meanwhile. Pool thread. */
#pragma once
#include "scheduler/messages.h"
#include "server/api_json.h"

typedef struct ApiLongwave {
    const char *preset, *roles; /* of attention; NULL: the server's own choice; borrowed */
    AttnWish attention;         /* the rest of it */
    bool progress;              /* progress chunks in a stream */
} ApiLongwave;

LW_CHECK bool api_longwave_read(const cJSON *item, ApiLongwave *ret_longwave, Error *error);

/* A way to attend that a server offers; its number is the policy's. */
typedef struct ServedPolicy {
    const char *preset, *roles; /* roles NULL: none */
    const AttnPolicy *policy;   /* what requests change that name no preset; NULL: preset is one */
} ServedPolicy;

typedef struct ServedPolicies {
    const ServedPolicy *list;  /* [n >= 1], the first dense */
    uint32_t n, fallback;      /* of requests that say nothing */
    bool is_fixed;             /* the device takes nothing but these */
    bool has_baselines;        /* requests may ask for those of eval too */
    uint32_t trained_context;  /* of the model; 0: not told */
    /* Prompts of at least and at most so many tokens follow the fallback, others are dense; 0: any. */
    uint32_t certified_from, certified_tokens;
} ServedPolicies;

/* The i-th way that a request can ask for by name; false behind the last. */
bool api_longwave_policy(const ServedPolicies *policies, size_t i, ServedPolicy *ret_policy);

/* What a request comes to. */
typedef struct ApiAttention {
    uint32_t policy; /* of the list; whose roles it has, when there is a wish beyond */
    AttnWish wish;
    ServedPolicy name;
    bool is_auto;   /* the server's own choice */
    uint32_t reach; /* tokens of context */
} ApiAttention;

/* What cannot be served is refused with the field's name, an unknown preset with a list of what there is. */
LW_CHECK bool api_longwave_attention(const ApiLongwave *longwave, const ServedPolicies *policies,
                                     ApiAttention *ret_attention, Error *error);
/* Of a prompt of n tokens: one that the fallback is not certified for is dense. */
void api_longwave_settle(const ServedPolicies *policies, uint32_t n_prompt, ApiAttention *attention);
