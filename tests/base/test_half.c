/* SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"

#include <criterion/criterion.h>
#include <math.h>

/* The value of binary16 bits by its definition. */
static double f16_value(uint32_t bits)
{
    uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
    double magnitude = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, (int)exponent - 25);
    if (exponent == 31) magnitude = fraction ? NAN : INFINITY;
    return bits & 0x8000 ? -magnitude : magnitude;
}

Test(test_half, every_f16_goes_there_and_back)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        double want = f16_value(bits);
        float got = f32_from_f16((uint16_t)bits);
        uint16_t back = f16_from_f32(got);
        if (isnan(want)) {
            cr_assert(isnan(got) && isnan(f16_value(back)), "0x%04x", bits);
            continue;
        }
        cr_assert(got == want && !signbit(got) == !signbit(want), "0x%04x is %g, want %g", bits, got, want);
        cr_assert_eq(back, bits, "0x%04x came back as 0x%04x", bits, back);
    }
}

/* Between two neighbours the nearer wins, in the middle the even one. */
Test(test_half, f16_rounds_to_nearest_even)
{
    for (uint32_t bits = 0; bits < 0x7BFF; bits++) {
        double low = f16_value(bits), high = f16_value(bits + 1);
        float middle = (float)((low + high) / 2);
        cr_assert_eq(f16_from_f32(middle), bits + (bits & 1), "above 0x%04x", bits);
        cr_assert_eq(f16_from_f32(nextafterf(middle, -1)), bits, "above 0x%04x", bits);
        cr_assert_eq(f16_from_f32(-nextafterf(middle, INFINITY)), 0x8000 | (bits + 1), "above 0x%04x", bits);
    }
    cr_assert_eq(f16_from_f32(65519.99f), 0x7BFF);
    cr_assert_eq(f16_from_f32(65520.0f), 0x7C00);
    cr_assert_eq(f16_from_f32(1e-10f), 0);
}

Test(test_half, bf16)
{
    for (uint32_t bits = 0; bits < 0x7F80; bits++) {
        float low = f32_from_bf16((uint16_t)bits), middle = float_from_bits(bits << 16 | 0x8000);
        cr_assert_eq(bf16_from_f32(low), bits);
        cr_assert_eq(bf16_from_f32(middle), bits + (bits & 1));
        cr_assert_eq(bf16_from_f32(-float_from_bits(bits << 16 | 0x8001)), 0x8000 | (bits + 1));
    }
    cr_assert(isnan(f32_from_bf16(bf16_from_f32(float_from_bits(0x7F800001)))), "a NaN with low bits only stays NaN");
    cr_assert(isinf(f32_from_bf16(bf16_from_f32(INFINITY))));
}
