/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/kv_value.h"
#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/simd.h"

enum {
    BLOCK_BYTES = 16,
    SECTOR_BLOCK_BYTES = BLOCK_BYTES * KV_SECTOR_TOKENS,
    GRAIN_ITEMS = 16,
    MAX_FLOATS = KV_MAX_DIM + 32,
};

/* One page of one sequence and KV head: the rows of the batch that fall into it. */
typedef struct PageRows {
    const KvStoreParams *params;
    const KvPages *pages;
    uint32_t slot, kv_head, page;
    uint32_t first_row, n_rows, first_token;
} PageRows;

/* One vector, padded with zeros to 32 floats; becomes the bytes of the stored type. */
typedef struct Row {
    _Alignas(64) float x[MAX_FLOATS];
    _Alignas(64) char bytes[MAX_FLOATS * sizeof(float)];
} Row;

static void set_row(Row *row, const float *x, uint32_t n)
{
    memcpy(row->x, x, n * sizeof *x);
    memset(row->x + n, 0, 32 * sizeof *x);
}

static void encode_half(KvType type, Row *row, uint32_t n)
{
    uint16_t *to = (uint16_t *)(void *)row->bytes;
    for (uint32_t c = 0; c < n; c += LANES) {
        if (type == KV_F16)
            f32x16_store_f16(to + c, f32x16_load(row->x + c));
        else
            f32x16_store_bf16(to + c, f32x16_load(row->x + c));
    }
}

static KvScale scale_of_row(KvType type, Row *row, uint32_t n)
{
    F32x16 max = f32x16_set1(-INFINITY), opposite = max;
    I32x16 magnitude = i32x16_set1(0);
    for (uint32_t c = 0; c < n; c += LANES) {
        F32x16 x = f32x16_load(row->x + c);
        magnitude = i32x16_max(magnitude, i32x16_magnitude(x));
        max = f32x16_max(max, n - c < LANES ? f32x16_keep(x, n - c, -INFINITY) : x);
        x = f32x16_sub(f32x16_set1(0), x);
        opposite = f32x16_max(opposite, n - c < LANES ? f32x16_keep(x, n - c, -INFINITY) : x);
    }
    return kv_scale_of(type, -f32x16_highest(opposite), f32x16_highest(max), i32x16_highest(magnitude) < 0x7F800000);
}

static KvScale encode_quantised(KvType type, Row *row, uint32_t n)
{
    KvScale s = scale_of_row(type, row, n);
    uint8_t *q = (uint8_t *)row->bytes;
    float scale = f32_from_f16(s.scale), zero = f32_from_f16(s.zero);
    memset(q, 0, n + 32);
    if (!kv_scale_is_usable(s) || s.scale == 0) return s;
    if (type == KV_F8) {
        for (uint32_t c = 0; c < n; c++) q[c] = f8_from_f32(row->x[c] / scale);
        return s;
    }
    for (uint32_t c = 0; c < n; c += LANES) {
        F32x16 level = f32x16_div(f32x16_sub(f32x16_load(row->x + c), f32x16_set1(zero)), f32x16_set1(scale));
        i32x16_store_u8(q + c, i32x16_round(level));
    }
    memset(q + n, 0, 32);
    if (type == KV_INT4) {
        for (uint32_t i = 0; 2 * i < n; i++) q[i] = (uint8_t)(q[2 * i] | q[2 * i + 1] << 4);
        memset(q + (n + 1) / 2, 0, n);
    }
    return s;
}

static KvScale encode(KvType type, Row *row, uint32_t n)
{
    switch (type) {
    case KV_F32:
        memcpy(row->bytes, row->x, (n + 32) * sizeof(float));
        return (KvScale){0, 0};
    case KV_F16:
    case KV_BF16:
        encode_half(type, row, n);
        return (KvScale){0, 0};
    default:
        return encode_quantised(type, row, n);
    }
}

static void put_scale(const KvLayout *layout, char *scales, uint32_t token, KvScale s)
{
    if (kv_type_info(layout->type)->is_quantised) memcpy(scales + token * sizeof s, &s, sizeof s);
}

/* Writes a token's key, which is in `row`, into its slot. */
static void put_key(const KvLayout *layout, char *slot, uint32_t token, Row *row)
{
    char *sector = slot + token / KV_SECTOR_TOKENS * layout->sector_bytes;
    token %= KV_SECTOR_TOKENS;
    put_scale(layout, sector + layout->k_scale_offset, token, encode(layout->type, row, layout->k_dim));
    const char *from = row->bytes;
    for (char *block = sector; block < sector + layout->v_offset; block += SECTOR_BLOCK_BYTES, from += BLOCK_BYTES)
        memcpy(block + token * BLOCK_BYTES, from, BLOCK_BYTES);
}

static void put_value(const KvLayout *layout, char *slot, uint32_t token, Row *row)
{
    char *sector = slot + token / KV_SECTOR_TOKENS * layout->sector_bytes;
    token %= KV_SECTOR_TOKENS;
    put_scale(layout, sector + layout->v_scale_offset, token, encode(layout->type, row, layout->v_dim));
    memcpy(sector + layout->v_offset + token * layout->v_row_bytes, row->bytes, layout->v_row_bytes);
}

