/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What compute capability 9.0 alone has, for files compiled for sm_90a: barriers in shared memory that count bytes,
 * bulk copies, registers that move between warp groups, and the matrix product of a warp group (wgmma).
 *
 * A product runs on while its group goes on: its registers (A, accumulators) may be touched only behind matrix_wait.
 * B lies in shared memory in 8 x 16 byte cores; matrix_b says how they follow one another.
 */
#pragma once
#include <cstdint>

namespace lw
{

constexpr unsigned kGroupThreads = 128; /* of a warp group */

__device__ __forceinline__ uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void barrier_init(uint64_t *barrier, uint32_t n_arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_at(barrier)), "r"(n_arrivals) : "memory");
}

/* After all barrier_init of a thread, before the threads that use them are let go. */
__device__ __forceinline__ void barrier_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(barrier)) : "memory");
}

/* Arrives, and has the phase wait for that many bytes of bulk copies. */
__device__ __forceinline__ void barrier_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(barrier)), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    uint32_t is_done;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(is_done)
                     : "r"(shared_at(barrier)), "r"(parity)
                     : "memory");
    } while (!is_done);
}

/* bytes, to and from: multiples of 16. */
__device__ __forceinline__ void bulk_copy(void *to, const void *from, uint32_t bytes, uint64_t *barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_at(to)),
        "l"(from), "r"(bytes), "r"(shared_at(barrier))
        : "memory");
}

/* What this thread stored in shared memory is seen by products and bulk copies of whom it lets go next. */
__device__ __forceinline__ void fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template <unsigned n> __device__ __forceinline__ void registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}

template <unsigned n> __device__ __forceinline__ void registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}

/* Barriers of the hardware, 1..15, among n_threads. */
__device__ __forceinline__ void named_wait(unsigned id, unsigned n_threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

__device__ __forceinline__ void named_arrive(unsigned id, unsigned n_threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

__device__ __forceinline__ bool named_or(unsigned id, unsigned n_threads, bool x)
{
    uint32_t any;
    asm volatile("{\n"
                 ".reg .pred p, q;\n"
                 "setp.ne.u32 p, %3, 0;\n"
                 "bar.red.or.pred q, %1, %2, p;\n"
                 "selp.u32 %0, 1, 0, q;\n"
                 "}"
                 : "=r"(any)
                 : "r"(id), "r"(n_threads), "r"((uint32_t)x)
                 : "memory");
    return any;
}

/*
 * B in shared memory. Swizzled: rows of 128 bytes, the i-th of eight with its 16-byte pieces at p ^ i; else each core
 * is 128 bytes in one piece. lead, stride, in bytes: rows along N (not transposed, plain): from one 16 bytes of K to
 * the next; from 8 of N to the next 8 rows along K (transposed, swizzled): from one 64 of N to the next; from 8 of K to
 * the next 8
 */
__device__ __forceinline__ uint64_t matrix_b(const void *at, uint32_t lead, uint32_t stride, bool is_swizzled)
{
    return (uint64_t)(shared_at(at) >> 4 & 0x3FFF) | (uint64_t)(lead >> 4) << 16 | (uint64_t)(stride >> 4) << 32 |
           (uint64_t)is_swizzled << 62;
}

/* Before the first product, and after any other use of its registers. */
__device__ __forceinline__ void matrix_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void matrix_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* All but the last n groups of products are done: x is theirs. */
template <int n, int size> __device__ __forceinline__ void matrix_wait(float (&x)[size])
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
#pragma unroll
    for (int i = 0; i < size; i++) asm volatile("" : "+f"(x[i])::"memory");
}

#define LW_EIGHT(c, d, i)                                                                                              \
    c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3]), c(d[i + 4]), c(d[i + 5]), c(d[i + 6]), c(d[i + 7])
#define LW_N64_IF(type)                                                                                                \
    "{\n.reg .pred q;\nsetp.ne.u32 q, %38, 0;\n"                                                                       \
    "@q wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " "                                                 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "  \
    "%24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, 1, 1, 1, %37;\n}"
#define LW_N64(type, adds)                                                                                             \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " #adds ", 0;\n"                                                                 \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " "                                                    \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "  \
    "%24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, %37;\n}"
#define LW_N128(type, adds)                                                                                            \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " #adds ", 0;\n"                                                                 \
    "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " "                                                   \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "  \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "   \
    "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "                      \
    "{%64, %65, %66, %67}, %68, p, 1, 1, %69;\n}"
#define LW_HALF(c, d, i) LW_EIGHT(c, d, i), LW_EIGHT(c, d, i + 8), LW_EIGHT(c, d, i + 16), LW_EIGHT(c, d, i + 24)
#define LW_INPUTS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(transposed)

/*
 * d [64, n] (+)= a [64, 16] b [16, n], rows of a and d 16 to a warp, with the lanes of mma.m16n8k16. adds: else what d
 * was does not count. transposed: b has its rows along K.
 */
template <bool bf16, bool transposed, bool adds>
__device__ __forceinline__ void matrix_multiply(float (&d)[32], const uint32_t (&a)[4], uint64_t b)
{
    if constexpr (adds && bf16)
        asm volatile(LW_N64("bf16", 1) : LW_HALF("+f", d, 0) : LW_INPUTS);
    else if constexpr (adds)
        asm volatile(LW_N64("f16", 1) : LW_HALF("+f", d, 0) : LW_INPUTS);
    else if constexpr (bf16)
        asm volatile(LW_N64("bf16", 0) : LW_HALF("=f", d, 0) : LW_INPUTS);
    else
        asm volatile(LW_N64("f16", 0) : LW_HALF("=f", d, 0) : LW_INPUTS);
}

/* d += a b where `is_asked`, of all threads alike. */
template <bool bf16>
__device__ __forceinline__ void matrix_multiply_if(bool is_asked, float (&d)[32], const uint32_t (&a)[4], uint64_t b)
{
    constexpr int transposed = 0;
    if constexpr (bf16)
        asm volatile(LW_N64_IF("bf16") : LW_HALF("+f", d, 0) : LW_INPUTS, "r"((uint32_t)is_asked));
    else
        asm volatile(LW_N64_IF("f16") : LW_HALF("+f", d, 0) : LW_INPUTS, "r"((uint32_t)is_asked));
}

template <bool bf16, bool transposed, bool adds>
__device__ __forceinline__ void matrix_multiply(float (&d)[64], const uint32_t (&a)[4], uint64_t b)
{
    if constexpr (adds && bf16)
        asm volatile(LW_N128("bf16", 1) : LW_HALF("+f", d, 0), LW_HALF("+f", d, 32) : LW_INPUTS);
    else if constexpr (adds)
        asm volatile(LW_N128("f16", 1) : LW_HALF("+f", d, 0), LW_HALF("+f", d, 32) : LW_INPUTS);
    else if constexpr (bf16)
        asm volatile(LW_N128("bf16", 0) : LW_HALF("=f", d, 0), LW_HALF("=f", d, 32) : LW_INPUTS);
    else
        asm volatile(LW_N128("f16", 0) : LW_HALF("=f", d, 0), LW_HALF("=f", d, 32) : LW_INPUTS);
}

#undef LW_EIGHT
#undef LW_N64
#undef LW_N64_IF
#undef LW_N128
#undef LW_HALF
#undef LW_INPUTS

} // namespace lw
