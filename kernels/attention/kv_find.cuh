/* SPDX-License-Identifier: Apache-2.0 */
/* Which page a block works on, where spans that only the device reads have some each. */
#pragma once
#include "kernels/attention/kv_device.cuh"

namespace
{

/*
 * The index-th page of all spans, of which count(span) are each one's: one thread calls found(span, its number there).
 * False past the last. scratch [kMaxWarps]. All threads call, and meet.
 */
template <class Count, class Found>
__device__ bool find_page_of(const KvSpan *spans, uint32_t n_spans, uint64_t index, uint64_t *scratch, Count count,
                             Found found)
{
    uint32_t each = (n_spans + blockDim.x - 1) / blockDim.x, from = threadIdx.x * each, to = min(from + each, n_spans);
    uint64_t own = 0, total;
    for (uint32_t s = from; s < to; s++) own += count(spans[s]);
    uint64_t before = block_prefix(own, scratch, &total);
    if (index >= before && index < before + own) {
        uint32_t s = from, n;
        for (; index >= before + (n = count(spans[s])); s++) before += n;
        found(spans[s], (uint32_t)(index - before));
    }
    __syncthreads();
    return index < total;
}

} // namespace
