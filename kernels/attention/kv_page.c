/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/kv_page.h"
#include "kernels/attention/kv_value.h"

#include <string.h>

enum { BLOCK_BYTES = 16 };

static const KvTypeInfo types[KV_N_TYPES] = {
    [KV_F32] = {"f32", false, 32}, [KV_F16] = {"f16", false, 16}, [KV_BF16] = {"bf16", false, 16},
    [KV_F8] = {"f8", true, 8},     [KV_INT8] = {"int8", true, 8}, [KV_INT4] = {"int4", true, 4},
};

const KvTypeInfo *kv_type_info(KvType type)
{
    return &types[type];
}

KvLayout kv_layout(KvType type, uint32_t k_dim, uint32_t v_dim)
{
    uint32_t bits = types[type].bits, scale_bytes = types[type].is_quantised ? KV_SECTOR_TOKENS * sizeof(KvScale) : 0;
    uint32_t n_blocks = (k_dim * bits + 8 * BLOCK_BYTES - 1) / (8 * BLOCK_BYTES);
    KvLayout layout = {.type = type, .k_dim = k_dim, .v_dim = v_dim};
    layout.v_offset = n_blocks * BLOCK_BYTES * KV_SECTOR_TOKENS;
    layout.v_row_bytes = (v_dim * bits + 7) / 8;
    layout.k_scale_offset = layout.v_offset + KV_SECTOR_TOKENS * layout.v_row_bytes;
    layout.v_scale_offset = layout.k_scale_offset + scale_bytes;
    layout.sector_bytes = (layout.v_scale_offset + scale_bytes + 63) / 64 * 64;
    layout.slot_bytes = (size_t)layout.sector_bytes * KV_PAGE_SECTORS;
    return layout;
}

/* One token's K or V: element c is element c % per_row of the row that starts stride * (c / per_row) bytes further. */
typedef struct Vector {
    KvType type;
    char *base;
    KvScale *scale; /* quantised types */
    uint32_t n, per_row, stride;
} Vector;

static Vector vector_of(const KvLayout *layout, const char *slot, uint32_t token, bool is_v)
{
    char *sector = (char *)slot + (size_t)(token / KV_SECTOR_TOKENS) * layout->sector_bytes;
    uint32_t t = token % KV_SECTOR_TOKENS;
    char *scales = sector + (is_v ? layout->v_scale_offset : layout->k_scale_offset);
    Vector v = {.type = layout->type, .scale = (KvScale *)(void *)scales + t};
    if (is_v) {
        v.base = sector + layout->v_offset + (size_t)t * layout->v_row_bytes;
        v.n = v.per_row = layout->v_dim;
    } else {
        v.base = sector + (size_t)t * BLOCK_BYTES;
        v.n = layout->k_dim;
        v.per_row = 8 * BLOCK_BYTES / types[layout->type].bits;
        v.stride = BLOCK_BYTES * KV_SECTOR_TOKENS;
    }
    return v;
}

static uint8_t get_byte(KvType type, const char *row, uint32_t i)
{
    const uint8_t *bytes = (const uint8_t *)row;
    return type == KV_INT4 ? bytes[i / 2] >> (4 * (i % 2)) & 15 : bytes[i];
}

static float get_value(const Vector *v, uint32_t c, float scale, float zero)
{
    const char *row = v->base + (size_t)(c / v->per_row) * v->stride;
    uint32_t i = c % v->per_row;
    switch (v->type) {
    case KV_F32:
        return ((const float *)(const void *)row)[i];
    case KV_F16:
        return f32_from_f16(((const uint16_t *)(const void *)row)[i]);
    case KV_BF16:
        return f32_from_bf16(((const uint16_t *)(const void *)row)[i]);
    case KV_F8:
        return scale * f32_from_f8(get_byte(v->type, row, i));
    default:
        return scale * (float)get_byte(v->type, row, i) + zero;
    }
}

static void get_vector(const Vector *v, float *ret)
{
    bool is_quantised = types[v->type].is_quantised;
    float scale = is_quantised ? f32_from_f16(v->scale->scale) : 1,
          zero = is_quantised ? f32_from_f16(v->scale->zero) : 0;
    for (uint32_t c = 0; c < v->n; c++) ret[c] = get_value(v, c, scale, zero);
}

