/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tile unit of Intel's processors: sums of 16 tokens times 16 rows over columns of signed bytes. A tile holds 4
 * columns of every row in each of its 64-byte lines, as quant_tile.h unpacks them. Only for sources of the AMX row.
 */
#pragma once
#include <stdint.h>

/* Tokens of a tile; fewer than AMX_MIN_TOKENS are done sooner without. */
enum { AMX_TOKENS = 16, AMX_MIN_TOKENS = 9 };

/* Tiles by what they hold: sums; 32 columns of tokens and of rows; 64 columns of tokens and of rows. */
#define AMX_SUMS_0 "0"
#define AMX_SUMS_1 "1"
#define AMX_TOKENS_32 "4"
#define AMX_ROWS_32 "5"
#define AMX_TOKENS_64 "6"
#define AMX_ROWS_64 "7"

/* The compiler knows nothing of tiles, so that what they read and write is said by hand: all of memory. */
#define AMX_LOAD(tile, base, stride)                                                                                   \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" tile : : "r"(base), "r"((size_t)(stride)) : "memory")
#define AMX_STORE(tile, base, stride)                                                                                  \
    __asm__ volatile("tilestored %%tmm" tile ", (%0,%1,1)" : : "r"(base), "r"((size_t)(stride)) : "memory")
#define AMX_ZERO(tile) __asm__ volatile("tilezero %tmm" tile)
/* sums += tokens times rows; the bytes of rows are signed, or not. */
#define AMX_DOT_I8(sums, tokens, rows) __asm__ volatile("tdpbssd %tmm" rows ", %tmm" tokens ", %tmm" sums)
#define AMX_DOT_U8(sums, tokens, rows) __asm__ volatile("tdpbsud %tmm" rows ", %tmm" tokens ", %tmm" sums)

static inline void amx_configure(void)
{
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1, .row_bytes = {64, 64, 64, 64, 32, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 8, 16, 16}};
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
}

static inline void amx_release(void)
{
    __asm__ volatile("tilerelease");
}

/* A row's function for a type, by the multiply of its file: few tokens do not fill tiles. */
#define DEFINE_MULTIPLY(name, type)                                                                                    \
    DECLARE_MULTIPLY_FOR(name, avx512);                                                                                \
    DECLARE_MULTIPLY(name)                                                                                             \
    {                                                                                                                  \
        if (n_tokens < AMX_MIN_TOKENS)                                                                                 \
            multiply_##name##_avx512(group, a, t0, n_tokens, acc);                                                     \
        else                                                                                                           \
            multiply(type, group, a, t0, n_tokens, acc);                                                               \
    }
