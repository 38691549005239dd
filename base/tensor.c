/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tensor.h"

/* One row a type; the block layouts stand in kernels/linear/blocks.h. */
static const struct {
    DType type;
    DTypeInfo info;
} types[] = {
    {DTYPE_F32, {"F32", 1, 4}},      {DTYPE_F16, {"F16", 1, 2}},      {DTYPE_BF16, {"BF16", 1, 2}},
    {DTYPE_Q4_0, {"Q4_0", 32, 18}},  {DTYPE_Q4_1, {"Q4_1", 32, 20}},  {DTYPE_Q8_0, {"Q8_0", 32, 34}},
    {DTYPE_Q6_K, {"Q6_K", 256, 210}},
};

const DTypeInfo *dtype_info(DType type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type) return &types[i].info;
    return NULL;
}

size_t dtype_row_bytes(DType type, uint64_t n)
{
    const DTypeInfo *info = dtype_info(type);
    return n / info->block_elements * info->block_bytes;
}
