/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/device_layout.h"

#include "base/half.h"
#include "kernels/linear/block_values.h"

#include <math.h>

enum { GROUP_COLS = 128, LANE_COLS = 32, LANES = 32, VECTOR = 16, MAX_GROUPS = 2, MAX_PARTS = 2 };

/*
 * A lane's scales. Blocks of 32: binary16 d of rows g and g + 8, then, with minima, both m. Blocks of 256, for row g
 * and then g + 8: one byte a part, or with 32 columns to a minimum one byte each of scale and minimum; scales that may
 * be negative have 128 added. Their heads, once for the four lanes of a row pair: d of both rows, with minima (d, dmin)
 * of both.
 */
static const DeviceFormat formats[] = {
    {DTYPE_Q8_0, 128, 8, 0, 128, 32, false, false, 4, 0}, {DTYPE_Q4_0, 128, 4, 0, 8, 32, false, false, 4, 0},
    {DTYPE_Q4_1, 128, 4, 0, 0, 32, false, true, 8, 0},    {DTYPE_Q5_0, 128, 4, 1, 16, 32, false, false, 4, 0},
    {DTYPE_Q5_1, 128, 4, 1, 0, 32, false, true, 8, 0},    {DTYPE_IQ4_NL, 128, 4, 0, 0, 32, true, false, 4, 0},
    {DTYPE_MXFP4, 128, 4, 0, 0, 32, true, false, 4, 0},   {DTYPE_Q2_K, 256, 2, 0, 0, 16, false, true, 8, 8},
    {DTYPE_Q3_K, 256, 2, 1, 4, 16, false, false, 8, 4},   {DTYPE_Q4_K, 256, 4, 0, 0, 32, false, true, 8, 8},
    {DTYPE_Q5_K, 256, 4, 1, 0, 32, false, true, 8, 8},    {DTYPE_Q6_K, 256, 4, 2, 32, 16, false, false, 8, 4},
    {DTYPE_IQ4_XS, 256, 4, 0, 0, 32, true, false, 4, 4},
};

const DeviceFormat *device_format(DType type)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].type == type) return &formats[i];
    return NULL;
}

/* Of one plane, for 16 rows. */
static size_t plane_bytes(const DeviceFormat *format, uint32_t bits)
{
    return (size_t)DEVICE_TILE_ROWS * format->unit_cols * bits / 8;
}

size_t device_unit_bytes(const DeviceFormat *format)
{
    size_t bytes = plane_bytes(format, format->low_bits + format->high_bits) + (size_t)LANES * format->scale_bytes +
                   (size_t)DEVICE_TILE_ROWS / 2 * format->head_bytes;
    return (bytes + DEVICE_UNIT_ALIGN - 1) / DEVICE_UNIT_ALIGN * DEVICE_UNIT_ALIGN;
}

static size_t float_bytes(DType type)
{
    return type == DTYPE_F32 ? 4 : type == DTYPE_F16 || type == DTYPE_BF16 ? 2 : 0;
}

uint32_t device_padded_cols(DType type, uint32_t n_cols)
{
    const DeviceFormat *format = device_format(type);
    uint32_t unit = format ? format->unit_cols : float_bytes(type) ? DEVICE_FLOAT_UNIT_COLS : 0;
    return unit ? (n_cols + unit - 1) / unit * unit : 0;
}

size_t device_tile_bytes(DType type, uint32_t n_cols)
{
    const DeviceFormat *format = device_format(type);
    size_t cols = device_padded_cols(type, n_cols);
    if (!format) return DEVICE_TILE_ROWS * cols * float_bytes(type);
    return DEVICE_TILE_HEAD_BYTES + cols / format->unit_cols * device_unit_bytes(format);
}

size_t device_matrix_bytes(DType type, uint32_t n_rows, uint32_t n_cols)
{
    return ((size_t)n_rows + DEVICE_TILE_ROWS - 1) / DEVICE_TILE_ROWS * device_tile_bytes(type, n_cols);
}

/* ---- where the bits of column c of 32 lie in a lane's plane ---- */

/*
 * Pairs of columns (2 p, 2 p + 1) go to the two halves of a 32-bit word, so that one mask leaves two quants as the bits
 * of two binary16; pairs with odd p are meant to stay 4 bits higher.
 */
