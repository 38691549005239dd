/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/attention_count.h"

enum { BLOCK_BYTES = 16 };

/* Of one sector, all but its keys. */
static uint64_t value_bytes(const KvLayout *layout)
{
    return layout->sector_bytes - layout->v_offset;
}

static uint64_t key_bytes(const KvLayout *layout, uint32_t n_channels)
{
    uint64_t bits = (uint64_t)n_channels * kv_type_info(layout->type)->bits, block_bits = 8 * BLOCK_BYTES;
    return (bits + block_bits - 1) / block_bits * BLOCK_BYTES * KV_SECTOR_TOKENS;
}

/* First sector (it may be below 0) that is nearer than the distance to a query of the page. */
static int64_t first_nearer(uint32_t page, uint32_t distance)
{
    int64_t tokens = (int64_t)page * KV_PAGE_TOKENS - (KV_SECTOR_TOKENS - 1) - distance;
    return tokens < 0 ? 0 : tokens / KV_SECTOR_TOKENS + 1;
}

/* Keys of the sectors [from, to), at the distance from their places there. */
static uint64_t keys_of_run(const AttnPlan *plan, uint32_t page, const KvLayout *layout, uint32_t from, uint32_t to)
{
    if (from >= to) return 0;
    if (!plan->bands) return (uint64_t)(to - from) * key_bytes(layout, layout->k_dim);
    uint64_t bytes = 0;
    int64_t end = to;
    for (uint32_t i = 0; i < plan->n_bands && end > from; i++) {
        int64_t begin = i + 1 < plan->n_bands ? first_nearer(page, plan->bands[i + 1].first_distance) : 0;
        if (begin < from) begin = from;
        if (begin >= end) continue;
        bytes += (uint64_t)(end - begin) * key_bytes(layout, plan->bands[i].n_channels);
        end = begin;
    }
    return bytes;
}

static uint64_t keys_of_list(const AttnPlan *plan, uint32_t page, const KvLayout *layout)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->n_list; i++)
        bytes += keys_of_run(plan, page, layout, plan->list[i], plan->list[i] + 1);
    return bytes;
}

static uint32_t n_sectors(uint32_t tokens)
{
    return tokens / KV_SECTOR_TOKENS + (tokens % KV_SECTOR_TOKENS != 0);
}

void attention_count(const AttnPlan *plan, uint32_t position, const KvLayout *layout, uint64_t n_queries,
                     AttentionStats *stats)
{
    uint32_t n = position + 1, page = position / KV_PAGE_TOKENS, sink = plan->sink < n ? plan->sink : n;
    uint32_t from = plan->recent < n ? n - plan->recent : 0;
    if (from < plan->recent_from) from = plan->recent_from;
    if (from < sink) from = sink;
    if (from > n || plan->positions == POSITIONS_GROUPED) from = n;
    if (plan->positions == POSITIONS_GROUPED) sink = n; /* all are seen */
    /* A context that ends within the first range ends within a sector, which is read once. */
    uint32_t begin = from < n ? from / KV_SECTOR_TOKENS : n_sectors(n);
    uint64_t sectors = n_sectors(sink) + n_sectors(n) - begin + plan->n_list;
    uint64_t keys = keys_of_run(plan, page, layout, begin, n_sectors(n));
    if (plan->positions == POSITIONS_PACKED) {
        uint32_t moved = n_sectors(sink) + plan->n_list, end = plan->recent_from / KV_SECTOR_TOKENS;
        keys += keys_of_run(plan, page, layout, end > moved ? end - moved : 0, end);
    } else {
        keys += keys_of_run(plan, page, layout, 0, n_sectors(sink));
        keys += plan->bands && plan->list ? keys_of_list(plan, page, layout)
                                          : plan->n_list * key_bytes(layout, layout->k_dim);
    }
    stats->n_queries += n_queries;
    stats->n_tokens += n_queries * (sink + (n - from) + (uint64_t)plan->n_list * KV_SECTOR_TOKENS);
    stats->n_context += n_queries * n;
    stats->kv_bytes += n_queries * (keys + sectors * value_bytes(layout));
    stats->context_bytes += n_queries * n_sectors(n) * (key_bytes(layout, layout->k_dim) + value_bytes(layout));
}
