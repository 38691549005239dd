/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block layouts of the GGUF weight formats that longwave reads, byte for byte; scales are binary16 bits, little endian.
 * Rows are whole blocks, one after another. Types are aligned to 2 at most, since a file only promises its alignment
 * for a tensor's start.
 */
#pragma once
#include <assert.h>
#include <stdint.h>

enum { BLOCK_32 = 32, BLOCK_K = 256 };

/* y[j] = d * (low nibble of quants[j] - 8), y[j + 16] = d * (high nibble - 8) */
typedef struct BlockQ4_0 {
    uint16_t d;
    uint8_t quants[16];
} BlockQ4_0;

/* y[j] = d * low nibble + m, y[j + 16] = d * high nibble + m */
typedef struct BlockQ4_1 {
    uint16_t d, m;
    uint8_t quants[16];
} BlockQ4_1;

/* As Q4_0 and Q4_1 with a fifth bit: element i has bit i % 8 of high[i / 8] as its bit 4; Q5_0 subtracts 16. */
typedef struct BlockQ5_0 {
    uint16_t d;
    uint8_t high[4];
    uint8_t quants[16];
} BlockQ5_0;

typedef struct BlockQ5_1 {
    uint16_t d, m;
    uint8_t high[4];
    uint8_t quants[16];
} BlockQ5_1;

/* y = d * BLOCK_IQ4_VALUES[nibble], nibbles placed as in Q4_0 */
typedef struct BlockIQ4_NL {
    uint16_t d;
    uint8_t quants[16];
} BlockIQ4_NL;

/* y = 2^(exponent - 128) * BLOCK_MXFP4_VALUES[nibble], nibbles placed as in Q4_0; exponent 0 is 2^-128 */
typedef struct BlockMXFP4 {
    uint8_t exponent;
    uint8_t quants[16];
} BlockMXFP4;

/* y[j] = d * quants[j] */
typedef struct BlockQ8_0 {
    uint16_t d;
    int8_t quants[32];
} BlockQ8_0;

/*
 * y[i] = d * low nibble of scales[i / 16] * q2[i] - dmin * high nibble. Halves of 128: with j < 32, element 128 h + 32
 * g
 * + j is at bit 2 g of quants[32 h + j].
 */
typedef struct BlockQ2_K {
    uint8_t scales[16];
    uint8_t quants[64];
    uint16_t d, dmin;
} BlockQ2_K;

/*
 * y[i] = d * (scale[i / 16] - 32) * (q3[i] - 4). The low 2 bits of q3 are placed as in Q2_K; the third of element 128 h
 * + 32 g + j is bit 4 h + g of high[j]. Scales have 6 bits: scale s has the low nibble (s < 8) or the high one of
 * scales[s % 8], and above it the 2 bits at 2 (s / 4) of scales[8 + s % 4].
 */
typedef struct BlockQ3_K {
    uint8_t high[32];
    uint8_t quants[64];
    uint8_t scales[12];
    uint16_t d;
} BlockQ3_K;

/*
 * y[i] = d * scale[i / 32] * q4[i] - dmin * min[i / 32]. Quarters of 64: element 64 c + j is the low nibble of
 * quants[32 c + j], element 64 c + 32 + j the high one. 6-bit scales and mins: those of s < 4 are the low 6 bits of
 * scales[s] and scales[4 + s]; for s >= 4 scales[4 + s] has the low 4 bits of both (scale in the low nibble), and the
 * top 2 bits of scales[s - 4] and scales[s] are their high ones.
 */
typedef struct BlockQ4_K {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t quants[128];
} BlockQ4_K;

/* Q4_K with a fifth bit: that of element 32 s + j is bit s of high[j]. */
typedef struct BlockQ5_K {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t high[32];
    uint8_t quants[128];
} BlockQ5_K;

/*
 * y[i] = d * (scale[i / 32] - 32) * BLOCK_IQ4_VALUES[nibble]: 8 parts of 32 elements in 16 bytes, placed as in Q4_0.
 * Scale s has a nibble of scales_low[s / 2] (the low one for even s) and above it the 2 bits at 2 s of scales_high.
 */
typedef struct BlockIQ4_XS {
    uint16_t d;
    uint16_t scales_high;
    uint8_t scales_low[4];
    uint8_t quants[128];
} BlockIQ4_XS;

/*
 * y[i] = d * scales[i / 16] * (q6[i] - 32). Halves of 128: with j < 32 and base h * 128, quarter g = 0..3 holds element
 * base + 32 g + j; its low 4 bits are in low[64 h + 32 (g & 1) + j] (low nibble for g < 2, high for the rest), its high
 * 2 bits in high[32 h + j] at bit 2 g.
 */
typedef struct BlockQ6_K {
    uint8_t low[128];
    uint8_t high[64];
    int8_t scales[16];
    uint16_t d;
} BlockQ6_K;

#define BLOCK_IQ4_VALUES                                                                                               \
    {                                                                                                                  \
        -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113                                       \
    }
/* Twice the 4-bit floats of the Microscaling formats (E2M1), so that they are integers. */
#define BLOCK_MXFP4_VALUES                                                                                             \
    {                                                                                                                  \
        0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12                                                        \
    }

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20, "no padding");
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24, "no padding");
static_assert(sizeof(BlockIQ4_NL) == 18 && sizeof(BlockMXFP4) == 17 && sizeof(BlockQ8_0) == 34, "no padding");
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144, "no padding");
static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210 && sizeof(BlockIQ4_XS) == 136, "no padding");

/* The bits of 2^(exponent - 128). */
static inline uint32_t block_mxfp4_scale_bits(uint8_t exponent)
{
    return exponent < 2 ? 0x00200000u << exponent : (uint32_t)(exponent - 1) << 23;
}
