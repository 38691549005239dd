/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/device_layout.h"

#include "base/half.h"
#include "kernels/linear/blocks.h"
#include "kernels/linear/dequant.h"
#include "tests/support/compare.h"
#include "tests/support/weights.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const DType TYPES[] = {DTYPE_F32,  DTYPE_F16,    DTYPE_BF16,   DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0,
                              DTYPE_Q5_1, DTYPE_Q8_0,   DTYPE_Q2_K,   DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K,
                              DTYPE_Q6_K, DTYPE_IQ4_NL, DTYPE_IQ4_XS, DTYPE_MXFP4};

/* What a lane of the kernels sees of one unit. */
typedef struct Lane {
    const DeviceFormat *format;
    const uint8_t *unit;
    uint32_t index, row; /* row: 0 or 1, of the lane's two */
} Lane;

static uint8_t plane_byte(const Lane *lane, size_t plane_at, uint32_t bits, uint32_t h, uint32_t byte)
{
    uint32_t n_groups = lane->format->unit_cols / 128, lane_bytes = 8 * n_groups * bits;
    uint32_t width = lane_bytes < 16 ? lane_bytes : 16, at = (lane->row * n_groups + h) * 4 * bits + byte;
    return lane->unit[plane_at + at / width * 32 * width + lane->index * width + at % width];
}

static uint32_t plane_word(const Lane *lane, size_t plane_at, uint32_t bits, uint32_t h, uint32_t word)
{
    uint32_t ret = 0;
    for (uint32_t i = 0; i < 4; i++) ret |= (uint32_t)plane_byte(lane, plane_at, bits, h, 4 * word + i) << 8 * i;
    return ret;
}

/* The quant of column c of 32, shifted out of its word as the kernels mask it. */
static uint32_t quant(const Lane *lane, uint32_t h, uint32_t c)
{
    const DeviceFormat *format = lane->format;
    uint32_t chunk = c / 8, pair = c / 2 % 4, up = 16 * (c % 2), low;
    size_t high_at = (size_t)2 * format->unit_cols * format->low_bits;
    if (format->low_bits == 8)
        low = plane_byte(lane, 0, 8, h, c);
    else if (format->is_looked_up)
        low = plane_word(lane, 0, 4, h, chunk) >> 4 * (c % 8) & 15;
    else if (format->low_bits == 4)
        low = plane_word(lane, 0, 4, h, chunk) >> (8 * (pair / 2) + 4 * (pair % 2) + up) & 15;
    else
        low = plane_word(lane, 0, 2, h, chunk / 2) >> (8 * (chunk % 2) + 2 * (pair / 2) + 4 * (pair % 2) + up) & 3;
    if (format->high_bits == 0) return low;
    uint32_t word = format->high_bits == 1 ? 0 : chunk / 2,
             n = 2 * (format->high_bits == 1 ? chunk : chunk % 2) + pair / 2;
    uint32_t bit = format->high_bits == 1 ? n + n / 4 * 4 : 2 * n + n / 2 * 4;
    uint32_t high = plane_word(lane, high_at, format->high_bits, h, word) >> (bit + 4 * (pair % 2) + up);
    return low | (high & ((1u << format->high_bits) - 1)) << format->low_bits;
}

static float half_at(const uint8_t *at)
{
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    return f32_from_f16(bits);
}

/* Scale of a part and what is taken off, both in the stored measure. */
static void scales(const Lane *lane, uint32_t h, uint32_t part, float *ret_scale, float *ret_add)
{
    const DeviceFormat *format = lane->format;
    const uint8_t *all = lane->unit + (size_t)2 * format->unit_cols * (format->low_bits + format->high_bits);
    const uint8_t *own = all + lane->index * format->scale_bytes;
    float add = 0;
    if (format->head_bytes == 0) {
        *ret_scale = half_at(own + 2 * lane->row);
        *ret_add = format->has_min ? half_at(own + 4 + 2 * lane->row) * 0x1p24f : add;
        return;
    }
    const uint8_t *head = all + (size_t)32 * format->scale_bytes + lane->index / 4 * format->head_bytes;
    head += lane->row * format->head_bytes / 2;
    own += (lane->row * 2 + h) * format->scale_bytes / 4;
    float d = half_at(head);
    if (!format->has_min)
        *ret_scale = d * (float)(own[part] - 128);
    else if (format->part_cols == 16)
        *ret_scale = d * (float)(own[part] & 15), add = -half_at(head + 2) * (float)(own[part] >> 4);
    else
        *ret_scale = d * (float)own[0], add = -half_at(head + 2) * (float)own[1];
    *ret_add = add;
}

static float value(const Lane *lane, uint32_t h, uint32_t c)
{
    static const int8_t iq4[16] = BLOCK_IQ4_VALUES, mxfp4[16] = BLOCK_MXFP4_VALUES;
    uint32_t code = quant(lane, h, c);
    float scale, add, q = (float)code - (float)lane->format->bias;
    if (lane->format->is_looked_up) q = lane->format->type == DTYPE_MXFP4 ? mxfp4[code] : iq4[code];
    scales(lane, h, c / lane->format->part_cols, &scale, &add);
    return q * scale + add;
}

