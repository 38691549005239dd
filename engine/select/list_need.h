/* SPDX-License-Identifier: Apache-2.0 */
/* What the lists of a selection take of memory at most (select_state.h has them). Any thread. */
#pragma once
#include "engine/select/policy.h"

/* Bytes of one head's lists in a sequence of n tokens that decodes: both banks, whole pages of the system. */
uint64_t list_need_bytes(const Selection *selection, bool is_early, uint32_t n_tokens);
/* Does a layer count as early (Selection.early_layers)? */
static inline bool selection_is_early(const Selection *selection, uint32_t layer)
{
    return layer < 64 && selection->early_layers >> layer & 1;
}
