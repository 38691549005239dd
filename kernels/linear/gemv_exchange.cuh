/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the blocks of a chain hand each other results: a value that is written tells by itself that it is there, since
 * its place held GEMV_NOT_THERE before. So whoever needs values just loads them until all are there; nothing waits for
 * a barrier or for writes to become visible in order. Each place is used once a kernel.
 */
#pragma once
#include "kernels/launch.cuh"
#include "kernels/linear/gemv_feed.cuh"

namespace lw
{

__device__ __forceinline__ bool is_there(float x)
{
    return __float_as_uint(x) != GEMV_NOT_THERE;
}

__device__ __forceinline__ bool is_there(float4 x)
{
    return is_there(x.x) && is_there(x.y) && is_there(x.z) && is_there(x.w);
}

__device__ __forceinline__ float load_handed(const float *from)
{
    float x;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(x) : "l"(from));
    return x;
}

__device__ __forceinline__ float4 load_handed_4(const float *from)
{
    float4 x;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "l"(from));
    return x;
}

/* A NaN that looks like nothing becomes another one. */
__device__ __forceinline__ void hand_over(float *to, float x)
{
    asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(to), "f"(is_there(x) ? x : NAN) : "memory");
}

/* Behind grid_wait(): the set of this kernel. */
__device__ __forceinline__ uint32_t exchange_turn(const GemvChain &chain)
{
    return __ldcg(&chain.shared->turn);
}

/* By all threads of all blocks: the set of the kernel in front is made ready for the one behind. */
__device__ __forceinline__ void exchange_clear(const GemvChain &chain, uint32_t turn)
{
    const uint32_t n = __ldcg(&chain.shared->used[turn ^ 1]), step = gridDim.x * worker_threads();
    uint4 *set = reinterpret_cast<uint4 *>(chain.sets + (size_t)(turn ^ 1) * GEMV_SET_FLOATS);
    for (uint32_t i = blockIdx.x * worker_threads() + threadIdx.x; 4 * i < n; i += step)
        set[i] = make_uint4(GEMV_NOT_THERE, GEMV_NOT_THERE, GEMV_NOT_THERE, GEMV_NOT_THERE);
    if (blockIdx.x == 0 && threadIdx.x == 0) chain.shared->used[turn] = chain.n_floats;
}

/* All blocks have read whose turn it is when the last one leaves. */
__device__ __forceinline__ void exchange_leave(const GemvChain &chain, uint32_t turn)
{
    sync_workers();
    if (threadIdx.x == 0 && atomicInc(&chain.shared->n_left, gridDim.x - 1) == gridDim.x - 1)
        chain.shared->turn = turn ^ 1;
}

} // namespace lw
