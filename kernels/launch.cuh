/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How every kernel is launched: chained to the one before it by programmatic dependent launch where the device has it.
 * A kernel may start while its predecessor still runs, so it calls grid_wait() before it touches anything that an
 * earlier kernel writes or still reads, and grid_release() when its successor may start (at once, since the successor
 * waits for its end, or when it has fetched all it needs: then they don't compete). Every kernel must call
 * grid_wait(), or those behind it would overtake what is before it.
 */
#pragma once
#include "kernels/device_facts.h"
#include "kernels/linear/matmul_queue.h"
#include "kernels/stream.h"

#include <cuda_runtime.h>

namespace lw
{

__device__ __forceinline__ void grid_wait()
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

__device__ __forceinline__ void grid_release()
{
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/* False: no device facts, a grid beyond the device's limits, or an error of the launch. */
template <class... Params, class... Args>
bool launch(void (*kernel)(Params...), dim3 grid, unsigned n_threads, size_t shared_bytes, Stream stream, Args... args)
{
    const DeviceFacts *facts = device_facts();
    if (!matmul_queue_send(stream)) return false;
    if (!facts || grid.y > 65535 || grid.z > 65535 || grid.x > 0x7FFFFFFFu) return false;
    cudaLaunchAttribute attributes[2];
    attributes[0].id =
        cudaLaunchAttributePreferredSharedMemoryCarveout; /* a change waits for an empty multiprocessor */
    attributes[0].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(n_threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = (cudaStream_t)stream.native;
    config.attrs = attributes;
    config.numAttrs = facts->has_dependent_launch ? 2 : 1;
    return cudaLaunchKernelEx(&config, kernel, Params(args)...) == cudaSuccess;
}

/* Blocks for n items, at most `most`; the rest is done by striding. */
inline unsigned blocks_for(size_t n, size_t per_block, size_t most)
{
    size_t blocks = (n + per_block - 1) / per_block;
    return (unsigned)(blocks < most ? blocks : most);
}

} // namespace lw