static inline uint32_t low_bit_at(uint32_t bits, bool is_looked_up, uint32_t c)
{
    static const uint8_t two_bits[4] = {0, 4, 2, 6};
    uint32_t chunk = c / 8, pair = c % 8 / 2, half = c % 2;
    if (is_looked_up) return c * bits;
    if (bits == 4) return 32 * chunk + 4 * pair + 16 * half;
    return 32 * (chunk / 2) + 8 * (chunk % 2) + two_bits[pair] + 16 * half;
}

static inline uint32_t high_bit_at(uint32_t bits, uint32_t c)
{
    static const uint8_t two_bits[4] = {0, 2, 8, 10};
    uint32_t chunk = c / 8, pair = c % 8 / 2, half = c % 2, at = 2 * chunk + pair / 2;
    if (bits == 1) return (at < 4 ? at : at + 4) + 4 * (pair % 2) + 16 * half;
    return 32 * (chunk / 2) + two_bits[at % 4] + 4 * (pair % 2) + 16 * half;
}

/* Codes [LANE_COLS] to the words that a lane has of them: unrolled, so that all shifts are constants. */
#define JOIN(name, bit_at)                                                                                             \
    static void name(const uint8_t *codes, uint32_t *words)                                                            \
    {                                                                                                                  \
        _Pragma("GCC unroll 32") for (uint32_t c = 0; c < LANE_COLS; c++) words[(bit_at) / 32] |= (uint32_t)codes[c]   \
                                                                                                  << (bit_at) % 32;    \
    }

JOIN(join_low_4, low_bit_at(4, false, c))
JOIN(join_low_2, low_bit_at(2, false, c))
JOIN(join_looked_up, low_bit_at(4, true, c))
JOIN(join_high_1, high_bit_at(1, c))
JOIN(join_high_2, high_bit_at(2, c))

typedef void (*JoinFn)(const uint8_t *codes, uint32_t *words);

/* NULL: they are bytes as they are. */
static JoinFn join_low(const DeviceFormat *format)
{
    if (format->is_looked_up) return join_looked_up;
    return format->low_bits == 8 ? NULL : format->low_bits == 4 ? join_low_4 : join_low_2;
}

/* ---- one unit ---- */

typedef struct PackedRow {
    BlockValues values[GROUP_COLS * MAX_GROUPS / BLOCK_32];
    float d_max, m_max; /* largest magnitudes over the whole row */
    int exponent;
} PackedRow;

typedef struct Unit {
    const DeviceFormat *format;
    uint8_t *low, *high, *scales, *heads;
} Unit;

static Unit unit_at(const DeviceFormat *format, uint8_t *start)
{
    Unit unit = {.format = format, .low = start};
    unit.high = unit.low + plane_bytes(format, format->low_bits);
    unit.scales = unit.high + plane_bytes(format, format->high_bits);
    unit.heads = unit.scales + (size_t)LANES * format->scale_bytes;
    return unit;
}

/* What of packing depends on the format alone. */
typedef struct Packer {
    const DeviceFormat *format;
    const BlockFormat *block;
    JoinFn low, high;
    uint8_t code_of[256]; /* of a value that is looked up, 128 added */
} Packer;

static void fill_codes(Packer *packer)
{
    static const int8_t iq4[16] = BLOCK_IQ4_VALUES, mxfp4[16] = BLOCK_MXFP4_VALUES;
    const int8_t *table = packer->format->type == DTYPE_MXFP4 ? mxfp4 : iq4;
    memset(packer->code_of, 15, sizeof packer->code_of); /* padding has a 0 that no table need have */
    for (uint8_t code = 15; code-- > 0;) packer->code_of[table[code] + 128] = code;
}

static Packer packer_of(const DeviceFormat *format)
{
    Packer packer = {.format = format,
                     .block = block_format(format->type),
                     .low = join_low(format),
                     .high = format->high_bits == 1 ? join_high_1 : join_high_2};
    if (format->is_looked_up) fill_codes(&packer);
    return packer;
}

static inline void put_vectors(uint8_t *plane, uint32_t lane, uint32_t width, uint32_t first, const uint8_t *from,
                               uint32_t n)
{
    uint32_t step = n < width ? n : width;
    for (uint32_t i = 0; i < n; i += step)
        memcpy(plane + (first + i) / width * LANES * width + lane * width + (first + i) % width, from + i, step);
}

/* A lane's bytes lie in vectors of 16, each vector of all lanes together; planes with fewer bytes lie lane by lane. */
static void put_bytes(uint8_t *plane, uint32_t lane, uint32_t lane_bytes, uint32_t first, const uint8_t *from,
                      uint32_t n)
{
    if (lane_bytes >= VECTOR)
        put_vectors(plane, lane, VECTOR, first, from, n);
    else
        put_vectors(plane, lane, lane_bytes, first, from, n);
}

