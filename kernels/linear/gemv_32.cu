/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/gemv_dot.cuh"

namespace lw
{

const GemvRow *gemv_rows_32(uint32_t *n)
{
    static const GemvRow rows[] = {gemv_row<Q8_0>(DTYPE_Q8_0),  gemv_row<Q4_0>(DTYPE_Q4_0),
                                   gemv_row<Q4_1>(DTYPE_Q4_1),  gemv_row<Q5_0>(DTYPE_Q5_0),
                                   gemv_row<Q5_1>(DTYPE_Q5_1),  gemv_row<IQ4_NL>(DTYPE_IQ4_NL),
                                   gemv_row<MXFP4>(DTYPE_MXFP4)};
    *n = sizeof rows / sizeof *rows;
    return rows;
}

} // namespace lw
