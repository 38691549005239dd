/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/quant_tile.h"

/* The first n_rows lanes of acc [n_tokens, LANES] to rows r0 and up of y. */
static void put_rows(const MatmulOut *out, uint32_t r0, uint32_t n_rows, uint32_t t0, uint32_t n_tokens,
                     const float *acc)
{
    for (uint32_t j = 0; j < n_tokens; j++, acc += LANES) {
        float *y = out->y + (t0 + j) * out->y_stride + r0;
        if (n_rows == LANES) {
            F32x16 sum = f32x16_load(acc);
            if (out->bias) sum = f32x16_add(sum, f32x16_load(out->bias + r0));
            f32x16_store(y, out->accumulate ? f32x16_add(f32x16_load(y), sum) : sum);
            continue;
        }
        for (uint32_t r = 0; r < n_rows; r++) {
            float sum = out->bias ? acc[r] + out->bias[r0 + r] : acc[r];
            y[r] = out->accumulate ? y[r] + sum : sum;
        }
    }
}

static const struct {
    DType type;
    MultiplyGroup multiply;
} rows[] = {
    {DTYPE_Q4_0, ISA(multiply_q4_0)},     {DTYPE_Q4_1, ISA(multiply_q4_1)}, {DTYPE_Q5_0, ISA(multiply_q5_0)},
    {DTYPE_Q5_1, ISA(multiply_q5_1)},     {DTYPE_Q8_0, ISA(multiply_q8_0)}, {DTYPE_IQ4_NL, ISA(multiply_iq4_nl)},
    {DTYPE_MXFP4, ISA(multiply_mxfp4)},   {DTYPE_Q2_K, ISA(multiply_q2_k)}, {DTYPE_Q3_K, ISA(multiply_q3_k)},
    {DTYPE_Q4_K, ISA(multiply_q4_k)},     {DTYPE_Q5_K, ISA(multiply_q5_k)}, {DTYPE_Q6_K, ISA(multiply_q6_k)},
    {DTYPE_IQ4_XS, ISA(multiply_iq4_xs)},
};

static MultiplyGroup find_row(DType type)
{
    size_t i = 0;
    while (rows[i].type != type) i++; /* matmul_cpu.c has ruled out others */
    return rows[i].multiply;
}

void ISA(matmul_quant)(const MatmulOut *out, uint32_t group_index, const Activations *a, uint32_t t0, uint32_t n_tokens)
{
    float acc[MATMUL_TILE_TOKENS * LANES];
    MultiplyGroup multiply = find_row(out->type);
    RowGroup group = {.stride = dtype_row_bytes(out->type, a->n_cols)};
    uint32_t r0 = group_index * LANES, left = out->n_rows - r0;
    if (out->n_rows >= LANES) {
        uint32_t repeated = left < LANES ? LANES - left : 0; /* the last group reaches back over rows done before */
        group.base = (const uint8_t *)out->w + (r0 - repeated) * group.stride;
        multiply(&group, a, t0, n_tokens, acc);
        put_rows(out, r0, LANES - repeated, t0, n_tokens, acc + repeated);
        return;
    }
    for (uint32_t r = 0; r < left; r++) {
        RowGroup row = {.base = (const uint8_t *)out->w + r * group.stride, .stride = 0};
        multiply(&row, a, t0, n_tokens, acc);
        put_rows(out, r, 1, t0, n_tokens, acc);
    }
}