/* at: which of a lane's parts. */
static void put_codes(uint8_t *plane, uint32_t lane, uint32_t n_parts, uint32_t at, uint32_t bits, JoinFn join,
                      const uint8_t *codes)
{
    uint32_t words[LANE_COLS / 8] = {0}, bytes = LANE_COLS * bits / 8;
    if (join) join(codes, words);
    put_bytes(plane, lane, n_parts * bytes, at * bytes, join ? (const uint8_t *)words : codes, bytes);
}

/* Columns 32 t .. of group h of one row; second: row g + 8. */
static void put_quants(const Packer *packer, const Unit *unit, uint32_t lane, bool second, uint32_t h,
                       const int16_t *values)
{
    const DeviceFormat *format = packer->format;
    uint32_t n_groups = format->unit_cols / GROUP_COLS, at = (second ? n_groups : 0) + h;
    uint8_t codes[LANE_COLS], low[LANE_COLS], mask = (uint8_t)((1u << format->low_bits) - 1);
    if (format->is_looked_up)
        for (uint32_t c = 0; c < LANE_COLS; c++) codes[c] = packer->code_of[values[c] + 128];
    else
        for (uint32_t c = 0; c < LANE_COLS; c++) codes[c] = (uint8_t)(values[c] + (int)format->bias);
    for (uint32_t c = 0; c < LANE_COLS; c++) low[c] = codes[c] & mask;
    put_codes(unit->low, lane, 2 * n_groups, at, format->low_bits, packer->low, low);
    if (!format->high_bits) return;
    for (uint32_t c = 0; c < LANE_COLS; c++) codes[c] = (uint8_t)(codes[c] >> format->low_bits);
    put_codes(unit->high, lane, 2 * n_groups, at, format->high_bits, packer->high, codes);
}

static void put_half(uint8_t *at, float x)
{
    uint16_t bits = f16_from_f32(x);
    memcpy(at, &bits, sizeof bits);
}

static void put_scales_32(const Unit *unit, uint32_t lane, bool second, const BlockValues *values, int exponent)
{
    uint8_t *at = unit->scales + (size_t)lane * unit->format->scale_bytes + (second ? 2 : 0);
    put_half(at, ldexpf(values->d, exponent));
    if (unit->format->has_min) put_half(at + 4, ldexpf(values->m, exponent - DEVICE_ROW_EXPONENT));
}

static void put_scales_k(const Unit *unit, uint32_t lane, bool second, uint32_t h, const BlockValues *values,
                         int exponent)
{
    const DeviceFormat *format = unit->format;
    uint32_t row_bytes = format->scale_bytes / 2, part = (h * GROUP_COLS + lane % 4 * LANE_COLS) / 16;
    uint8_t *at = unit->scales + (size_t)lane * format->scale_bytes + (second ? row_bytes : 0) + h * row_bytes / 2;
    uint8_t *head = unit->heads + (size_t)(lane / 4) * format->head_bytes + (second ? format->head_bytes / 2 : 0);
    uint32_t n_parts = LANE_COLS / format->part_cols;
    for (uint32_t i = 0; i < n_parts; i++) {
        int scale = values->scale[part + i], min = values->min[part + i];
        if (!format->has_min)
            at[i] = (uint8_t)(scale + 128);
        else if (n_parts == 2)
            at[i] = (uint8_t)(scale | min << 4);
        else
            at[0] = (uint8_t)scale, at[1] = (uint8_t)min;
    }
    put_half(head, ldexpf(values->d, exponent));
    if (format->has_min) put_half(head + 2, ldexpf(values->m, exponent));
}

static void put_unit(const Packer *packer, const Unit *unit, uint32_t row, const PackedRow *packed)
{
    const DeviceFormat *format = packer->format;
    bool second = row >= 8, is_k = format->head_bytes > 0;
    for (uint32_t h = 0; h < format->unit_cols / GROUP_COLS; h++) {
        for (uint32_t t = 0; t < 4; t++) {
            uint32_t lane = row % 8 * 4 + t, offset = is_k ? h * GROUP_COLS + t * LANE_COLS : 0;
            const BlockValues *values = &packed->values[is_k ? 0 : t];
            put_quants(packer, unit, lane, second, h, values->q + offset);
            if (is_k)
                put_scales_k(unit, lane, second, h, values, packed->exponent);
            else
                put_scales_32(unit, lane, second, values, packed->exponent);
        }
    }
}

/* ---- rows ---- */

