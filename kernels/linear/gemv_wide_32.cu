/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/gemv_wide.cuh"

namespace lw
{

const GemvWideRow *gemv_wide_rows_32(uint32_t *n)
{
    static const GemvWideRow rows[] = {
        gemv_wide_row<Q8_0>(DTYPE_Q8_0),   gemv_wide_row<Q4_0>(DTYPE_Q4_0), gemv_wide_row<Q4_1>(DTYPE_Q4_1),
        gemv_wide_row<Q5_0>(DTYPE_Q5_0),   gemv_wide_row<Q5_1>(DTYPE_Q5_1), gemv_wide_row<IQ4_NL>(DTYPE_IQ4_NL),
        gemv_wide_row<MXFP4>(DTYPE_MXFP4),
    };
    *n = sizeof rows / sizeof *rows;
    return rows;
}

} // namespace lw
