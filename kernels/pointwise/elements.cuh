/* SPDX-License-Identifier: Apache-2.0 */
/* One element of a GGUF block as it lies in the file (blocks.h), in the arithmetic of dequant_row_ref. */
#pragma once
#include "kernels/linear/blocks.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace lw
{

__device__ __forceinline__ float from_f16(uint16_t bits)
{
    return __half2float(__ushort_as_half(bits));
}

/* (d * scale) * q - m * min, each product rounded by itself as in the reference. */
__device__ __forceinline__ float value_of(float d, int scale, int q, float m, int min)
{
    return __fsub_rn(__fmul_rn(__fmul_rn(d, (float)scale), (float)q), __fmul_rn(m, (float)min));
}

__device__ __forceinline__ int nibble_of(const uint8_t *quants, uint32_t i)
{
    return quants[i % 16] >> i / 16 * 4 & 15;
}

__device__ __forceinline__ int iq4_value(int code)
{
    constexpr int8_t kValues[16] = BLOCK_IQ4_VALUES;
    return kValues[code];
}

__device__ __forceinline__ int mxfp4_value(int code)
{
    constexpr int8_t kValues[16] = BLOCK_MXFP4_VALUES;
    return kValues[code];
}

template <class Block> struct Elements;

template <> struct Elements<float> {
    static constexpr uint32_t kCount = 1;
    static __device__ float at(const float &x, uint32_t)
    {
        return x;
    }
};

template <> struct Elements<__half> {
    static constexpr uint32_t kCount = 1;
    static __device__ float at(const __half &x, uint32_t)
    {
        return __half2float(x);
    }
};

template <> struct Elements<__nv_bfloat16> {
    static constexpr uint32_t kCount = 1;
    static __device__ float at(const __nv_bfloat16 &x, uint32_t)
    {
        return __bfloat162float(x);
    }
};

template <> struct Elements<BlockQ4_0> {
    static constexpr uint32_t kCount = BLOCK_32;
    static __device__ float at(const BlockQ4_0 &block, uint32_t i)
    {
        return from_f16(block.d) * (float)(nibble_of(block.quants, i) - 8);
    }
};

template <> struct Elements<BlockQ4_1> {
    static constexpr uint32_t kCount = BLOCK_32;
    static __device__ float at(const BlockQ4_1 &block, uint32_t i)
    {
        return value_of(from_f16(block.d), 1, nibble_of(block.quants, i), from_f16(block.m), -1);
    }
};

template <> struct Elements<BlockQ5_0> {
    static constexpr uint32_t kCount = BLOCK_32;
    static __device__ float at(const BlockQ5_0 &block, uint32_t i)
    {
        int q = nibble_of(block.quants, i) | (block.high[i / 8] >> i % 8 & 1) << 4;
        return from_f16(block.d) * (float)(q - 16);
    }
};

template <> struct Elements<BlockQ5_1> {
    static constexpr uint32_t kCount = BLOCK_32;
    static __device__ float at(const BlockQ5_1 &block, uint32_t i)
    {
        int q = nibble_of(block.quants, i) | (block.high[i / 8] >> i % 8 & 1) << 4;
        return value_of(from_f16(block.d), 1, q, from_f16(block.m), -1);
    }
};

template <> struct Elements<BlockQ8_0> {
    static constexpr uint32_t kCount = BLOCK_32;
    static __device__ float at(const BlockQ8_0 &block, uint32_t i)
    {
        return from_f16(block.d) * (float)block.quants[i];
    }
};

template <> struct Elements<BlockIQ4_NL> {
    static constexpr uint32_t kCount = BLOCK_32;
    static __device__ float at(const BlockIQ4_NL &block, uint32_t i)
    {
        return from_f16(block.d) * (float)iq4_value(nibble_of(block.quants, i));
    }
};

template <> struct Elements<BlockMXFP4> {
    static constexpr uint32_t kCount = BLOCK_32;
    static __device__ float at(const BlockMXFP4 &block, uint32_t i)
    {
        uint32_t bits = block.exponent < 2 ? 0x00200000u << block.exponent : (uint32_t)(block.exponent - 1) << 23;
        return __uint_as_float(bits) * (float)mxfp4_value(nibble_of(block.quants, i));
    }
};

__device__ __forceinline__ int two_bits_of(const uint8_t *quants, uint32_t i)
{
    return quants[i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
}

template <> struct Elements<BlockQ2_K> {
    static constexpr uint32_t kCount = BLOCK_K;
    static __device__ float at(const BlockQ2_K &block, uint32_t i)
    {
        int scales = block.scales[i / 16];
        return value_of(from_f16(block.d), scales & 15, two_bits_of(block.quants, i), from_f16(block.dmin),
                        scales >> 4);
    }
};

template <> struct Elements<BlockQ3_K> {
    static constexpr uint32_t kCount = BLOCK_K;
    static __device__ float at(const BlockQ3_K &block, uint32_t i)
    {
        uint32_t s = i / 16;
        int low = block.scales[s % 8] >> s / 8 * 4 & 15, high = block.scales[8 + s % 4] >> 2 * (s / 4) & 3;
        int q = two_bits_of(block.quants, i) | (block.high[i % 32] >> i / 32 & 1) << 2;
        return from_f16(block.d) * (float)((low | high << 4) - 32) * (float)(q - 4);
    }
};

/* Of Q4_K and Q5_K, for 32 elements. */
__device__ __forceinline__ float six_bit_value(const uint8_t *scales, uint32_t i, float d, float d_min, int q)
{
    uint32_t s = i / 32;
    int scale = s < 4 ? scales[s] & 63 : (scales[4 + s] & 15) | scales[s - 4] >> 6 << 4;
    int min = s < 4 ? scales[4 + s] & 63 : scales[4 + s] >> 4 | scales[s] >> 6 << 4;
    return value_of(d, scale, q, d_min, min);
}

template <> struct Elements<BlockQ4_K> {
    static constexpr uint32_t kCount = BLOCK_K;
    static __device__ float at(const BlockQ4_K &block, uint32_t i)
    {
        int q = block.quants[i / 64 * 32 + i % 32] >> i / 32 % 2 * 4 & 15;
        return six_bit_value(block.scales, i, from_f16(block.d), from_f16(block.dmin), q);
    }
};

template <> struct Elements<BlockQ5_K> {
    static constexpr uint32_t kCount = BLOCK_K;
    static __device__ float at(const BlockQ5_K &block, uint32_t i)
    {
        int q = (block.quants[i / 64 * 32 + i % 32] >> i / 32 % 2 * 4 & 15) | (block.high[i % 32] >> i / 32 & 1) << 4;
        return six_bit_value(block.scales, i, from_f16(block.d), from_f16(block.dmin), q);
    }
};

template <> struct Elements<BlockQ6_K> {
    static constexpr uint32_t kCount = BLOCK_K;
    static __device__ float at(const BlockQ6_K &block, uint32_t i)
    {
        uint32_t half = i / 128, quarter = i / 32 % 4, j = i % 32;
        int low = block.low[half * 64 + quarter % 2 * 32 + j] >> quarter / 2 * 4 & 15;
        int high = block.high[half * 32 + j] >> 2 * quarter & 3;
        return from_f16(block.d) * (float)block.scales[i / 16] * (float)((low | high << 4) - 32);
    }
};

template <> struct Elements<BlockIQ4_XS> {
    static constexpr uint32_t kCount = BLOCK_K;
    static __device__ float at(const BlockIQ4_XS &block, uint32_t i)
    {
        uint32_t s = i / 32;
        int low = block.scales_low[s / 2] >> s % 2 * 4 & 15, high = block.scales_high >> 2 * s & 3;
        int q = iq4_value(nibble_of(block.quants + s * 16, i % 32));
        return from_f16(block.d) * (float)((low | high << 4) - 32) * (float)q;
    }
};

} // namespace lw
