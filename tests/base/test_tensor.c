/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tensor.h"

#include <criterion/criterion.h>

Test(tensor, sizes_of_types)
{
    static const struct {
        DType type;
        const char *name;
        uint64_t elements;
        size_t bytes;
    } rows[] = {
        {DTYPE_F32, "F32", 7, 28},      {DTYPE_F16, "F16", 7, 14},    {DTYPE_BF16, "BF16", 7, 14},
        {DTYPE_Q4_0, "Q4_0", 64, 36},   {DTYPE_Q4_1, "Q4_1", 64, 40}, {DTYPE_Q8_0, "Q8_0", 64, 68},
        {DTYPE_Q6_K, "Q6_K", 512, 420},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const DTypeInfo *info = dtype_info(rows[i].type);
        cr_assert_not_null(info);
        cr_expect_str_eq(info->name, rows[i].name);
        cr_expect_eq(dtype_row_bytes(rows[i].type, rows[i].elements), rows[i].bytes, "%s", info->name);
        cr_expect_eq(dtype_row_bytes(rows[i].type, 0), 0);
    }
}

Test(tensor, rows_beyond_4_gib)
{
    cr_expect_eq(dtype_row_bytes(DTYPE_F32, 1ull << 32), 1ull << 34);
    cr_expect_eq(dtype_row_bytes(DTYPE_Q8_0, 1ull << 35), (1ull << 30) * 34);
}

Test(tensor, unknown_types_have_no_info)
{
    cr_expect_null(dtype_info((DType)4));
    cr_expect_null(dtype_info((DType)-1));
    cr_expect_null(dtype_info((DType)1000));
}
