/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/table.h"

const KernelTable *kernels_cpu(void)
{
    return kernels_ref();
}

size_t attention_scratch_bytes(uint32_t n_workers, uint32_t n_heads, uint32_t head_dim, uint32_t max_context)
{
    (void)max_context;
    return (size_t)n_workers * n_heads * head_dim * sizeof(float) + 64;
}
