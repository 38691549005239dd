/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/attend_work.h"
#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/simd.h"

#include <math.h>

enum { INFINITY_BITS = 0x7F800000 };

/* Of the keys of one sector; cos and sin of the turn that each of its tokens was given, token by token in a vector. */
typedef struct Sector {
    float keys[KV_MAX_DIM * ATTEND_GROUP_KEYS]; /* [channels, ATTEND_GROUP_KEYS] */
    float cos[KV_MAX_DIM / 2][LANES], sin[KV_MAX_DIM / 2][LANES];
    float max[KV_MAX_DIM], min[KV_MAX_DIM];
} Sector;

static void fill_turns(const RopeTurns *turns, uint32_t position, Sector *sector)
{
    float cos_sin[KV_MAX_DIM];
    for (uint32_t t = 0; t < LANES; t++) {
        rope_turns_get(turns, -(int64_t)(position + t), cos_sin);
        for (uint32_t j = 0; j < turns->n_pairs; j++) {
            sector->cos[j][t] = cos_sin[2 * j];
            sector->sin[j][t] = cos_sin[2 * j + 1];
        }
    }
}

static void bound_channel(Sector *sector, uint32_t c, F32x16 x)
{
    bool is_finite = i32x16_highest(i32x16_magnitude(x)) < INFINITY_BITS;
    sector->max[c] = is_finite ? f32x16_highest(x) : NAN;
    sector->min[c] = is_finite ? -f32x16_highest(f32x16_sub(f32x16_set1(0), x)) : NAN;
}

static void bound_sector(const KvBoundsParams *params, const KvLayout *layout, const char *data, Sector *sector)
{
    uint32_t first = params->k_dim - 2 * params->turns->n_pairs;
    ISA(kv_read_keys)(layout, data, params->k_dim, params->turns, NULL, sector->keys);
    for (uint32_t c = 0; c < first; c++) bound_channel(sector, c, f32x16_load(sector->keys + c * ATTEND_GROUP_KEYS));
    for (uint32_t j = 0, c = first; j < params->turns->n_pairs; j++, c += 2) {
        const float *pair = sector->keys + c * ATTEND_GROUP_KEYS;
        F32x16 x0 = f32x16_load(pair), x1 = f32x16_load(pair + ATTEND_GROUP_KEYS);
        F32x16 cos = f32x16_load(sector->cos[j]), sin = f32x16_load(sector->sin[j]);
        bound_channel(sector, c, f32x16_sub(f32x16_mul(x0, cos), f32x16_mul(x1, sin)));
        bound_channel(sector, c + 1, f32x16_add(f32x16_mul(x0, sin), f32x16_mul(x1, cos)));
    }
}

static void bound_page(const KvBoundsParams *params, const KvSpan *span, uint32_t number)
{
    Sector sector;
    for (uint32_t i = 0; i < KV_PAGE_SECTORS; i++) {
        fill_turns(params->turns, number * KV_PAGE_TOKENS + i * KV_SECTOR_TOKENS, &sector);
        for (uint32_t h = 0; h < params->n_kv_heads; h++) {
            const KvHead *head = &span->heads[h];
            const KvPages *pages = &span->classes[head->class_index];
            const KvLayout *layout = &pages->pool->layout;
            if (!pages->pool->bounds_offset) continue;
            uint32_t page = pages->pages[number];
            const char *slot = kv_slot_at(pages->pool, page, head->slot);
            bound_sector(params, layout, slot + i * layout->sector_bytes, &sector);
            kv_bounds_put(kv_bounds_at(pages->pool, page, head->slot, i), params->k_dim, sector.max, sector.min);
        }
    }
}

/* Items: the filled pages of the first span, then of the next. */
static void bound_items(void *arg, uint32_t worker, size_t first, size_t end)
{
    (void)worker;
    const KvBoundsParams *params = arg;
    size_t item = 0;
    for (uint32_t s = 0; s < params->n_spans && item < end; s++)
        for (uint32_t page = kv_bounds_first_page(&params->spans[s]); page < kv_bounds_end_page(&params->spans[s]);
             page++, item++)
            if (item >= first && item < end) bound_page(params, &params->spans[s], page);
}

bool ISA(kv_bounds)(const KvBoundsParams *params, Stream stream)
{
    if (params->k_dim > KV_MAX_DIM) return false;
    size_t n_items = 0;
    for (uint32_t s = 0; s < params->n_spans; s++)
        n_items += kv_bounds_end_page(&params->spans[s]) - kv_bounds_first_page(&params->spans[s]);
    KvBoundsParams copy = *params;
    parallel_for(stream, n_items, 1, bound_items, &copy);
    return true;
}