/* Blocks of a unit, or their scales alone; those behind the row's end hold zeros. */
static void decode_unit(const BlockFormat *block, const char *row, uint32_t n_cols, uint32_t first_col,
                        uint32_t unit_cols, bool has_quants, PackedRow *ret)
{
    size_t block_bytes = dtype_info(block->type)->block_bytes;
    for (uint32_t i = 0; i < unit_cols / block->block; i++) {
        uint32_t col = first_col + i * block->block;
        if (col >= n_cols) {
            ret->values[i] = (BlockValues){0};
            continue;
        }
        const char *at = row + col / block->block * block_bytes;
        block->scales(at, &ret->values[i]);
        if (has_quants) block->quants(at, &ret->values[i]);
    }
}

static float larger(float max, float x)
{
    x = fabsf(x);
    return x > max || isnan(x) ? x : max;
}

static void measure_block(const BlockFormat *block, const BlockValues *values, PackedRow *ret)
{
    ret->d_max = larger(ret->d_max, values->d);
    ret->m_max = larger(ret->m_max, values->m);
    for (uint32_t part = 0; block->block == BLOCK_K && part < BLOCK_PARTS; part++)
        ret->d_max = larger(ret->d_max, values->d * (float)values->scale[part]);
}

/* The power of two that brings scales below 2^15 and minima, 2^24 lower, below 2^13. */
static int row_exponent(const DeviceFormat *format, const PackedRow *packed)
{
    int of_d = 0, of_m = 0;
    if (!isfinite(packed->d_max) || !isfinite(packed->m_max)) return 0;
    frexpf(packed->d_max, &of_d);
    frexpf(packed->m_max, &of_m);
    int exponent = packed->d_max > 0 ? 15 - of_d : 40;
    int limit = format->head_bytes ? 15 - of_m : 37 - of_m; /* blocks of 256 keep dmin itself */
    if (packed->m_max > 0 && exponent > limit) exponent = limit;
    return exponent > 100 ? 100 : exponent;
}

static void pack_row(const Packer *packer, const char *row, uint32_t n_cols, uint32_t row_in_tile, uint8_t *tile)
{
    const DeviceFormat *format = packer->format;
    const BlockFormat *block = packer->block;
    PackedRow packed = {0};
    size_t unit_bytes = device_unit_bytes(format);
    for (uint32_t col = 0; col < n_cols; col += format->unit_cols) {
        decode_unit(block, row, n_cols, col, format->unit_cols, false, &packed);
        for (uint32_t i = 0; i < format->unit_cols / block->block; i++)
            measure_block(block, &packed.values[i], &packed);
    }
    packed.exponent = row_exponent(format, &packed);
    float factor = ldexpf(1, DEVICE_ROW_EXPONENT - packed.exponent);
    memcpy(tile + row_in_tile * sizeof factor, &factor, sizeof factor);
    uint8_t *at = tile + DEVICE_TILE_HEAD_BYTES;
    for (uint32_t col = 0; col < n_cols; col += format->unit_cols, at += unit_bytes) {
        Unit unit = unit_at(format, at);
        decode_unit(block, row, n_cols, col, format->unit_cols, true, &packed);
        put_unit(packer, &unit, row_in_tile, &packed);
    }
}

bool device_matrix_pack(DType type, const void *rows, uint32_t n_rows, uint32_t n_cols, uint32_t first_tile,
                        uint32_t n_tiles, void *ret)
{
    const DeviceFormat *format = device_format(type);
    size_t tile_bytes = device_tile_bytes(type, n_cols), stride = device_padded_cols(type, n_cols) * float_bytes(type);
    size_t row_bytes = tile_bytes ? dtype_row_bytes(type, n_cols) : 0;
    Packer packer = {0};
    if (!tile_bytes) return false;
    if (format) packer = packer_of(format);
    memset(ret, 0, n_tiles * tile_bytes);
    for (uint32_t i = 0; i < n_tiles * DEVICE_TILE_ROWS; i++) {
        size_t row = (size_t)first_tile * DEVICE_TILE_ROWS + i;
        if (row >= n_rows) break;
        uint8_t *tile = (uint8_t *)ret + i / DEVICE_TILE_ROWS * tile_bytes;
        const char *from = (const char *)rows + row * row_bytes;
        if (format)
            pack_row(&packer, from, n_cols, i % DEVICE_TILE_ROWS, tile);
        else
            memcpy(tile + i % DEVICE_TILE_ROWS * stride, from, row_bytes);
    }
    return true;
}
