/* SPDX-License-Identifier: Apache-2.0 */
/* Half precision as bits: IEEE binary16 and bfloat16 to fp32 and back, rounding to nearest even. Any thread. */
#pragma once
#include "base/host_device.h"
#include <stdint.h>
#include <string.h>

LW_INLINE float float_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

LW_INLINE uint32_t float_to_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

LW_INLINE float f32_from_bf16(uint16_t h)
{
    return float_from_bits((uint32_t)h << 16);
}

LW_INLINE uint16_t bf16_from_f32(float f)
{
    uint32_t u = float_to_bits(f);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(u >> 16 | 0x40); /* NaN stays NaN */
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1)) >> 16);
}

LW_INLINE float f32_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t magnitude = h & 0x7FFF;
    if (magnitude >= 0x7C00) return float_from_bits(sign | 0x7F800000u | (magnitude & 0x3FF) << 13);
    /* Shifted into place the exponent is 112 too small; a multiplication also makes subnormals normal. */
    float f = float_from_bits(magnitude << 13) * 0x1p112f;
    return float_from_bits(sign | float_to_bits(f));
}

LW_INLINE uint16_t f16_from_f32(float f)
{
    uint32_t u = float_to_bits(f);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    u &= 0x7FFFFFFFu;
    if (u > 0x7F800000u) return (uint16_t)(sign | 0x7E00 | (u >> 13 & 0x3FF));
    if (u >= 0x477FF000u) return (uint16_t)(sign | 0x7C00); /* at least 65520 rounds to infinity */
    if (u < 0x38800000u) {
        /* Below 2^-14: the addition lets the hardware round at the last subnormal bit, 2^-24. */
        float shifted = float_from_bits(u) + 0.5f;
        return (uint16_t)(sign | (float_to_bits(shifted) - 0x3F000000u));
    }
    return (uint16_t)(sign | ((u - 0x38000000u + 0xFFFu + (u >> 13 & 1)) >> 13));
}
