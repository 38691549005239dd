/* SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"
#include "kernels/linear/block_values.h"
#include "kernels/linear/dequant.h"
#include "tests/support/golden.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Random blocks give, bit for bit, the values that the gguf package makes of them (tests/golden/make_dequant.py). */

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    cr_assert(cJSON_IsNumber(item), "%s", name);
    return item->valuedouble;
}

static DType type_of(const cJSON *golden)
{
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(golden, "type"));
    for (uint32_t id = 0; id < 64; id++)
        if (dtype_info((DType)id) && !strcmp(dtype_info((DType)id)->name, name)) return (DType)id;
    cr_assert_fail("no type is named %s", name);
    return DTYPE_F32;
}

static uint8_t *random_blocks(const cJSON *golden, size_t n_blocks, size_t block_bytes)
{
    static const uint16_t extremes[] = {0x0001, 0x83FF, 0x7BFF, 0x8000};
    uint64_t seed = (uint64_t)number(golden, "seed"), state = seed;
    uint8_t *blocks = malloc(n_blocks * block_bytes);
    cr_assert_not_null(blocks);
    for (size_t i = 0; i < n_blocks * block_bytes; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        blocks[i] = (uint8_t)(state >> 56);
    }
    const cJSON *halves = cJSON_GetObjectItem(golden, "halves");
    for (int i = 0; i < cJSON_GetArraySize(halves); i++) {
        uint8_t *at = blocks + cJSON_GetArrayItem(halves, i)->valueint;
        for (size_t b = 0; b < n_blocks; b++) at[b * block_bytes + 1] &= 0xBF;
        memcpy(at + (n_blocks - 1) * block_bytes, &extremes[(seed + (uint64_t)i) % 4], 2);
    }
    return blocks;
}

static void check_type(const cJSON *golden)
{
    DType type = type_of(golden);
    const DTypeInfo *info = dtype_info(type);
    size_t n_blocks = (size_t)number(golden, "blocks"), n = n_blocks * info->block_elements;
    uint8_t *blocks = random_blocks(golden, n_blocks, info->block_bytes);
    float *y = malloc(n * sizeof *y);
    cr_assert_not_null(y);
    cr_assert(dequant_row_ref(type, blocks, y, n));
    size_t at = 0, step = (size_t)number(golden, "step");
    const cJSON *bits;
    cJSON_ArrayForEach(bits, cJSON_GetObjectItem(golden, "bits"))
    {
        cr_assert_eq(float_to_bits(y[at]), (uint32_t)bits->valuedouble, "%s: value %zu is %a, not %a", info->name, at,
                     (double)y[at], (double)float_from_bits((uint32_t)bits->valuedouble));
        at += step;
    }
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n * sizeof *y; i++) hash = (hash ^ ((const uint8_t *)y)[i]) * 0x100000001B3u;
    const char *wanted = cJSON_GetStringValue(cJSON_GetObjectItem(golden, "hash"));
    cr_assert_eq(hash, strtoull(wanted, NULL, 16), "%s: some value differs", info->name);
    free(blocks);
    free(y);
}

Test(test_dequant, every_format_as_the_reference_reads_it)
{
    cJSON *golden = golden_load("dequant.json");
    const cJSON *item;
    size_t n = 0, n_formats = 0;
    cJSON_ArrayForEach(item, golden)
    {
        check_type(item);
        n++;
    }
    for (uint32_t id = 0; id < 64; id++) n_formats += dtype_info((DType)id) != NULL;
    cr_assert_eq(n + 1, n_formats, "%zu types are known; beside F32 %zu have recorded values", n_formats, n);
    cJSON_Delete(golden);
}

Test(test_dequant, f32_and_the_infinities_of_halves)
{
    const float x[3] = {1, -2, INFINITY};
    float y[3] = {0};
    cr_assert(dequant_row_ref(DTYPE_F32, x, y, 3));
    cr_assert_arr_eq(x, y, sizeof x);
    cr_assert(dequant_row_ref(DTYPE_F16, (const uint16_t[]){0x7C00, 0xFC00, 0x7E00}, y, 3));
    cr_assert(y[0] == INFINITY && y[1] == -INFINITY && isnan(y[2]));
    cr_assert(dequant_row_ref(DTYPE_BF16, (const uint16_t[]){0x7F80, 0xFF80, 0x7FC0}, y, 3));
    cr_assert(y[0] == INFINITY && y[1] == -INFINITY && isnan(y[2]));
}

Test(test_dequant, unknown_type_is_refused)
{
    float y = 1;
    cr_assert_not(dequant_row_ref((DType)9, &y, &y, 1));
    cr_assert_null(block_format((DType)9));
    cr_assert_null(block_format(DTYPE_F16));
}

Test(test_dequant, names_of_all_ids)
{
    cr_assert_str_eq(dtype_name(DTYPE_MXFP4).text, "MXFP4");
    cr_assert_str_eq(dtype_name(16).text, "IQ2_XXS");
    cr_assert_str_eq(dtype_name(4).text, "type 4");
    cr_assert_str_eq(dtype_name(UINT32_MAX).text, "type 4294967295");
    cr_assert_null(dtype_info((DType)16));
    cr_assert_eq(dtype_known(16)->block_bytes, 66);
    cr_assert_null(dtype_known(5));
}
