/* SPDX-License-Identifier: Apache-2.0 */
/* Hands out pieces of memory that the caller owns; with base NULL it only adds up their sizes. In place; any thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef struct Carver {
    char *base;
    size_t alignment; /* bytes, of every piece */
    size_t used_bytes;
    bool overflow; /* a size was too large for this machine: what was handed out is not to be used */
} Carver;

static inline void *carve(Carver *carver, size_t count, size_t size)
{
    size_t bytes, end, alignment = carver->alignment;
    if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(bytes, alignment - 1, &bytes) ||
        __builtin_add_overflow(carver->used_bytes, bytes / alignment * alignment, &end)) {
        carver->overflow = true;
        return NULL;
    }
    void *piece = carver->base ? carver->base + carver->used_bytes : NULL;
    carver->used_bytes = end;
    return piece;
}
