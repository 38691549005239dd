/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of keys and values. A page is KV_PAGE_TOKENS tokens of every slot of its class; a slot is one (layer, KV
 * head). A slot of a page is KV_PAGE_SECTORS sector images, each K, V and their scales in one piece (KV fact 4):
 *   K: blocks of [16 tokens][16 bytes of channels], block after block along the channels, so that a prefix of the
 *      channels is a prefix of the bytes; the last block is padded with zeros
 *   V: [16 tokens][v_dim channels]
 *   K scales, V scales: [16 tokens] of KvScale, quantised types only; the image is padded to 64 bytes
 * int8 and int4 are unsigned; int4 puts even channels in the low half of a byte. Any thread.
 */
#pragma once
#include "kernels/attention/plan.h"
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { KV_MAX_DIM = 1024 }; /* channels of a head that the kernels take */

typedef enum KvType { KV_F32, KV_F16, KV_BF16, KV_F8, KV_INT8, KV_INT4, KV_N_TYPES } KvType;

/*
 * Of one token and head, f16 bits: x = scale * q + zero; f8 (e4m3): zero is 0. Integers: a constant vector has scale 0.
 * A vector that holds a NaN or an infinity has NaN scales, so that it reads as NaN (kv_value.h).
 */
typedef struct KvScale {
    uint16_t scale, zero;
} KvScale;

typedef struct KvLayout {
    KvType type;
    uint32_t k_dim, v_dim;                             /* channels */
    uint32_t v_offset, k_scale_offset, v_scale_offset; /* bytes from the start of a sector image */
    uint32_t v_row_bytes;                              /* of one token */
    uint32_t sector_bytes;                             /* multiple of 64 */
    size_t slot_bytes;                                 /* KV_PAGE_SECTORS sectors */
} KvLayout;

/*
 * All pages of one class: slot s of page p is at base + p * page_bytes + s * layout.slot_bytes, and its key bounds
 * (kv_bounds.h) at base + p * page_bytes + bounds_offset + s * kv_bounds_bytes(k_dim).
 */
typedef struct KvPool {
    char *base;
    size_t page_bytes;
    KvLayout layout;
    size_t bounds_offset; /* 0: this class keeps none */
} KvPool;

/*
 * One sequence's pages in one class, by logical page = position / KV_PAGE_TOKENS. A query reads its own page (and a
 * token is written) unquantised, earlier pages as they are stored (KV fact 3):
 *   unquantised type: everything is in `pages` of `pool`; images is NULL
 *   quantised type: logical page i >= first_image, also while it is open, has the image images[i - first_image] in
 *   image_pool, a pool of the same slots in bf16; closed pages are in `pages`.
 */
typedef struct KvPages {
    const KvPool *pool;
    const uint32_t *pages; /* [logical page] page of pool; UINT32_MAX where none is held: no plan asks for it */
    const KvPool *image_pool;
    const uint32_t *images;
    uint32_t first_image;
} KvPages;

/* Where a KV head of a layer is found. */
typedef struct KvHead {
    uint32_t class_index; /* into KvSpan.classes */
    uint32_t slot;
} KvHead;

/* Rows [first_row, first_row + n_rows) of a batch belong to one sequence, at positions first_pos and up. */
typedef struct KvSpan {
    const KvPages *classes; /* of the sequence */
    const KvHead *heads;    /* [n_kv_heads] of the layer */
    const AttnPlan *plans;  /* [n_kv_heads]; every query of the span follows its KV head's plan */
    uint32_t first_row, n_rows, first_pos;
    bool is_split; /* GPU: few rows that read much, as in decode: their keys are shared out over the whole device */
} KvSpan;

/*
 * What a launch on a GPU must know without reading the spans; CPU rows ignore it. On a GPU every pointer of the
 * parameters, and of the spans, pages, pools, heads, plans and lists that it leads to, is one that the device reads:
 * the engine copies them once a step from pinned memory to fixed device addresses, so that the launches of a graph stay
 * as they are: no kernel writes spans, pages or plans. A span of 0 rows is skipped, which pads a graph's batch.
 * is_early: lists that kernels of an earlier packet wrote count as written, since a copy lies between. */
typedef struct KvLaunch {
    uint32_t types;        /* bits 1 << KvType of the classes that the spans use */
    uint32_t split_rows;   /* at least n_rows of every span that is_split; 0: there is none */
    uint32_t tiled_rows;   /* at least the rows of all other spans together; 0: there is none */
    bool is_deterministic; /* a row's bits do not depend on the batch; its split spans have 1 row each */
    uint32_t most_keys;    /* that any row sees, where span i is row i: a decode step; 0: nothing is known */
    bool has_bands;        /* some plan of a span has; all rows of such a span lie in one page */
    bool is_early;         /* nor what lists hold: they too may be read while the kernel in front still runs */
} KvLaunch;

typedef struct KvTypeInfo {
    const char *name; /* "f16" */
    bool is_quantised;
    uint32_t bits;
} KvTypeInfo;

const KvTypeInfo *kv_type_info(KvType type);
KvLayout kv_layout(KvType type, uint32_t k_dim, uint32_t v_dim);

/* One token (0..63) of a slot, as floats; put: rounds to nearest even or quantises. Plain loops: the definition. */
void kv_slot_get(const KvLayout *layout, const char *slot, uint32_t token, float *ret_k, float *ret_v);
void kv_slot_get_key(const KvLayout *layout, const char *slot, uint32_t token, float *ret_k);
void kv_slot_put(const KvLayout *layout, char *slot, uint32_t token, const float *k, const float *v);

/* Zeroes what a slot holds of tokens n_tokens (0..63) and later. */
void kv_slot_clear_from(const KvLayout *layout, char *slot, uint32_t n_tokens);

LW_INLINE char *kv_slot_at(const KvPool *pool, uint32_t page, uint32_t slot)
{
    return pool->base + page * pool->page_bytes + slot * pool->layout.slot_bytes;
}

/* The slot's logical page `page` as a query (or a new token) whose own page is own_page finds it, and its layout. */
static inline char *kv_pages_slot(const KvPages *pages, uint32_t page, uint32_t own_page, uint32_t slot,
                                  const KvLayout **ret_layout)
{
    bool is_image = pages->images && page == own_page;
    const KvPool *pool = is_image ? pages->image_pool : pages->pool;
    *ret_layout = &pool->layout;
    return kv_slot_at(pool, is_image ? pages->images[page - pages->first_image] : pages->pages[page], slot);
}

#ifdef __cplusplus
}
#endif
