/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/attend_work.h"
#include "kernels/isa.h"
#include "kernels/simd.h"

enum { BLOCK_BYTES = 16, SECTOR_BLOCK_BYTES = BLOCK_BYTES * KV_SECTOR_TOKENS, COLUMN = ATTEND_GROUP_KEYS };

/* Each turns a block of 16 tokens into columns: channel c of the block to ret + c * COLUMN. */
SIMD_INLINE void columns_f32(const char *block, float *ret)
{
    W8x64 x[4];
    w8x64_load_rows(x, (const uint8_t *)block, BLOCK_BYTES);
    for (int c = 0; c < 4; c++) f32x16_store(ret + c * COLUMN, f32x16_from_bits(i32x16_lanes(x[c])));
}

SIMD_INLINE void columns_half(KvType type, const char *block, float *ret)
{
    const uint16_t *half = (const uint16_t *)(const void *)block;
    F32x16 x[8];
    SIMD_UNROLL
    for (int i = 0; i < 8; i++)
        x[i] = type == KV_F16 ? f32x16_load_f16(half + 16 * i) : f32x16_load_bf16(half + 16 * i);
    f32x16_transpose_pairs(x);
    SIMD_UNROLL
    for (int c = 0; c < 8; c++) f32x16_store(ret + c * COLUMN, x[c]);
}

SIMD_INLINE void columns_byte(KvType type, const char *block, float *ret)
{
    W8x64 x[4];
    w8x64_load_rows(x, (const uint8_t *)block, BLOCK_BYTES);
    SIMD_UNROLL
    for (int c = 0; c < 16; c++) {
        I32x16 four = i32x16_lanes(x[c / 4]);
        f32x16_store(ret + c * COLUMN, type == KV_F8 ? f32x16_from_f8(four, c % 4 * 8)
                                                     : f32x16_from_i32(i32x16_bits(four, c % 4 * 8, 8, 0)));
    }
}

SIMD_INLINE void columns_int4(const char *block, float *ret)
{
    W8x64 x[4];
    w8x64_load_rows(x, (const uint8_t *)block, BLOCK_BYTES);
    SIMD_UNROLL
    for (int d = 0; d < 4; d++) SIMD_UNROLL
    for (int n = 0; n < 8; n++)
        f32x16_store(ret + (8 * d + n) * COLUMN, f32x16_from_i32(i32x16_bits(i32x16_lanes(x[d]), 4 * n, 4, 0)));
}

void ISA(kv_unpack_keys)(const KvLayout *layout, const char *sector, uint32_t n_channels, float *ret)
{
    uint32_t block_bits = 8 * BLOCK_BYTES, n_bits = n_channels * kv_type_info(layout->type)->bits;
    const char *end = sector + (n_bits + block_bits - 1) / block_bits * SECTOR_BLOCK_BYTES;
    for (const char *block = sector; block < end; block += SECTOR_BLOCK_BYTES) {
        switch (layout->type) {
        case KV_F32:
            columns_f32(block, ret);
            ret += 4 * COLUMN;
            break;
        case KV_F16:
        case KV_BF16:
            layout->type == KV_F16 ? columns_half(KV_F16, block, ret) : columns_half(KV_BF16, block, ret);
            ret += 8 * COLUMN;
            break;
        case KV_F8:
        case KV_INT8:
            layout->type == KV_F8 ? columns_byte(KV_F8, block, ret) : columns_byte(KV_INT8, block, ret);
            ret += 16 * COLUMN;
            break;
        default:
            columns_int4(block, ret);
            ret += 32 * COLUMN;
            break;
        }
    }
}

SIMD_INLINE F32x16 load_16(KvType type, const char *at)
{
    switch (type) {
    case KV_F32:
        return f32x16_load((const float *)(const void *)at);
    case KV_F16:
        return f32x16_load_f16((const uint16_t *)(const void *)at);
    case KV_BF16:
        return f32x16_load_bf16((const uint16_t *)(const void *)at);
    case KV_F8:
        return f32x16_from_f8(i32x16_load_u8((const uint8_t *)at), 0);
    case KV_INT8:
        return f32x16_from_i32(i32x16_load_u8((const uint8_t *)at));
    default:
        return f32x16_from_i32(i32x16_load_nibbles((const uint8_t *)at));
    }
}

