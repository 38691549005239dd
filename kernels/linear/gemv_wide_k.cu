/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/gemv_wide.cuh"

namespace lw
{

const GemvWideRow *gemv_wide_rows_k(uint32_t *n)
{
    static const GemvWideRow rows[] = {
        gemv_wide_row<Q2_K>(DTYPE_Q2_K), gemv_wide_row<Q3_K>(DTYPE_Q3_K), gemv_wide_row<Q4_K>(DTYPE_Q4_K),
        gemv_wide_row<Q5_K>(DTYPE_Q5_K), gemv_wide_row<Q6_K>(DTYPE_Q6_K), gemv_wide_row<IQ4_XS>(DTYPE_IQ4_XS),
    };
    *n = sizeof rows / sizeof *rows;
    return rows;
}

} // namespace lw