/* Quantises a bf16 image, which is full, into the stored page. */
static void close_slot(const PageRows *rows, const KvLayout *image_layout, const char *image, Row *row)
{
    const KvLayout *layout = &rows->pages->pool->layout;
    char *stored = kv_slot_at(rows->pages->pool, rows->pages->pages[rows->page], rows->slot);
    for (uint32_t t = 0; t < KV_PAGE_TOKENS; t++) {
        const char *sector = image + t / KV_SECTOR_TOKENS * image_layout->sector_bytes;
        const char *key = sector + t % KV_SECTOR_TOKENS * BLOCK_BYTES;
        uint16_t half[MAX_FLOATS];
        for (uint32_t c = 0; c < layout->k_dim; c += 8, key += SECTOR_BLOCK_BYTES) memcpy(half + c, key, BLOCK_BYTES);
        for (uint32_t c = 0; c < layout->k_dim; c++) row->x[c] = f32_from_bf16(half[c]);
        memset(row->x + layout->k_dim, 0, 32 * sizeof(float));
        put_key(layout, stored, t, row);
        memcpy(half, sector + image_layout->v_offset + t % KV_SECTOR_TOKENS * image_layout->v_row_bytes,
               image_layout->v_row_bytes);
        for (uint32_t c = 0; c < layout->v_dim; c++) row->x[c] = f32_from_bf16(half[c]);
        memset(row->x + layout->v_dim, 0, 32 * sizeof(float));
        put_value(layout, stored, t, row);
    }
}

static void store_rows(const PageRows *rows)
{
    const KvStoreParams *params = rows->params;
    const KvLayout *layout;
    char *slot = kv_pages_slot(rows->pages, rows->page, rows->page, rows->slot, &layout);
    Row row;
    for (uint32_t i = 0; i < rows->n_rows; i++) {
        size_t from = (size_t)(rows->first_row + i) * params->n_kv_heads + rows->kv_head;
        set_row(&row, params->k + from * params->k_dim, params->k_dim);
        put_key(layout, slot, rows->first_token + i, &row);
        set_row(&row, params->v + from * params->v_dim, params->v_dim);
        put_value(layout, slot, rows->first_token + i, &row);
    }
    if (rows->pages->images && rows->first_token + rows->n_rows == KV_PAGE_TOKENS) close_slot(rows, layout, slot, &row);
}

static uint32_t span_pages(const KvSpan *span)
{
    if (span->n_rows == 0) return 0;
    return (span->first_pos + span->n_rows - 1) / KV_PAGE_TOKENS - span->first_pos / KV_PAGE_TOKENS + 1;
}

static PageRows page_rows(const KvStoreParams *params, const KvSpan *span, uint32_t page, uint32_t kv_head)
{
    const KvHead *head = &span->heads[kv_head];
    uint32_t number = span->first_pos / KV_PAGE_TOKENS + page, begin = number * KV_PAGE_TOKENS;
    uint32_t first = page == 0 ? span->first_pos : begin, end = span->first_pos + span->n_rows;
    if (end - begin > KV_PAGE_TOKENS) end = begin + KV_PAGE_TOKENS;
    return (PageRows){.params = params,
                      .pages = &span->classes[head->class_index],
                      .slot = head->slot,
                      .kv_head = kv_head,
                      .page = number,
                      .first_row = span->first_row + (first - span->first_pos),
                      .n_rows = end - first,
                      .first_token = first - begin};
}

/* Items: KV heads of the first page of the first span, then of its next. */
static void store_items(void *arg, uint32_t worker, size_t first, size_t end)
{
    (void)worker;
    const KvStoreParams *params = arg;
    size_t begin = 0; /* the span's first item */
    for (uint32_t s = 0; s < params->n_spans && begin < end; s++) {
        size_t n = (size_t)span_pages(&params->spans[s]) * params->n_kv_heads;
        for (size_t item = first > begin ? first : begin; item < end && item < begin + n; item++) {
            uint32_t page = (uint32_t)((item - begin) / params->n_kv_heads);
            PageRows rows = page_rows(params, &params->spans[s], page, (uint32_t)((item - begin) % params->n_kv_heads));
            store_rows(&rows);
        }
        begin += n;
    }
}

bool ISA(kv_store)(const KvStoreParams *params, Stream stream)
{
    if (params->k_dim > KV_MAX_DIM || params->v_dim > KV_MAX_DIM) return false;
    size_t n_items = 0, n_rows = 0;
    for (uint32_t s = 0; s < params->n_spans; s++) {
        n_items += (size_t)span_pages(&params->spans[s]) * params->n_kv_heads;
        n_rows += params->spans[s].n_rows;
    }
    KvStoreParams copy = *params;
    parallel_for(stream, n_items, n_rows > GRAIN_ITEMS ? 1 : GRAIN_ITEMS, store_items, &copy);
    return true;
}
