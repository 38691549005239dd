/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/gemv_dot.cuh"

namespace lw
{

const GemvRow *gemv_rows_float(uint32_t *n)
{
    static const GemvRow rows[] = {gemv_row<Plain<false>>(DTYPE_F16), gemv_row<Plain<true>>(DTYPE_BF16)};
    *n = sizeof rows / sizeof *rows;
    return rows;
}

} // namespace lw
