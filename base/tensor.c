/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tensor.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct TypeRow {
    uint32_t id;
    DTypeInfo info;
} TypeRow;

/* One row a type; the block layouts stand in kernels/linear/blocks.h. */
static const TypeRow types[] = {
    {DTYPE_F32, {"F32", 1, 4}},           {DTYPE_F16, {"F16", 1, 2}},       {DTYPE_BF16, {"BF16", 1, 2}},
    {DTYPE_Q4_0, {"Q4_0", 32, 18}},       {DTYPE_Q4_1, {"Q4_1", 32, 20}},   {DTYPE_Q5_0, {"Q5_0", 32, 22}},
    {DTYPE_Q5_1, {"Q5_1", 32, 24}},       {DTYPE_Q8_0, {"Q8_0", 32, 34}},   {DTYPE_IQ4_NL, {"IQ4_NL", 32, 18}},
    {DTYPE_MXFP4, {"MXFP4", 32, 17}},     {DTYPE_Q2_K, {"Q2_K", 256, 84}},  {DTYPE_Q3_K, {"Q3_K", 256, 110}},
    {DTYPE_Q4_K, {"Q4_K", 256, 144}},     {DTYPE_Q5_K, {"Q5_K", 256, 176}}, {DTYPE_Q6_K, {"Q6_K", 256, 210}},
    {DTYPE_IQ4_XS, {"IQ4_XS", 256, 136}},
};

/* Formats of the file that nothing here computes with. */
static const TypeRow listed_only[] = {
    {9, {"Q8_1", 32, 36}},      {15, {"Q8_K", 256, 292}}, {16, {"IQ2_XXS", 256, 66}}, {17, {"IQ2_XS", 256, 74}},
    {18, {"IQ3_XXS", 256, 98}}, {19, {"IQ1_S", 256, 50}}, {21, {"IQ3_S", 256, 110}},  {22, {"IQ2_S", 256, 82}},
    {24, {"I8", 1, 1}},         {25, {"I16", 1, 2}},      {26, {"I32", 1, 4}},        {27, {"I64", 1, 8}},
    {28, {"F64", 1, 8}},        {29, {"IQ1_M", 256, 56}}, {34, {"TQ1_0", 256, 54}},   {35, {"TQ2_0", 256, 66}},
    {40, {"NVFP4", 64, 36}},    {41, {"Q1_0", 128, 18}},
};

static const DTypeInfo *find(const TypeRow *rows, size_t n, uint32_t id)
{
    for (size_t i = 0; i < n; i++)
        if (rows[i].id == id) return &rows[i].info;
    return NULL;
}

const DTypeInfo *dtype_info(DType type)
{
    return find(types, sizeof types / sizeof *types, type);
}

const DTypeInfo *dtype_known(uint32_t id)
{
    const DTypeInfo *info = dtype_info((DType)id);
    return info ? info : find(listed_only, sizeof listed_only / sizeof *listed_only, id);
}

DTypeName dtype_name(uint32_t id)
{
    DTypeName name;
    const DTypeInfo *info = dtype_known(id);
    if (info)
        snprintf(name.text, sizeof name.text, "%s", info->name);
    else
        snprintf(name.text, sizeof name.text, "type %" PRIu32, id);
    return name;
}

size_t dtype_row_bytes(DType type, uint64_t n)
{
    const DTypeInfo *info = dtype_info(type);
    return n / info->block_elements * info->block_bytes;
}
