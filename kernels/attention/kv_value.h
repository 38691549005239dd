/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How one value, or the scale of one vector, is quantised: the definition that the plain loops and the CPU rows share,
 * so that both write the same bits. Any thread.
 *
 * int8, int4: q = round((x - zero) / scale) in 0..255 or 0..15. zero is rounded down and scale up, so that no value
 * leaves that range and |x - (scale q + zero)| <= scale / 2. f8: q = e4m3(x / scale), the largest magnitude being 448.
 * A vector with a NaN or an infinity, or too large for f16 scales, has NaN scales: all of it reads as NaN.
 */
#pragma once
#include "base/half.h"
#include "kernels/attention/kv_page.h"

#include <math.h>

enum { KV_SCALE_NAN = 0x7E00 };

LW_INLINE float f32_from_f8(uint8_t f8)
{
    uint32_t magnitude = f8 & 0x7Fu, sign = (f8 & 0x80u) << 24;
    if (magnitude == 0x7F) return float_from_bits(sign | 0x7FC00000u);
    /* Shifted into place the exponent is 120 too small; a multiplication also makes subnormals normal. */
    return float_from_bits(sign | float_to_bits(float_from_bits(magnitude << 20) * 0x1p120f));
}

/* |x| < 464; more becomes NaN. To nearest even. */
LW_INLINE uint8_t f8_from_f32(float x)
{
    uint32_t u = float_to_bits(x), sign = u >> 24 & 0x80u;
    u &= 0x7FFFFFFFu;
    /* Below 2^-6 the addition lets the hardware round at the last subnormal bit, 2^-9. */
    uint32_t small = float_to_bits(float_from_bits(u) + 0x1p14f) - 0x46800000u;
    uint32_t normal = ((u + 0x7FFFFu + (u >> 20 & 1u)) >> 20) - (120u << 3);
    uint32_t magnitude = u < 0x3C800000u ? small : normal;
    return (uint8_t)(sign | (magnitude < 0x7F ? magnitude : 0x7F));
}

LW_INLINE uint16_t f16_not_below(float x)
{
    uint16_t h = f16_from_f32(x);
    return f32_from_f16(h) < x ? (uint16_t)(h + 1) : h; /* x >= 0 */
}

LW_INLINE uint16_t f16_not_above(float x)
{
    uint16_t h = f16_from_f32(x);
    if (!(f32_from_f16(h) > x)) return h;
    return (uint16_t)(h & 0x8000 ? h + 1 : h ? h - 1 : 0x8001);
}

LW_INLINE uint32_t kv_top_level(KvType type)
{
    return type == KV_INT8 ? 255 : 15;
}

LW_INLINE bool kv_scale_is_usable(KvScale s)
{
    return (s.scale & 0x7C00) != 0x7C00 && (s.zero & 0x7C00) != 0x7C00;
}

/* The scale of a vector whose values lie between min and max; all_finite: none of them is a NaN or an infinity. */
LW_INLINE KvScale kv_scale_of(KvType type, float min, float max, bool all_finite)
{
    KvScale s = {0, 0};
    min += 0.0f; /* never -0: whichever zero was met last does not matter */
    if (type == KV_F8) {
        s.scale = f16_not_below(fmaxf(fabsf(min), fabsf(max)) / 448);
    } else if (min == max) {
        s.zero = f16_from_f32(min);
    } else {
        s.zero = f16_not_above(min);
        s.scale = f16_not_below((max - f32_from_f16(s.zero)) / (float)kv_top_level(type));
    }
    if (all_finite && kv_scale_is_usable(s)) return s;
    return (KvScale){KV_SCALE_NAN, (uint16_t)(type == KV_F8 ? 0 : KV_SCALE_NAN)};
}

/* What stands for x beside a usable scale that is not 0. */
LW_INLINE uint8_t kv_quantise(KvType type, float x, float scale, float zero)
{
    return type == KV_F8 ? f8_from_f32(x / scale) : (uint8_t)(int32_t)rintf((x - zero) / scale);
}
