/* SPDX-License-Identifier: Apache-2.0 */
/* The extension object "longwave" of a request: how to attend, and what to tell meanwhile. Pool thread. */
#pragma once
#include "server/api_json.h"

typedef struct ApiLongwave {
    const char *preset, *roles; /* of attention; NULL: the server's own choice; borrowed */
    bool progress;              /* progress chunks in a stream */
} ApiLongwave;

LW_CHECK bool api_longwave_read(const cJSON *item, ApiLongwave *ret_longwave, Error *error);

/* A way to attend that a server offers; its number is the policy's. */
typedef struct ServedPolicy {
    const char *preset, *roles; /* roles NULL: none */
} ServedPolicy;

/* *ret_policy: the one asked for among policies [n >= 1]; what is not there is refused with a list of what is. */
LW_CHECK bool api_longwave_policy(const ApiLongwave *longwave, const ServedPolicy *policies, uint32_t n,
                                  uint32_t *ret_policy, Error *error);
