/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Key bounds: for each sector of a closed page and each channel the largest and the smallest value of the sector's 16
 * keys before rotation, in 8 bits, rounded outward (LServe 3.5.2; sparse-attention.md, decision 3). They are taken from
 * the keys as later queries read them, turned back by their true positions, so that they hold whatever the type
 * rounded. Computed as soon as a page is full, from its keys alone: so they are a function of the stored bytes.
 *
 * Of a slot: KV_PAGE_SECTORS records of kv_bounds_sector_bytes: blocks of 16 channels as [max 16][min 16] bytes, so
 * that a prefix of the channels is a prefix of the bytes; then 16 bytes: an exponent e (int8), 1 where a bound of the
 * sector is open and else 0, and zeros. value = e4m3 * 2^e, e = 0 unless a key is beyond 448. The bounds of a channel
 * in which a key is not finite are open, the code 0x7F: +infinity and -infinity.
 */
#pragma once
#include "kernels/attention/kv_page.h"
#include "kernels/attention/kv_value.h"
#include "kernels/pointwise/rope_turns.h"
#include "kernels/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

LW_INLINE size_t kv_bounds_sector_bytes(uint32_t k_dim)
{
    return ((size_t)k_dim + 15) / 16 * 32 + 16;
}

LW_INLINE size_t kv_bounds_bytes(uint32_t k_dim)
{
    return KV_PAGE_SECTORS * kv_bounds_sector_bytes(k_dim);
}

/*
 * Pages that the rows of the spans fill, in every KV head whose class keeps bounds; after kv_store of the same rows. On
 * a GPU of several layers at once: spans and their turns are where the device reads them, turns is not.
 */
typedef struct KvBoundsParams {
    const KvSpan *spans;
    uint32_t n_spans;
    uint32_t n_kv_heads, k_dim;
    const RopeTurns *turns;          /* of the layer */
    uint32_t n_layers, layer_stride; /* GPU: spans of a layer begin so many behind those of the one before */
    uint32_t max_pages;              /* GPU: at least the pages that all spans of a layer fill */
} KvBoundsParams;

enum { KV_BOUNDS_BLOCK = 16, KV_BOUNDS_BLOCK_BYTES = 2 * KV_BOUNDS_BLOCK, KV_BOUND_OPEN = 0x7F };

/* The record of a sector (0..3) of a page. */
LW_INLINE uint8_t *kv_bounds_at(const KvPool *pool, uint32_t page, uint32_t slot, uint32_t sector)
{
    char *slots = pool->base + page * pool->page_bytes + pool->bounds_offset;
    uint32_t k_dim = pool->layout.k_dim;
    return (uint8_t *)slots + slot * kv_bounds_bytes(k_dim) + sector * kv_bounds_sector_bytes(k_dim);
}

/* The first page that the rows of a span fill, and the first that they do not. */
LW_INLINE uint32_t kv_bounds_first_page(const KvSpan *span)
{
    return span->first_pos / KV_PAGE_TOKENS;
}

LW_INLINE uint32_t kv_bounds_end_page(const KvSpan *span)
{
    return (span->first_pos + span->n_rows) / KV_PAGE_TOKENS;
}

/* One sector's bounds as floats. */
void kv_bounds_get(const KvPool *pool, uint32_t page, uint32_t slot, uint32_t sector, float *ret_max, float *ret_min);
/* Writes a record from a sector's largest and smallest values, a channel that holds what is not finite having NaNs. */
void kv_bounds_put(uint8_t *record, uint32_t k_dim, const float *max, const float *min);

/* The least e4m3 whose value times `unit`, a power of 2, is not below x. In fp64, where no scaling loses what is small.
 */
LW_INLINE uint8_t kv_bound_not_below(double x, double unit)
{
    uint8_t f8 = f8_from_f32((float)(x / unit + 0.0)); /* one zero, not two */
    if (f32_from_f8(f8) * unit >= x) return f8;
    return (uint8_t)(!(f8 & 0x80) ? f8 + 1 : f8 == 0x80 ? 0x01 : f8 - 1);
}

bool kv_bounds_ref(const KvBoundsParams *params);
/* The bytes of kv_bounds_ref. Refuses heads whose channels are no multiple of 16; f32 is for the caller to refuse. */
bool kv_bounds_cuda(const KvBoundsParams *params, Stream stream);

#ifdef __cplusplus
}
#endif
