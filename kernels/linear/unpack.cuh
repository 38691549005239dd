/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a packed unit (device_layout.h) to binary16 pairs in a tensor core's operand order. A quant's bits are taken as
 * a binary16 as they stand, which is quant * 2^-24 exactly (subnormals cost nothing in these units), so one mask and
 * one fused multiply-add make two weights.
 */
#pragma once
#include "base/tensor.h"
#include "kernels/linear/blocks.h"
#include "kernels/linear/device_layout.h"

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace lw
{

enum class Table { kNone, kIq4, kMxfp4 };

/* The compile-time twin of a DeviceFormat; kScaleBias: what was added to a block of 256's scales. */
template <int kUnit, int kLowBits, int kHighBits, int kBiasValue, int kPart, bool kMin, Table kTableId = Table::kNone>
struct Quantised {
    static constexpr int kUnitCols = kUnit, kLow = kLowBits, kHigh = kHighBits, kBias = kBiasValue, kPartCols = kPart;
    static constexpr bool kHasMin = kMin, kIsK = kUnit == 256;
    static constexpr Table kTable = kTableId;
    static constexpr int kGroups = kUnit / 128, kParts = 32 / kPart;
    /* Bytes of a lane; a plane under 16 bytes is one narrow load. */
    static constexpr int kLowBytes = 2 * kGroups * 4 * kLow, kHighBytes = 2 * kGroups * 4 * kHigh;
    static constexpr int kScaleBytes = kIsK ? (kTable == Table::kIq4 ? 4 : 8) : (kMin ? 8 : 4);
    static constexpr int kHeadBytes = kIsK ? (kMin ? 8 : 4) : 0;
    static constexpr int kUsedBytes = 32 * (kLowBytes + kHighBytes + kScaleBytes) + 8 * kHeadBytes;
    static constexpr int kUnitBytes = (kUsedBytes + DEVICE_UNIT_ALIGN - 1) / DEVICE_UNIT_ALIGN * DEVICE_UNIT_ALIGN;
    static constexpr int kLaneBytes = kLowBytes + kHighBytes + kScaleBytes + kHeadBytes; /* heads once a lane */
};

using Q8_0 = Quantised<128, 8, 0, 128, 32, false>;
using Q4_0 = Quantised<128, 4, 0, 8, 32, false>;
using Q4_1 = Quantised<128, 4, 0, 0, 32, true>;
using Q5_0 = Quantised<128, 4, 1, 16, 32, false>;
using Q5_1 = Quantised<128, 4, 1, 0, 32, true>;
using IQ4_NL = Quantised<128, 4, 0, 128, 32, false, Table::kIq4>;
using MXFP4 = Quantised<128, 4, 0, 12, 32, false, Table::kMxfp4>;
using Q2_K = Quantised<256, 2, 0, 0, 16, true>;
using Q3_K = Quantised<256, 2, 1, 4, 16, false>;
using Q4_K = Quantised<256, 4, 0, 0, 32, true>;
using Q5_K = Quantised<256, 4, 1, 0, 32, true>;
using Q6_K = Quantised<256, 4, 2, 32, 16, false>;
using IQ4_XS = Quantised<256, 4, 0, 128, 32, false, Table::kIq4>;

__device__ __forceinline__ __half2 half2_of_bits(uint32_t bits)
{
    return *reinterpret_cast<__half2 *>(&bits);
}

__device__ __forceinline__ uint32_t bits_of_half2(__half2 x)
{
    return *reinterpret_cast<uint32_t *>(&x);
}

__device__ __forceinline__ __half half_of_bits(uint32_t bits)
{
    return __ushort_as_half((unsigned short)bits);
}

/* Multiplier of pairs at bit 0 and at bit 4, and what is added. */
struct Scale {
    __half2 at_0, at_4, add;
};

/* Two parts whose multipliers and additions are the halves of d and add. */
template <class F> __device__ __forceinline__ void two_scales(__half2 d, __half2 add, Scale *ret_low, Scale *ret_high)
{
    __half2 at_4 = __hmul2(d, __float2half2_rn(1.0f / 16));
    if constexpr (!F::kHasMin) add = __hmul2(d, half2_of_bits(0x80008000u | F::kBias * 0x10001u));
    *ret_low = {__low2half2(d), __low2half2(at_4), __low2half2(add)};
    *ret_high = {__high2half2(d), __high2half2(at_4), __high2half2(add)};
}

/* Bytes kFirst and kSecond of a word as the bits of two binary16, each with kHigh as its upper byte. */
template <int kFirst, int kSecond, uint32_t kHigh> __device__ __forceinline__ __half2 halves_of_bytes(uint32_t word)
{
    return half2_of_bits(__byte_perm(word, kHigh, kFirst | 4 << 4 | kSecond << 8 | 4 << 12));
}

/* A row's scales of a block of 256: those of both groups of 128 columns. */
template <class F>
__device__ __forceinline__ void row_scales(const uint32_t *scale, uint32_t head, int second, Scale (*ret)[2][F::kParts])
{
    constexpr uint32_t kMagic = 0x64; /* upper byte of 1024, whose lower bits count ones */
    const __half2 off = __float2half2_rn(F::kHasMin ? -1024.0f : -1152.0f);
    const __half2 d = __low2half2(half2_of_bits(head)), d_min = __hneg2(__high2half2(half2_of_bits(head)));
    if constexpr (F::kParts == 1) {
        constexpr bool kIsPacked = !F::kHasMin; /* one byte a group, both rows in a word */
        uint32_t word = kIsPacked ? scale[0] >> 16 * second : scale[second];
        __half2 s = kIsPacked ? halves_of_bytes<0, 1, kMagic>(word) : halves_of_bytes<0, 2, kMagic>(word);
        two_scales<F>(__hmul2(__hadd2(s, off), d), __hmul2(halves_of_bytes<1, 3, 0>(word), d_min), &ret[0][second][0],
                      &ret[1][second][0]);
    } else {
        uint32_t word = scale[second], mins = F::kHasMin ? word >> 4 & 0x0F0F0F0Fu : 0;
        if (F::kHasMin) word &= 0x0F0F0F0Fu;
        two_scales<F>(__hmul2(__hadd2(halves_of_bytes<0, 1, kMagic>(word), off), d),
                      __hmul2(halves_of_bytes<0, 1, 0>(mins), d_min), &ret[0][second][0], &ret[0][second][1]);
        two_scales<F>(__hmul2(__hadd2(halves_of_bytes<2, 3, kMagic>(word), off), d),
                      __hmul2(halves_of_bytes<2, 3, 0>(mins), d_min), &ret[1][second][0], &ret[1][second][1]);
    }
}

/* ret [group][row g, row g + 8][part], from a lane's scale and head words. */
template <class F>
__device__ __forceinline__ void scales_of(const uint32_t *scale, const uint32_t *head, Scale (*ret)[2][F::kParts])
{
    if constexpr (!F::kIsK) {
        __half2 d = half2_of_bits(scale[0]), m = half2_of_bits(F::kHasMin ? scale[1] : 0);
        two_scales<F>(d, m, &ret[0][0][0], &ret[0][1][0]);
    } else {
        row_scales<F>(scale, head[0], 0, ret);
        row_scales<F>(scale, F::kHasMin ? head[1] : head[0] >> 16, 1, ret);
    }
}

/* The bytes that 8 nibbles stand for, each too high by F::kBias. */
template <class F> __device__ __forceinline__ void look_up(uint32_t nibbles, uint32_t *ret_low, uint32_t *ret_high)
{
    /* Four bytes a word, entry 0 lowest: IQ4 plus 128, and twice E2M1 plus 12. */
    constexpr bool kIq4 = F::kTable == Table::kIq4;
    constexpr uint32_t kT0 = kIq4 ? 0x3F2D1801u : 0x0F0E0D0Cu, kT1 = kIq4 ? 0x766A5D4Fu : 0x18141210u;
    constexpr uint32_t kT2 = kIq4 ? 0xA6998D81u : 0x090A0B0Cu, kT3 = kIq4 ? 0xF1D9C5B5u : 0x00040608u;
    uint32_t index = nibbles & 0x77777777u, choice = (nibbles & 0x88888888u) >> 1 | 0x32103210u;
    *ret_low = __byte_perm(__byte_perm(kT0, kT1, index), __byte_perm(kT2, kT3, index), choice);
    index >>= 16;
    *ret_high = __byte_perm(__byte_perm(kT0, kT1, index), __byte_perm(kT2, kT3, index), choice >> 16);
}

/* Moves the bits from `bit` to `to`; those around them are masked away later. */
template <int kBit, int kTo> __device__ __forceinline__ uint32_t shifted(uint32_t x)
{
    if constexpr (kBit >= kTo)
        return x >> (kBit - kTo);
    else
        return x << (kTo - kBit);
}

/* Where chunk kChunk finds its upper bits: those of pairs 0 and 1 from kBit0 on, of 2 and 3 from kBit1 on. */
template <class F, int kChunk> struct HighBits {
    static constexpr int kAt = F::kHigh == 1 ? 2 * kChunk : 2 * (kChunk % 2);
    static constexpr int kBit0 = F::kHigh == 1 ? (kAt < 4 ? kAt : kAt + 4) : (kAt < 2 ? 2 * kAt : 2 * kAt + 4);
    static constexpr int kBit1 = kBit0 + (F::kHigh == 1 ? 1 : 2), kWord = F::kHigh == 1 ? 0 : kChunk / 2;
    static constexpr uint32_t kMask = ((1u << F::kHigh) - 1) * 0x10001u << F::kLow;
};

/* The four words of pairs of chunk kChunk (8 columns): pair p's quants at bit 4 (p % 2) of each half, as they stand. */
template <class F, int kChunk>
__device__ __forceinline__ void pairs_of(const uint32_t *low, const uint32_t *high, uint32_t *ret)
{
    if constexpr (F::kLow == 2) {
        uint32_t w = shifted<8 * (kChunk % 2), 0>(low[kChunk / 2]);
        ret[0] = w & 0x00030003u;
        ret[1] = w & 0x00300030u;
        ret[2] = w >> 2 & 0x00030003u;
        ret[3] = w >> 2 & 0x00300030u;
    } else {
        uint32_t w = low[kChunk];
        ret[0] = w & 0x000F000Fu;
        ret[1] = w & 0x00F000F0u;
        ret[2] = w >> 8 & 0x000F000Fu;
        ret[3] = w >> 8 & 0x00F000F0u;
    }
    if constexpr (F::kHigh > 0) {
        using At = HighBits<F, kChunk>;
        uint32_t word = high[At::kWord];
        uint32_t first = shifted<At::kBit0, F::kLow>(word), second = shifted<At::kBit1, F::kLow>(word);
        ret[0] |= first & At::kMask;
        ret[1] |= first & At::kMask << 4;
        ret[2] |= second & At::kMask;
        ret[3] |= second & At::kMask << 4;
    }
}

/*
 * Chunk kChunk (8 columns) of 32 columns of one row: ret[p] holds columns 2 p and 2 p + 1. low, high: this row's words
 * of the group.
 */
template <class F, int kChunk>
__device__ __forceinline__ void weights_of(const uint32_t *low, const uint32_t *high, const Scale *scales,
                                           uint32_t *ret)
{
    const Scale &s = scales[F::kParts == 2 ? kChunk / 2 : 0];
    if constexpr (F::kLow == 8 || F::kTable != Table::kNone) {
        uint32_t bytes[2];
        if constexpr (F::kLow == 8)
            bytes[0] = low[2 * kChunk], bytes[1] = low[2 * kChunk + 1];
        else
            look_up<F>(low[kChunk], &bytes[0], &bytes[1]);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            uint32_t pair = __byte_perm(bytes[p / 2], 0, p % 2 ? 0x4342 : 0x4140);
            ret[p] = bits_of_half2(__hfma2(half2_of_bits(pair), s.at_0, s.add));
        }
    } else {
        pairs_of<F, kChunk>(low, high, ret);
#pragma unroll
        for (int p = 0; p < 4; p++)
            ret[p] = bits_of_half2(__hfma2(half2_of_bits(ret[p]), p % 2 ? s.at_4 : s.at_0, s.add));
    }
}

} // namespace lw
