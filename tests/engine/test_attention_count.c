/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that a query reads by ranges, against the sectors that hold a key which it sees. */
#include "engine/select/attention_count.h"

#include <criterion/criterion.h>

static uint32_t sectors_seen(const AttnPlan *plan, uint32_t position, uint32_t *ret_tokens)
{
    uint32_t n = 0, last = UINT32_MAX;
    *ret_tokens = 0;
    for (uint32_t key = 0; key <= position; key++) {
        if (!plan_sees_range(plan, position, key)) continue;
        *ret_tokens += 1;
        if (key / KV_SECTOR_TOKENS == last) continue;
        last = key / KV_SECTOR_TOKENS;
        n++;
    }
    return n;
}

Test(attention_count, each_sector_is_read_once)
{
    static const AttnPlan plans[] = {{.sink = 64, .recent = 64},
                                     {.sink = 0, .recent = 96},
                                     {.sink = 128, .recent = 64},
                                     {.sink = 64, .recent = UINT32_MAX},
                                     {.sink = 64, .recent = 64, .positions = POSITIONS_GROUPED, .group = 4}};
    const KvLayout layout = kv_layout(KV_F16, 64, 64);
    AttentionStats one = {0};
    attention_count(&(AttnPlan){.recent = 1}, 0, &layout, 1, &one);
    cr_assert(one.kv_bytes && one.kv_bytes == one.context_bytes);
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        for (uint32_t position = 0; position < 300; position++) {
            AttentionStats stats = {0};
            uint32_t tokens, sectors = sectors_seen(&plans[i], position, &tokens);
            attention_count(&plans[i], position, &layout, 3, &stats);
            cr_expect_eq(stats.n_tokens, 3 * tokens, "plan %zu, position %u", i, position);
            cr_expect_eq(stats.kv_bytes, 3 * sectors * one.kv_bytes, "plan %zu, position %u", i, position);
            cr_expect_leq(stats.kv_bytes, stats.context_bytes, "plan %zu, position %u", i, position);
        }
}