void kv_slot_get(const KvLayout *layout, const char *slot, uint32_t token, float *ret_k, float *ret_v)
{
    Vector k = vector_of(layout, slot, token, false), v = vector_of(layout, slot, token, true);
    get_vector(&k, ret_k);
    get_vector(&v, ret_v);
}

void kv_slot_get_key(const KvLayout *layout, const char *slot, uint32_t token, float *ret_k)
{
    Vector k = vector_of(layout, slot, token, false);
    get_vector(&k, ret_k);
}

static void put_byte(KvType type, char *row, uint32_t i, uint8_t q)
{
    uint8_t *bytes = (uint8_t *)row;
    if (type != KV_INT4)
        bytes[i] = q;
    else if (i % 2)
        bytes[i / 2] = (uint8_t)((bytes[i / 2] & 15) | q << 4);
    else
        bytes[i / 2] = q; /* the high half is 0 where no odd channel follows */
}

static void put_quantised(const Vector *v, const float *x)
{
    float min = INFINITY, max = -INFINITY;
    bool all_finite = true;
    for (uint32_t c = 0; c < v->n; c++) {
        min = fminf(min, x[c]);
        max = fmaxf(max, x[c]);
        all_finite = all_finite && isfinite(x[c]);
    }
    *v->scale = kv_scale_of(v->type, min, max, all_finite);
    bool is_zero = !kv_scale_is_usable(*v->scale) || v->scale->scale == 0;
    float scale = f32_from_f16(v->scale->scale), zero = f32_from_f16(v->scale->zero);
    for (uint32_t c = 0; c < v->n; c++)
        put_byte(v->type, v->base + (size_t)(c / v->per_row) * v->stride, c % v->per_row,
                 is_zero ? 0 : kv_quantise(v->type, x[c], scale, zero));
}

static void put_vector(const Vector *v, const float *x)
{
    if (types[v->type].is_quantised) {
        put_quantised(v, x);
        return;
    }
    for (uint32_t c = 0; c < v->n; c++) {
        void *row = v->base + (size_t)(c / v->per_row) * v->stride;
        uint32_t i = c % v->per_row;
        if (v->type == KV_F32) ((float *)row)[i] = x[c];
        if (v->type == KV_F16) ((uint16_t *)row)[i] = f16_from_f32(x[c]);
        if (v->type == KV_BF16) ((uint16_t *)row)[i] = bf16_from_f32(x[c]);
    }
}

static void clear_padding(const KvLayout *layout, const Vector *k)
{
    uint32_t bytes = (layout->k_dim % k->per_row * types[k->type].bits + 7) / 8;
    if (bytes) memset(k->base + (size_t)(k->n / k->per_row) * k->stride + bytes, 0, BLOCK_BYTES - bytes);
}

void kv_slot_put(const KvLayout *layout, char *slot, uint32_t token, const float *k, const float *v)
{
    Vector to_k = vector_of(layout, slot, token, false), to_v = vector_of(layout, slot, token, true);
    put_vector(&to_k, k);
    put_vector(&to_v, v);
    clear_padding(layout, &to_k);
}

/* Of rows [KV_SECTOR_TOKENS, row_bytes] those from 'first' on. */
static void clear_rows(char *rows, uint32_t first, size_t row_bytes)
{
    memset(rows + first * row_bytes, 0, (KV_SECTOR_TOKENS - first) * row_bytes);
}

void kv_slot_clear_from(const KvLayout *layout, char *slot, uint32_t n_tokens)
{
    char *sector = slot + (size_t)(n_tokens / KV_SECTOR_TOKENS) * layout->sector_bytes;
    uint32_t first = n_tokens % KV_SECTOR_TOKENS;
    for (uint32_t at = 0; at < layout->v_offset; at += BLOCK_BYTES * KV_SECTOR_TOKENS)
        clear_rows(sector + at, first, BLOCK_BYTES);
    clear_rows(sector + layout->v_offset, first, layout->v_row_bytes);
    if (types[layout->type].is_quantised) {
        clear_rows(sector + layout->k_scale_offset, first, sizeof(KvScale));
        clear_rows(sector + layout->v_scale_offset, first, sizeof(KvScale));
    }
    sector += layout->sector_bytes;
    memset(sector, 0, (size_t)(slot + layout->slot_bytes - sector));
}
