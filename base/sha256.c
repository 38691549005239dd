/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sha256.h"

#include <string.h>

enum { BLOCK_BYTES = 64, LENGTH_BYTES = 8 };

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static uint32_t load_big(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void store_big(uint8_t *p, uint32_t x)
{
    for (unsigned i = 0; i < 4; i++) p[i] = (uint8_t)(x >> (24 - 8 * i));
}

static void expand(const uint8_t block[static BLOCK_BYTES], uint32_t w[static 64])
{
    for (size_t i = 0; i < 16; i++) w[i] = load_big(block + 4 * i);
    for (size_t i = 16; i < 64; i++) {
        uint32_t low = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t high = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + low + w[i - 7] + high;
    }
}

static void take_block(uint32_t hash[static 8], const uint8_t block[static BLOCK_BYTES])
{
    uint32_t w[64], v[8];
    expand(block, w);
    memcpy(v, hash, sizeof v);
    for (size_t i = 0; i < 64; i++) {
        uint32_t e = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25), choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t a = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
        uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        uint32_t first = v[7] + e + choice + round_constants[i] + w[i];
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += first;
        v[0] = first + a + majority;
    }
    for (size_t i = 0; i < 8; i++) hash[i] += v[i];
}

void sha256(const void *bytes, size_t n, uint8_t digest[static SHA256_BYTES])
{
    uint32_t hash[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const uint8_t *at = bytes;
    uint8_t tail[2 * BLOCK_BYTES] = {0};
    size_t left = n;
    for (; left >= BLOCK_BYTES; left -= BLOCK_BYTES, at += BLOCK_BYTES) take_block(hash, at);
    if (left) memcpy(tail, at, left);
    tail[left] = 0x80;
    size_t n_tail = left + 1 + LENGTH_BYTES <= BLOCK_BYTES ? BLOCK_BYTES : 2 * BLOCK_BYTES;
    for (size_t i = 0; i < LENGTH_BYTES; i++) tail[n_tail - 1 - i] = (uint8_t)((uint64_t)n * 8 >> (8 * i));
    for (size_t i = 0; i < n_tail; i += BLOCK_BYTES) take_block(hash, tail + i);
    for (size_t i = 0; i < 8; i++) store_big(digest + 4 * i, hash[i]);
}

bool bytes_equal_constant_time(const uint8_t *a, const uint8_t *b, size_t n)
{
    uint8_t difference = 0;
    for (size_t i = 0; i < n; i++) difference |= (uint8_t)(a[i] ^ b[i]);
    return difference == 0;
}
