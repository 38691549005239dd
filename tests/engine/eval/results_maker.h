/* SPDX-License-Identifier: Apache-2.0 */
/* Made-up results of eval for tests. Asserts by Criterion. */
#pragma once
#include "engine/eval/summary.h"

cJSON *results_maker_identity(void); /* for cJSON_Delete */
Results results_maker_new(void);
/* One haystack: right is "1011...", needles lie evenly over the length. */
void results_maker_answers(Results *results, AnswersKey key, const char *right, double log_prob);
void results_maker_rows(Results *results, RowsKey key, uint32_t n, double kl);
Summary results_maker_summary(const Results *results, Arena *arena);
extern const SummaryRules results_maker_rules;
