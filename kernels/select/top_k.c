/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/select/top_k.h"

#include "base/half.h"

#include <stdbool.h>

enum { DIGIT_BITS = 8, N_DIGITS = 1 << DIGIT_BITS };

/* Unsigned numbers in the order of the scores: both zeros are one, every NaN is the highest. */
static uint32_t key_of(float score)
{
    if (score != score) return UINT32_MAX;
    uint32_t bits = float_to_bits(score + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* The k-th highest key; how many of those that equal it belong to the k highest. */
static uint32_t find_threshold(const uint32_t *keys, uint32_t n, uint32_t k, uint32_t *ret_n_equal)
{
    uint32_t prefix = 0, mask = 0;
    for (int shift = 32 - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        uint32_t counts[N_DIGITS] = {0}, digit = N_DIGITS - 1;
        for (uint32_t i = 0; i < n; i++)
            if ((keys[i] & mask) == prefix) counts[keys[i] >> shift & (N_DIGITS - 1)]++;
        while (counts[digit] < k) k -= counts[digit--];
        prefix |= digit << shift;
        mask |= (uint32_t)(N_DIGITS - 1) << shift;
    }
    *ret_n_equal = k;
    return prefix;
}

uint32_t top_k(const float *scores, uint32_t n, uint32_t k, uint32_t *scratch, uint32_t *ret_indices)
{
    uint32_t n_equal = 0, n_chosen = 0, threshold = 0;
    if (k > n) k = n;
    if (k == 0) return 0;
    for (uint32_t i = 0; i < n; i++) scratch[i] = key_of(scores[i]);
    threshold = find_threshold(scratch, n, k, &n_equal);
    for (uint32_t i = 0; i < n; i++) {
        bool is_equal = scratch[i] == threshold && n_equal > 0;
        if (is_equal) n_equal--;
        if (is_equal || scratch[i] > threshold) ret_indices[n_chosen++] = i;
    }
    return n_chosen;
}
