/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention policies by name, and what a request may change of one ("longwave.attention" of api.md). Any thread.
 */
#pragma once
#include "base/error.h"
#include "engine/select/policy.h"

/* NULL: no such name. Without roles. */
const AttnPolicy *preset_find(const char *name);
const char *preset_name_at(size_t i); /* NULL past the last */
/* Is there for comparison alone: slow, worse, or by means that no server has? */
bool preset_is_baseline(const AttnPolicy *preset);

/* What a request asks for; what is 0 or NULL stays as the preset has it. Plain data. */
typedef struct AttnWish {
    const char *preset; /* one of preset_name_at's pointers */
    uint32_t budget;    /* tokens that a query sees, sink and recent range among them */
    bool is_adaptive;   /* it doubles or halves, to keep the estimated missing mass below 0.05 */
    uint32_t refresh[SELECT_MAX_STAGES], n_refresh;
    bool has_wavelength;
    double k_prefill, k_decode; /* periods; 0: no window */
    bool has_positions;
    PositionRule positions;
} AttnWish;

/* By the roles of base, a policy without a selection. An error names the field as clients do. */
LW_CHECK bool wish_apply(const AttnWish *wish, const AttnPolicy *base, AttnPolicy *ret_policy, Error *error);
/* Does it ask for anything but what base is? */
bool wish_is_plain(const AttnWish *wish);
