/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The k highest of n scores, deterministic: of equal ones the lower index. NaN ranks above all, so that what is broken
 * is looked at and seen. Indices come out ascending.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* scores stay; ret_indices [min(k, n)]; scratch [n] words. Returns how many were chosen: min(k, n). Linear in n. */
uint32_t top_k(const float *scores, uint32_t n, uint32_t k, uint32_t *scratch, uint32_t *ret_indices);

#ifdef __cplusplus
}
#endif
