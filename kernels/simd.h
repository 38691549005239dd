/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sixteen lanes on any machine, for sources that Meson compiles once for each instruction set (isa.h). Every operation
 * gives the same bits everywhere, so that one definition holds for all; the portable madd rounds once only where the
 * machine has a fused one. W8x64 holds, for each of 16 lanes, 4 bytes that one dot instruction multiplies.
 */
#pragma once
#include "base/half.h"
#include <stddef.h>
#include <stdint.h>

enum { LANES = 16 };
#ifdef LW_SIMD_CALLS
#define SIMD_INLINE static inline
#else
#define SIMD_INLINE static inline __attribute__((always_inline))
#endif

/* Before loops over arrays that should become registers. The portable code has none to spare, only time to compile. */
#if defined(__AVX2__)
#define SIMD_UNROLL _Pragma("GCC unroll 16")
#else
#define SIMD_UNROLL
#endif

#if defined(__AVX512F__) && defined(__AVX512VNNI__)
#include "kernels/simd_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "kernels/simd_avx2.h"
#else
#include "kernels/simd_portable.h"
#endif

/* e^x within 2 units in the last place; infinities, NaN and subnormal results as expf gives them. */
SIMD_INLINE F32x16 f32x16_exp(F32x16 x)
{
    x = f32x16_max(f32x16_set1(-104.0f), x); /* the second operand wins when one is NaN */
    x = f32x16_min(f32x16_set1(89.0f), x);
    I32x16 n = i32x16_round(f32x16_mul(x, f32x16_set1(1.44269504f)));
    F32x16 nf = f32x16_from_i32(n);
    F32x16 r = f32x16_madd(nf, f32x16_set1(-0.693145752f), x); /* ln 2 in two parts, the first with 15 bits */
    r = f32x16_madd(nf, f32x16_set1(-1.42860677e-6f), r);
    F32x16 p = f32x16_set1(1.0f / 720);
    p = f32x16_madd(p, r, f32x16_set1(1.0f / 120));
    p = f32x16_madd(p, r, f32x16_set1(1.0f / 24));
    p = f32x16_madd(p, r, f32x16_set1(1.0f / 6));
    p = f32x16_madd(p, r, f32x16_set1(0.5f));
    p = f32x16_madd(p, r, f32x16_set1(1.0f));
    p = f32x16_madd(p, r, f32x16_set1(1.0f));
    I32x16 half = i32x16_halve(n); /* in two steps: 2^n alone may leave the range of exponents */
    return f32x16_mul(f32x16_mul(p, f32x16_pow2(half)), f32x16_pow2(i32x16_sub(n, half)));
}

/* cap * tanh(x / cap) */
SIMD_INLINE F32x16 f32x16_softcap(F32x16 x, float cap)
{
    const F32x16 one = f32x16_set1(1), two = f32x16_set1(2);
    F32x16 power = f32x16_exp(f32x16_mul(x, f32x16_set1(2 / cap)));
    return f32x16_mul(f32x16_set1(cap), f32x16_sub(one, f32x16_div(two, f32x16_add(power, one))));
}
