/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building blocks of the CUDA attention kernels: copies into shared memory, matrix instructions of 16-bit numbers, and
 * the fragments that they take from stored keys and values (lane = 4 g + t, as in the PTX manual's figures).
 *
 * Stored integers go into the products as they are, exact in f16; a token's scale and zero are applied to the score
 * and to the weight. e4m3 becomes f16 by a shift that leaves it 2^-8 too small (kRawScale).
 */
#pragma once
#include "kernels/attention/attend.h"
#include "kernels/attention/kv_device.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace
{

constexpr float kLog2e = 1.44269504088896340736f;

template <KvType type> struct Format {
    static constexpr unsigned kBits = type == KV_INT4 ? 4 : type == KV_INT8 || type == KV_F8 ? 8 : 16;
    static constexpr bool kQuantised = kBits < 16;
    static constexpr bool kBf16 = type == KV_BF16; /* of the products; f16 otherwise */
    static constexpr float kRawScale = type == KV_F8 ? 256 : 1;
};

/* One sector in memory, and in a stage of shared memory: the same but for values, see value_offset. */
template <KvType type, int dim> struct Sector {
    static constexpr unsigned kKBytes = KV_SECTOR_TOKENS * dim * Format<type>::kBits / 8;
    static constexpr unsigned kVRowBytes = dim * Format<type>::kBits / 8;
    static constexpr unsigned kScaleBytes = Format<type>::kQuantised ? 2 * KV_SECTOR_TOKENS * sizeof(KvScale) : 0;
    static constexpr unsigned kScaleFrom = kKBytes + KV_SECTOR_TOKENS * kVRowBytes;
    static constexpr unsigned kBytes = kScaleFrom + kScaleBytes;
};

/* Of a sector's keys, those that hold the first n_steps times 16 channels: of 4 bits, 32 channels lie together. */
template <KvType type, int dim> __device__ inline unsigned key_bytes(unsigned n_steps)
{
    constexpr unsigned kEach = Format<type>::kBits == 4 ? 2 : 1, kStep = Sector<type, dim>::kKBytes / (dim / 16);
    return (n_steps + kEach - 1) / kEach * kEach * kStep;
}

/*
 * The sums of a row's first 16, 32, ... channels, which zeros of keys are multiplied by where bands cut, to ret
 * [dim / 16]. By a warp; lane i has channels 32 k + i.
 */
template <int dim> __device__ inline void put_cut_sums(const float x[dim / 32], float *ret)
{
    float before = 0;
    for (int k = 0; k < dim / 32; k++) {
        float own = x[k];
        for (unsigned step = 8; step; step /= 2) own += __shfl_xor_sync(kAllLanes, own, step);
        float next = __shfl_xor_sync(kAllLanes, own, 16); /* lane 0: the first 16 channels are its own */
        if (threadIdx.x % kWarp == 0) {
            ret[2 * k] = before + own;
            ret[2 * k + 1] = before + own + next;
        }
        before += own + next;
    }
}

/*
 * Where byte `byte` of a token's values lies in shared memory. Pieces of 16 bytes change places, so that those of 8
 * tokens meet no bank twice, but within 128 bytes: a copy whose lines come apart fetches its sectors more than once.
 */
template <unsigned row_bytes> __device__ inline unsigned value_offset(unsigned token, unsigned byte)
{
    constexpr unsigned kPieces = row_bytes / 16, kShift = kPieces == 32 ? 5 : kPieces == 16 ? 4 : 3;
    unsigned piece = token * kPieces + byte / 16;
    return (piece ^ (piece >> kShift & 7)) * 16 + byte % 16;
}

__device__ inline unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

__device__ inline void copy_16(void *to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

__device__ inline void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most n groups of this thread's copies are under way. */
template <int n> __device__ inline void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}

__device__ inline void load_matrices(uint32_t ret[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(ret[0]), "=r"(ret[1]), "=r"(ret[2]), "=r"(ret[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ inline void load_matrices_transposed(uint32_t ret[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(ret[0]), "=r"(ret[1]), "=r"(ret[2]), "=r"(ret[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ inline uint32_t transpose_matrix(uint32_t x)
{
    uint32_t y;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

template <bool bf16> __device__ inline void multiply(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    if (bf16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#define ATTEND_MMA_IF(type)                                                                                            \
    "{.reg .pred q; setp.ne.u32 q, %10, 0; @q mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "            \
    "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};}"

/* Where `is_asked`, of all lanes alike. */
template <bool bf16>
__device__ inline void multiply_if(bool is_asked, float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    if (bf16)
        asm(ATTEND_MMA_IF("bf16")
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"((uint32_t)is_asked));
    else
        asm(ATTEND_MMA_IF("f16")
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"((uint32_t)is_asked));
}

#undef ATTEND_MMA_IF

__device__ inline float exp2_of(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* cap tanh(x) log2 e, within 1e-6 cap: of a score that was divided by cap. */
__device__ inline float capped(float x, float cap)
{
    return cap * kLog2e * (1 - __fdividef(2, 1 + exp2_of(2 * kLog2e * x)));
}

/* Of a power of 2. */
__device__ inline float inverse_of(float power)
{
    return __uint_as_float(0x7F000000u - __float_as_uint(power));
}

/* Two numbers as 16-bit ones, x in the low half; and what that rounding left over. */
template <bool bf16> __device__ inline uint32_t pack(float x, float y)
{
    if (bf16) {
        __nv_bfloat162 h = __floats2bfloat162_rn(x, y);
        return *(uint32_t *)&h;
    }
    __half2 h = __floats2half2_rn(x, y);
    return *(uint32_t *)&h;
}

template <bool bf16> __device__ inline float2 unpack(uint32_t h)
{
    return bf16 ? __bfloat1622float2(*(__nv_bfloat162 *)&h) : __half22float2(*(__half2 *)&h);
}

template <bool bf16> __device__ inline uint32_t pack_rest(float x, float y, uint32_t h)
{
    float2 rounded = unpack<bf16>(h);
    return pack<bf16>(x - rounded.x, y - rounded.y);
}

__device__ inline uint32_t minus_1024(uint32_t h)
{
    __half2 x = __hsub2(*(__half2 *)&h, __half2half2(__ushort_as_half(0x6400)));
    return *(uint32_t *)&x;
}

/* Bytes 0 and 2 of x as two f16 numbers; those of int8 as integers. */
template <KvType type> __device__ inline uint32_t halves_from_bytes(uint32_t x)
{
    if (type == KV_F8) {
        uint32_t high = x << 8;
        return (high & 0x80008000u) | ((high >> 1) & 0x3F803F80u);
    }
    return minus_1024((x & 0x00FF00FFu) | 0x64006400u);
}

/* The i-th nibble of either half of x. */
__device__ inline uint32_t halves_from_nibbles(uint32_t x, int i)
{
    return minus_1024((x >> 4 * i & 0x000F000Fu) | 0x64006400u);
}

/* Where a channel stands in a product over channels: element i (0..3) of lanes with that t, in step s. */
struct KeyPlace {
    int s, t, i;
};

/* What keys of the type are cheapest to unpack to. */
template <KvType type> __device__ inline KeyPlace key_place(int channel)
{
    int c = channel % 16, n = channel % 8;
    if (Format<type>::kBits == 16) return {channel / 16, n / 2, c % 2 + c / 8 * 2};
    if (Format<type>::kBits == 8) return {channel / 16, c / 4, c % 2 * 2 + c / 2 % 2};
    return {channel / 32 * 2 + n / 2 % 2, channel % 32 / 8, n / 4 + n % 2 * 2};
}

/* The keys of a stage as A [16 tokens, 16 channels] of step s. */
template <KvType type> __device__ inline void keys_of(uint32_t a[4], const char *stage, int s)
{
    unsigned lane = threadIdx.x % kWarp;
    if constexpr (Format<type>::kBits == 16) {
        load_matrices(a, stage + s * 512 + lane * 16);
    } else {
        constexpr bool kBytes = Format<type>::kBits == 8;
        const uint32_t *words = (const uint32_t *)(stage + (kBytes ? s : s / 2) * 256) + lane;
        for (int half = 0; half < 2; half++) {
            uint32_t x = words[half * 32];
            a[half] = kBytes ? halves_from_bytes<type>(x) : halves_from_nibbles(x, s % 2 * 2);
            a[half + 2] = kBytes ? halves_from_bytes<type>(x >> 8) : halves_from_nibbles(x, s % 2 * 2 + 1);
        }
    }
}

/* The channel that stands in row r of the values' tile m, by 32 channels in which each g holds 4 neighbours or not. */
template <bool quads> __host__ __device__ constexpr int value_channel(int m, int r)
{
    return quads ? m / 2 * 32 + 4 * (r % 8) + 2 * (m % 2) + r / 8 : m * 16 + r;
}

/* 4 neighbouring channels of two tokens as pairs of tokens, a register a channel. */
template <KvType type> __device__ inline void pair_values(uint32_t ret[4], const char *x, const char *y)
{
    if constexpr (Format<type>::kBits == 16) {
        uint2 from = *(const uint2 *)x, and_from = *(const uint2 *)y;
        ret[0] = __byte_perm(from.x, and_from.x, 0x5410);
        ret[1] = __byte_perm(from.x, and_from.x, 0x7632);
        ret[2] = __byte_perm(from.y, and_from.y, 0x5410);
        ret[3] = __byte_perm(from.y, and_from.y, 0x7632);
    } else if constexpr (Format<type>::kBits == 8) {
        uint32_t from = *(const uint32_t *)x, and_from = *(const uint32_t *)y;
        uint32_t even = __byte_perm(from, and_from, 0x6420), odd = __byte_perm(from, and_from, 0x7531);
        ret[0] = halves_from_bytes<type>(even);
        ret[1] = halves_from_bytes<type>(odd);
        ret[2] = halves_from_bytes<type>(even >> 8);
        ret[3] = halves_from_bytes<type>(odd >> 8);
    } else {
        uint32_t both = *(const uint16_t *)x | (uint32_t) * (const uint16_t *)y << 16;
        for (int i = 0; i < 4; i++) ret[i] = halves_from_nibbles(both, i);
    }
}

/* Channels 32 j and up of a stage's values as two A [16 channels, 16 tokens]. Formats below 16 bits have quads. */
template <KvType type, int dim, bool quads>
__device__ inline void values_of(uint32_t a[2][4], const char *values, int j)
{
    constexpr unsigned kRow = Sector<type, dim>::kVRowBytes;
    unsigned lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
    if constexpr (!quads) {
        unsigned token = lane % 8 + lane / 16 * 8, byte = j * 64 + lane / 8 % 2 * 16;
        load_matrices_transposed(a[0], values + value_offset<kRow>(token, byte));
        load_matrices_transposed(a[1], values + value_offset<kRow>(token, byte + 32));
    } else {
        for (int half = 0; half < 2; half++) {
            unsigned token = 2 * t + 8 * half, byte = (j * 32 + 4 * g) * Format<type>::kBits / 8;
            const char *x = values + value_offset<kRow>(token, byte), *y = values + value_offset<kRow>(token + 1, byte);
            uint32_t channels[4];
            pair_values<type>(channels, x, y);
            for (int i = 0; i < 4; i++) a[i / 2][2 * half + i % 2] = channels[i];
        }
    }
}

} // namespace
