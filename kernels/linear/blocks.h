/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block layouts of the GGUF weight formats that longwave reads, byte for byte; scales are binary16 bits, little endian.
 * Rows are whole blocks, one after another. Types are aligned to 2 at most, since a file only promises its alignment
 * for a tensor's start.
 */
#pragma once
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

/* y[j] = d * quants[j] */
typedef struct BlockQ8_0 {
    uint16_t d;
    int8_t quants[32];
} BlockQ8_0;

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

_Static_assert(sizeof(BlockQ4_0) == 18, "Q4_0 is 18 bytes");
_Static_assert(sizeof(BlockQ4_1) == 20, "Q4_1 is 20 bytes");
_Static_assert(sizeof(BlockQ8_0) == 34, "Q8_0 is 34 bytes");
_Static_assert(sizeof(BlockQ6_K) == 210, "Q6_K is 210 bytes");

/* The unsigned 6-bit value of element i (0..255). */
static inline int block_q6_k_quant(const BlockQ6_K *block, int i)
{
    int half = i / 128, quarter = i / 32 % 4, j = i % 32;
    int low = block->low[half * 64 + quarter % 2 * 32 + j] >> (quarter < 2 ? 0 : 4) & 15;
    int high = block->high[half * 32 + j] >> (2 * quarter) & 3;
    return low | high << 4;
}
