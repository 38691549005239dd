/* SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"
#include "kernels/linear/dequant.h"
#include "tests/support/golden.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1024, MAX_VALUES = 1024 };

static size_t bytes_from_hex(const char *hex, uint8_t *bytes)
{
    size_t n = strlen(hex) / 2;
    cr_assert_leq(n, MAX_BYTES);
    for (size_t i = 0; i < n; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        bytes[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return n;
}

/* The recorded values multiply in another order than we do, so the last bit may differ: two scales and one quant. */
static bool within_a_bit(float got, uint32_t want_bits)
{
    float want = float_from_bits(want_bits);
    if (float_to_bits(got) == want_bits || got == want) return true;
    return fabsf(got - want) <= 0x1p-22f * fabsf(want);
}

static void check_row(const cJSON *row)
{
    static _Alignas(8) uint8_t bytes[MAX_BYTES];
    static float y[MAX_VALUES];
    DType type = (DType)cJSON_GetObjectItem(row, "type")->valueint;
    const cJSON *values = cJSON_GetObjectItem(row, "values"), *value;
    size_t n = (size_t)cJSON_GetArraySize(values), i = 0;
    cr_assert(n > 0 && n <= MAX_VALUES);
    size_t n_bytes = bytes_from_hex(cJSON_GetObjectItem(row, "bytes")->valuestring, bytes);
    cr_assert_eq(dtype_row_bytes(type, n), n_bytes);
    cr_assert(dequant_row_ref(type, bytes, y, n));
    cJSON_ArrayForEach(value, values)
    {
        uint32_t want = (uint32_t)strtoul(value->valuestring, NULL, 16);
        cr_assert(within_a_bit(y[i], want), "%s element %zu is %.9g, want %.9g", dtype_info(type)->name, i, y[i],
                  float_from_bits(want));
        i++;
    }
}

Test(test_dequant, values_equal_the_gguf_package)
{
    cJSON *rows = golden_load("dequant.json");
    const cJSON *row;
    cr_assert_eq(cJSON_GetArraySize(rows), 6);
    cJSON_ArrayForEach(row, rows) check_row(row);
    cJSON_Delete(rows);
}

Test(test_dequant, f32_is_copied_and_unknown_types_are_refused)
{
    const float x[3] = {1, -2, 3};
    float y[3] = {0};
    cr_assert(dequant_row_ref(DTYPE_F32, x, y, 3));
    cr_assert_eq(memcmp(x, y, sizeof x), 0);
    cr_assert_not(dequant_row_ref((DType)99, x, y, 3));
}
