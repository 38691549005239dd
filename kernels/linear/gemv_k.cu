/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/gemv_dot.cuh"

namespace lw
{

const GemvRow *gemv_rows_k(uint32_t *n)
{
    static const GemvRow rows[] = {gemv_row<Q2_K>(DTYPE_Q2_K), gemv_row<Q3_K>(DTYPE_Q3_K),
                                   gemv_row<Q4_K>(DTYPE_Q4_K), gemv_row<Q5_K>(DTYPE_Q5_K),
                                   gemv_row<Q6_K>(DTYPE_Q6_K), gemv_row<IQ4_XS>(DTYPE_IQ4_XS)};
    *n = sizeof rows / sizeof *rows;
    return rows;
}

} // namespace lw
