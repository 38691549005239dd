/* SPDX-License-Identifier: Apache-2.0 */
/* What a query reads by its plan. Any thread. */
#pragma once
#include "engine/select/attention_stats.h"
#include "kernels/attention/kv_page.h"

/* Adds one query at the position; layout: of the class that keeps the head's keys. */
void attention_count(const AttnPlan *plan, uint32_t position, const KvLayout *layout, AttentionStats *stats);
