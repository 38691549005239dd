/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/list_need.h"

enum { OS_PAGE_BYTES = 4096, N_BANKS = 2 };

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Tokens that a stage keeps at most, if there are so many; adaptive budgets may come to all of them. */
static uint64_t kept_tokens(const Selection *selection, uint32_t stage, bool is_early)
{
    bool is_last = stage + 1 == selection->n_stages;
    uint64_t kept = selection->stages[stage].keep_tokens;
    if (selection->max_missing_mass > 0) return PLAN_ALL;
    if (is_last && is_early && selection->early_keep_tokens) return selection->early_keep_tokens;
    if (is_last && selection->budget) kept = min_u64(kept, selection->budget);
    return kept;
}

uint64_t list_need_bytes(const Selection *selection, bool is_early, uint32_t n_tokens)
{
    uint64_t words = 0, n_units = 0;
    if (!selection->n_stages || n_tokens <= selection->bypass) return 0;
    for (uint32_t i = 0; i < selection->n_stages; i++) {
        n_units = min_u64(kept_tokens(selection, i, is_early), n_tokens) / selection->stages[i].unit_tokens;
        words += n_units;
    }
    words += n_units * (selection->stages[selection->n_stages - 1].unit_tokens / KV_SECTOR_TOKENS);
    uint64_t pages = (words * sizeof(uint32_t) + OS_PAGE_BYTES - 1) / OS_PAGE_BYTES;
    return N_BANKS * pages * OS_PAGE_BYTES;
}
