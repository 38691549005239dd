/* SPDX-License-Identifier: Apache-2.0 */
/* Small arithmetic that many need. */
#pragma once
#include <stdint.h>

static inline uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}