SIMD_INLINE void unpack_rows(KvType type, const KvLayout *layout, const char *values, float *ret)
{
    const uint32_t step = type == KV_F32 ? 64 : type == KV_F16 || type == KV_BF16 ? 32 : type == KV_INT4 ? 8 : 16;
    uint32_t n_bytes = layout->v_row_bytes, n_whole = n_bytes / step * step;
    size_t stride = attend_pad(layout->v_dim);
    for (uint32_t t = 0; t < KV_SECTOR_TOKENS; t++, values += n_bytes, ret += stride) {
        float *to = ret;
        for (uint32_t at = 0; at < n_whole; at += step, to += LANES) f32x16_store(to, load_16(type, values + at));
        if (n_whole == n_bytes) continue;
        _Alignas(64) char padded[LANES * sizeof(float)] = {0};
        memcpy(padded, values + n_whole, n_bytes - n_whole);
        f32x16_store(to, load_16(type, padded));
    }
}

void ISA(kv_unpack_values)(const KvLayout *layout, const char *sector, float *ret)
{
    const char *values = sector + layout->v_offset;
    switch (layout->type) {
    case KV_F32:
        unpack_rows(KV_F32, layout, values, ret);
        break;
    case KV_F16:
        unpack_rows(KV_F16, layout, values, ret);
        break;
    case KV_BF16:
        unpack_rows(KV_BF16, layout, values, ret);
        break;
    case KV_F8:
        unpack_rows(KV_F8, layout, values, ret);
        break;
    case KV_INT8:
        unpack_rows(KV_INT8, layout, values, ret);
        break;
    default:
        unpack_rows(KV_INT4, layout, values, ret);
        break;
    }
}

void ISA(kv_unpack_scales)(const char *scales, float *ret_scale, float *ret_zero)
{
    I32x16 pairs = i32x16_load(scales);
    f32x16_store(ret_scale, f32x16_from_low_f16(pairs));
    f32x16_store(ret_zero, f32x16_from_high_f16(pairs));
}

void ISA(kv_read_keys)(const KvLayout *layout, const char *sector, uint32_t n_channels, const RopeTurns *turns,
                       const float *cos_sin, float *ret)
{
    uint32_t first = layout->k_dim - 2 * turns->n_pairs;
    if (n_channels > first) n_channels += (n_channels - first) % 2; /* a pair is turned whole */
    ISA(kv_unpack_keys)(layout, sector, n_channels, ret);
    if (kv_type_info(layout->type)->is_quantised) {
        /* GCC 12 aligns them by itself, but not where AddressSanitizer puts them. */
        _Alignas(64) float scales[LANES], zeros[LANES];
        ISA(kv_unpack_scales)(sector + layout->k_scale_offset, scales, zeros);
        F32x16 scale = f32x16_load(scales), zero = f32x16_load(zeros);
        for (uint32_t c = 0; c < n_channels; c++)
            f32x16_store(ret + c * COLUMN, f32x16_add(f32x16_mul(f32x16_load(ret + c * COLUMN), scale), zero));
    }
    for (uint32_t c = first; cos_sin && c < n_channels; c += 2, cos_sin += 2) {
        F32x16 x0 = f32x16_load(ret + c * COLUMN), x1 = f32x16_load(ret + (c + 1) * COLUMN);
        F32x16 cos = f32x16_set1(cos_sin[0]), sin = f32x16_set1(cos_sin[1]);
        f32x16_store(ret + c * COLUMN, f32x16_sub(f32x16_mul(x0, cos), f32x16_mul(x1, sin)));
        f32x16_store(ret + (c + 1) * COLUMN, f32x16_add(f32x16_mul(x0, sin), f32x16_mul(x1, cos)));
    }
}