/* Row r of a packed matrix as the kernels would see it. */
static void read_row(const DeviceFormat *format, const uint8_t *packed, uint32_t n_cols, uint32_t r, float *ret)
{
    const uint8_t *tile = packed + r / 16 * device_tile_bytes(format->type, n_cols);
    float factor;
    memcpy(&factor, tile + r % 16 * sizeof factor, sizeof factor);
    for (uint32_t c = 0; c < n_cols; c++) {
        uint32_t in_unit = c % format->unit_cols, t = in_unit % 128 / 32;
        Lane lane = {.format = format,
                     .unit = tile + DEVICE_TILE_HEAD_BYTES + c / format->unit_cols * device_unit_bytes(format),
                     .index = r % 8 * 4 + t,
                     .row = r % 16 / 8};
        ret[c] = value(&lane, in_unit / 128, in_unit % 32) * 0x1p-24f * factor;
    }
}

static void check_type(DType type, uint32_t n_rows, uint32_t n_blocks)
{
    uint64_t seed = n_rows + n_blocks;
    uint32_t n_cols = n_blocks * dtype_info(type)->block_elements, n_tiles = (n_rows + 15) / 16;
    size_t row_bytes = dtype_row_bytes(type, n_cols), bytes = device_matrix_bytes(type, n_rows, n_cols);
    const DeviceFormat *format = device_format(type);
    uint8_t *rows = malloc(n_rows * row_bytes), *packed = malloc(bytes);
    float *got = malloc(n_cols * sizeof *got), *want = malloc(n_cols * sizeof *want);
    char text[200];
    cr_assert(rows && packed && got && want);
    random_weights(&seed, type, rows, (size_t)n_rows * n_cols);
    cr_assert(device_matrix_pack(type, rows, n_rows, n_cols, 0, n_tiles, packed));
    for (uint32_t r = 0; r < n_rows; r++) {
        size_t stride = device_tile_bytes(type, n_cols) / DEVICE_TILE_ROWS;
        cr_assert(dequant_row_ref(type, rows + r * row_bytes, want, n_cols));
        if (format)
            read_row(format, packed, n_cols, r, got);
        else
            cr_assert(dequant_row_ref(type, packed + r * stride, got, n_cols));
        cr_assert(compare_floats(got, want, n_cols, (Tolerance){.abs = 3e-4, .rel = 1e-5, .min_cosine = 1 - 1e-6}, text,
                                 sizeof text),
                  "%s, row %u: %s", dtype_info(type)->name, r, text);
    }
    free(rows);
    free(packed);
    free(got);
    free(want);
}

Test(test_device_layout, kernels_would_read_every_value)
{
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        check_type(TYPES[i], 1, 1);
        check_type(TYPES[i], 37, 5);
    }
}

Test(test_device_layout, tiles_can_be_packed_apart)
{
    enum { ROWS = 50, COLS = 512, TILES = 4 };
    uint64_t seed = 4;
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        size_t tile_bytes = device_tile_bytes(TYPES[i], COLS);
        uint8_t *rows = malloc(ROWS * dtype_row_bytes(TYPES[i], COLS));
        uint8_t *whole = malloc(TILES * tile_bytes), *parts = malloc(TILES * tile_bytes);
        cr_assert(rows && whole && parts);
        cr_assert_eq(device_matrix_bytes(TYPES[i], ROWS, COLS), TILES * tile_bytes);
        cr_assert_eq(tile_bytes % 16, 0);
        random_weights(&seed, TYPES[i], rows, (size_t)ROWS * COLS);
        cr_assert(device_matrix_pack(TYPES[i], rows, ROWS, COLS, 0, TILES, whole));
        for (uint32_t tile = 0; tile < TILES; tile++)
            cr_assert(device_matrix_pack(TYPES[i], rows, ROWS, COLS, tile, 1, parts + tile * tile_bytes));
        cr_assert_arr_eq(parts, whole, TILES * tile_bytes);
        free(rows);
        free(whole);
        free(parts);
    }
}

/* A row's power of two serves scales of any size; blocks without a value, too. */
Test(test_device_layout, scales_of_any_size)
{
    static const float sizes[] = {0, 6e-8f, 1e-5f, 60000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        BlockQ4_1 block = {.d = f16_from_f32(sizes[i]), .m = f16_from_f32(-sizes[i]), .quants = {0xF0, 0x5A, 0x77}};
        uint8_t packed[4096];
        float got[32], want[32];
        char text[200];
        cr_assert_leq(device_matrix_bytes(DTYPE_Q4_1, 1, 32), sizeof packed);
        cr_assert(device_matrix_pack(DTYPE_Q4_1, &block, 1, 32, 0, 1, packed));
        cr_assert(dequant_row_ref(DTYPE_Q4_1, &block, want, 32));
        read_row(device_format(DTYPE_Q4_1), packed, 32, 0, got);
        cr_assert(compare_floats(got, want, 32, (Tolerance){.rel = 1e-3, .min_cosine = 1 - 1e-6}, text, sizeof text),
                  "%g: %s", (double)sizes[i], text);
    }
}

Test(test_device_layout, other_types_are_refused)
{
    uint8_t packed[64];
    cr_assert_eq(device_matrix_bytes((DType)99, 16, 32), 0);
    cr_assert_eq(device_padded_cols((DType)99, 32), 0);
    cr_assert_null(device_format(DTYPE_F16));
    cr_assert_not(device_matrix_pack((DType)99, packed, 1, 32, 0, 1, packed));
}
