/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4), and a comparison whose time tells nothing of what is compared. Any thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32 };

void sha256(const void *bytes, size_t n, uint8_t digest[static SHA256_BYTES]);
bool bytes_equal_constant_time(const uint8_t *a, const uint8_t *b, size_t n);
