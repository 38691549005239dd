/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/kv_bounds.h"

enum { F8_MAX = 448 };

void kv_bounds_get(const KvPool *pool, uint32_t page, uint32_t slot, uint32_t sector, float *ret_max, float *ret_min)
{
    const uint8_t *block = kv_bounds_at(pool, page, slot, sector);
    uint32_t k_dim = pool->layout.k_dim;
    int exponent = (int8_t)block[kv_bounds_sector_bytes(k_dim) - KV_BOUNDS_BLOCK];
    for (uint32_t c = 0; c < k_dim; c++) {
        const uint8_t *at = block + c / KV_BOUNDS_BLOCK * KV_BOUNDS_BLOCK_BYTES + c % KV_BOUNDS_BLOCK;
        uint8_t max = at[0], min = at[KV_BOUNDS_BLOCK];
        ret_max[c] = max == KV_BOUND_OPEN ? INFINITY : ldexpf(f32_from_f8(max), exponent);
        ret_min[c] = min == KV_BOUND_OPEN ? -INFINITY : ldexpf(f32_from_f8(min), exponent);
    }
}

void kv_bounds_put(uint8_t *record, uint32_t k_dim, const float *max, const float *min)
{
    float largest = 0;
    bool is_open = false;
    for (uint32_t c = 0; c < k_dim; c++) {
        is_open = is_open || isnan(max[c]);
        if (!isnan(max[c])) largest = fmaxf(largest, fmaxf(fabsf(max[c]), fabsf(min[c])));
    }
    int exponent = 0;
    while (largest > ldexp(F8_MAX, exponent)) exponent++;
    double unit = ldexp(1, exponent);
    size_t n_bytes = kv_bounds_sector_bytes(k_dim);
    memset(record, 0, n_bytes);
    for (uint32_t c = 0; c < k_dim; c++) {
        uint8_t *at = record + c / KV_BOUNDS_BLOCK * KV_BOUNDS_BLOCK_BYTES + c % KV_BOUNDS_BLOCK;
        at[0] = at[KV_BOUNDS_BLOCK] = KV_BOUND_OPEN;
        if (isnan(max[c])) continue;
        at[0] = kv_bound_not_below(max[c], unit);
        at[KV_BOUNDS_BLOCK] = kv_bound_not_below(-(double)min[c], unit) ^ 0x80;
    }
    record[n_bytes - KV_BOUNDS_BLOCK] = (uint8_t)exponent;
    record[n_bytes - KV_BOUNDS_BLOCK + 1] = is_open;
}
