/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a token's logit weighs: exp((l - max) / temperature), in [0, 1]. The same bits on every machine and device, so
 * that a seed's text doesn't hang on who computes it: only operations that IEEE 754 rounds, none of them fused, in this
 * order. Sums of weights are whole numbers of units of 2^-43 of the heaviest, and therefore the same in whatever order
 * and parts they are taken; of 2^20 tokens at most, so that they fit into 64 bits. What this rounding adds to the
 * logarithm of a sum is below 2^-24, half of an fp32 step at 1. Any thread.
 */
#pragma once
#include "base/half.h"

enum { TOKEN_MASS_BITS = 43, TOKEN_MAX_VOCAB = 1 << 20 };
#define TOKEN_MASS_UNIT 0x1p-43

LW_INLINE float token_product(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

LW_INLINE float token_sum(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

/*
 * exp(x) for x <= 0 within 2 ulp, 0 below -87. Not libm's: this one becomes vector code. It rises with x but for a few
 * ulp, which TOKEN_WEIGHT_SLACK is far above: y < x means weight(y) <= weight(x) * (1 + slack).
 */
#define TOKEN_WEIGHT_SLACK 0x1p-20f
LW_INLINE float token_exp(float x)
{
    const float round_magic = 12582912.0f;       /* 1.5 * 2^23: adding it rounds to the nearest integer */
    uint32_t keep = 0u - (uint32_t)(x > -87.0f); /* a mask and not a branch, which would keep the loop scalar */
    x = float_from_bits(float_to_bits(x) & keep);
    float k = token_sum(token_sum(token_product(x, 1.44269504f), round_magic), -round_magic);
    float r = token_sum(x, -token_product(k, 0.693359375f)); /* ln 2 in two parts */
    r = token_sum(r, -token_product(k, -2.12194440e-4f));
    float p = 1.0f / 5040;
    p = token_sum(token_product(p, r), 1.0f / 720);
    p = token_sum(token_product(p, r), 1.0f / 120);
    p = token_sum(token_product(p, r), 1.0f / 24);
    p = token_sum(token_product(p, r), 1.0f / 6);
    p = token_sum(token_product(p, r), 0.5f);
    p = token_sum(token_product(p, r), 1.0f);
    p = token_sum(token_product(p, r), 1.0f);
    float scale = float_from_bits((uint32_t)((int32_t)k + 127) << 23);
    return float_from_bits(float_to_bits(token_product(p, scale)) & keep);
}

/* Division, not a reciprocal: 0 / T stays 0 for the tiniest T, where 1 / T is infinite. */
LW_INLINE float token_weight(float logit, float max, float temperature)
{
#ifdef __CUDA_ARCH__
    return token_exp(__fdiv_rn(__fsub_rn(logit, max), temperature));
#else
    return token_exp((logit - max) / temperature);
#endif
}

/* The weight in units, rounded to the nearest even number of them. */
LW_INLINE uint64_t token_mass(float weight)
{
#ifdef __CUDA_ARCH__
    return __float2ull_rn(weight * 0x1p43f);
#else
    const double base = 0x1p9; /* whose neighbours are a unit apart */
    double moved = base + (double)weight;
    uint64_t bits, base_bits;
    memcpy(&bits, &moved, sizeof bits);
    memcpy(&base_bits, &base, sizeof base_bits);
    return bits - base_bits;
#endif
}

/* Where u of [0, 1) falls in a mass > 0: [0, mass). */
LW_INLINE uint64_t token_mass_share(uint64_t mass, double u)
{
#ifdef __CUDA_ARCH__
    uint64_t share = __double2ull_rz(__dmul_rn(u, __ull2double_rn(mass)));
#else
    uint64_t share = (uint64_t)(u * (double)mass);
#endif
    return share < mass ? share : mass - 1;
}
