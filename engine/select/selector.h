/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of the rows whose plans depend on more than their policy: selecting heads (plans made from the stored keys,
 * between kv_store and attention), heads at other positions beyond the trained context. Decoded rows are planned one by
 * one, prompts in blocks of KV_PAGE_TOKENS positions, so that a row's keys depend on the tokens before it, the policy,
 * and the position where decoding began, and on nothing else. Counts what attention reads. Engine thread.
 */
#pragma once
#include "engine/model/block.h"
#include "engine/select/select_state.h"

typedef struct Selector Selector;

typedef struct SelectorParams {
    const ModelShape *shape; /* kept by the caller until selector_free, as kernels is */
    const KernelTable *kernels;
    uint32_t context, max_sequences, max_batch_rows, n_threads;
} SelectorParams;

LW_CHECK bool selector_new(const SelectorParams *params, Selector **ret_selector, Error *error);
void selector_free(Selector *selector); /* NULL is fine */
/* Of all sequences. */
SelectState *selector_state(Selector *selector);

/* A pass with rows [n_rows] of one kind of the sequence has ended. */
void selector_commit(Selector *selector, SeqId seq, RowKind kind);

/* Do rows of the policy need a selector? */
bool selector_serves(const AttnPolicy *policy);
/* Attention of one layer's piece; params are those of plain attention. false: a kernel failed. */
bool selector_attend(Selector *selector, const ForwardPass *pass, uint32_t layer, const AttendParams *params);
