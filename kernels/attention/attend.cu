/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/attend_launch.cuh"
#include "kernels/device_facts.h"
#include "kernels/linear/gemv.h"

namespace
{

/* Items of one call; their counters come first in the scratch. */
constexpr uint32_t kMaxItems = 65536;

struct Row {
    KvType type;
    bool (*split)(const SplitArgs &, uint32_t, Stream);
    bool (*tiled)(const AttendParams &, Stream);
    bool (*wgmma)(const AttendParams &, Stream); /* in its place where the device has it, for 64 and 128 channels */
};

const Row rows[] = {
    {KV_F16, attend_split_f16, attend_tiled_f16, attend_wgmma_f16},
    {KV_BF16, attend_split_bf16, attend_tiled_bf16, attend_wgmma_bf16},
    {KV_F8, attend_split_f8, attend_tiled_f8, NULL},
    {KV_INT8, attend_split_int8, attend_tiled_int8, NULL},
    {KV_INT4, attend_split_int4, attend_tiled_int4, NULL},
};

uint64_t items_of(uint64_t n_spans, uint64_t n_rows, uint64_t group, uint64_t n_kv_heads, uint64_t tile_queries)
{
    return n_spans * n_kv_heads * ((n_rows * group + tile_queries - 1) / tile_queries);
}

bool split(const Row &row, const AttendParams &p, Stream stream)
{
    uint32_t group = p.n_heads / p.n_kv_heads, queries = p.launch.split_rows * group;
    const bool is_small = p.launch.has_bands || queries <= ATTEND_SPLIT_QUERIES / 2; /* bands: one variant */
    uint32_t tile = is_small ? ATTEND_SPLIT_QUERIES / 2 : ATTEND_SPLIT_QUERIES;
    if (items_of(p.n_spans, p.launch.split_rows, group, p.n_kv_heads, tile) > kMaxItems || !p.scratch) return false;
    if (p.launch.is_deterministic && p.launch.split_rows != 1) return false;
    SplitArgs args = {};
    args.params = p;
    args.counters = (uint32_t *)p.scratch;
    args.parts = (float *)(args.counters + kMaxItems);
    args.part_queries = queries < tile ? queries : tile;
    return row.split(args, tile, stream);
}

bool tiled(const Row &row, const AttendParams &p, Stream stream)
{
    const DeviceFacts *facts = device_facts();
    bool takes = row.wgmma && facts && facts->has_group_products && (p.k_dim == 64 || p.k_dim == 128);
    return takes ? row.wgmma(p, stream) : row.tiled(p, stream);
}

} // namespace

extern "C" size_t attend_cuda_scratch_bytes(uint32_t split_rows, uint32_t n_heads, uint32_t n_kv_heads, uint32_t v_dim,
                                            bool is_deterministic)
{
    uint64_t group = n_heads / n_kv_heads, per_slot = ATTEND_SPLIT_QUERIES;
    uint64_t slots = items_of(split_rows, 1, group, n_kv_heads, ATTEND_SPLIT_QUERIES / 2);
    if (is_deterministic) {
        slots *= ATTEND_SPLIT_DET_UNITS;
        if (group < per_slot) per_slot = group;
    } else {
        slots += ATTEND_SPLIT_MAX_BLOCKS;
    }
    return kMaxItems * sizeof(uint32_t) + slots * per_slot * (v_dim + ATTEND_SPLIT_STATS) * sizeof(float);
}

extern "C" bool attend_cuda(const AttendParams *params, Stream stream)
{
    const AttendParams &p = *params;
    if (p.n_spans == 0) return true;
    if (p.k_dim != p.v_dim || p.n_kv_heads == 0 || p.n_heads % p.n_kv_heads != 0) return false;
    if (lw::gemv_chain_attend(p, stream)) return true;
    uint32_t left = p.launch.types;
    for (const Row &row : rows) {
        if (!(p.launch.types >> row.type & 1)) continue;
        left &= ~(1u << row.type);
        if (p.launch.split_rows && !split(row, p, stream)) return false;
        if (p.launch.tiled_rows && !tiled(row, p, stream)) return false;
    }
    return left == 0;
}
