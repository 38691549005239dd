/* SPDX-License-Identifier: Apache-2.0 */
/* What a query reads by its plan. Any thread. */
#pragma once
#include "engine/select/attention_stats.h"
#include "kernels/attention/kv_page.h"

/* Plans of one layer's heads, or of one policy, for which a query counts the same: their keys are of one class then. */
LW_INLINE bool attention_counts_same(const AttnPlan *a, const AttnPlan *b)
{
    return a->sink == b->sink && a->recent == b->recent && a->n_list == b->n_list && a->bands == b->bands &&
           a->positions == b->positions;
}

/* Adds n queries at the position; layout: of the class that keeps the head's keys. Keys of a list whose length alone is
 * known (list NULL) count whole, also where bands cut. */
void attention_count(const AttnPlan *plan, uint32_t position, const KvLayout *layout, uint64_t n,
                     AttentionStats *stats);
