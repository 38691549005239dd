/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of generated pages, and of what a sequence selects, while it is out of the engine (KV fact 7), in bounded
 * memory outside of it.
 * Engine thread.
 */
#pragma once
#include "engine/engine.h"

typedef struct SwapStore {
    uint64_t max_bytes, used_bytes;
} SwapStore;

typedef struct Swapped Swapped;

/*
 * Copies the pages of the tokens from first_token, a page boundary, on. ERR_BUSY: the store is full.
 */
LW_CHECK bool swap_out(SwapStore *store, const Engine *engine, PolicyId policy, SeqId seq, uint32_t first_token,
                       Swapped **ret_swapped, Error *error);
uint32_t swapped_first(const Swapped *swapped);
uint64_t swapped_bytes(const Swapped *swapped);
/* Appends the copies to a sequence that holds swapped_first tokens. ERR_BUSY: too few pages are free. */
LW_CHECK bool swap_in(Engine *engine, SeqId seq, const Swapped *swapped, Error *error);
void swap_drop(SwapStore *store, Swapped *swapped); /* NULL is fine */
