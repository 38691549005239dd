/* SPDX-License-Identifier: Apache-2.0 */
/* Policies from outside: what can be served, and which are the same. Any thread. */
#pragma once
#include "base/error.h"
#include "engine/select/policy.h"

/* An error's param is the field, as clients name it: "longwave.attention.budget". */
LW_CHECK bool policy_check(const AttnPolicy *policy, Error *error);
/* Do all rows get the same plans? Names do not count. */
bool policy_equals(const AttnPolicy *a, const AttnPolicy *b);
/* Of all that plans depend on but the roles, which are in the classes of KV pages. */
uint64_t policy_hash(const AttnPolicy *policy);
