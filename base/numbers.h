/* SPDX-License-Identifier: Apache-2.0 */
/* Small arithmetic that many need. */
#pragma once
#include <stdint.h>

static inline uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* For qsort and bsearch. */
static inline int compare_u32(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

/* Of a hexadecimal digit; -1: it is none. */
static inline int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    char small = (char)(c | 0x20);
    return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}
