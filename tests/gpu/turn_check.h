/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include "tests/gpu/paged_world.h"

/*
 * kv_store that norms and rotates (KvTurn) against rmsnorm, rope and a plain kv_store on the device: the same queries
 * and pages, bit for bit. has_norms: Q and K have some. text: what differs.
 */
bool turn_check(const KernelTable *table, const WorldShape *shape, uint32_t n_pairs, bool has_norms, char *text,
                size_t text_size);
