/* SPDX-License-Identifier: Apache-2.0 */
/* A seeded stream of numbers (splitmix64), the same on every machine: what is made up from a seed is made up again. */
#pragma once
#include <stdint.h>

typedef struct Rng {
    uint64_t state;
} Rng;

static inline uint64_t rng_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static inline uint64_t rng_next(Rng *rng)
{
    return rng_mix(rng->state += 0x9E3779B97F4A7C15u);
}

/* 0 .. n - 1, n > 0; biased by less than n / 2^32. */
static inline uint32_t rng_below(Rng *rng, uint32_t n)
{
    return (uint32_t)((rng_next(rng) >> 32) * n >> 32);
}

/* [0, 1) */
static inline double rng_unit(Rng *rng)
{
    return (double)(rng_next(rng) >> 11) * 0x1p-53;
}

/* A stream that depends on a seed and on what it is for. */
static inline Rng rng_for(uint64_t seed, uint64_t purpose)
{
    return (Rng){rng_mix(rng_mix(seed) ^ (purpose + 0x632BE59BD9B4E019u))};
}
