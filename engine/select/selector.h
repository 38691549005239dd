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
    Device *device;      /* that selects; NULL: the host */
    uint32_t max_list;   /* on a device: the longest list, in sectors; 0: no policy selects */
    uint32_t n_channels; /* the same: of bounds that selection reads (scan_bounds_width) */
} SelectorParams;

LW_CHECK bool selector_new(const SelectorParams *params, Selector **ret_selector, Error *error);
void selector_free(Selector *selector); /* NULL is fine */
/* Of all sequences. */
SelectState *selector_state(Selector *selector);

/* A pass with rows [n_rows] of one kind of the sequence has ended. */
void selector_commit(Selector *selector, SeqId seq, RowKind kind);

/* ---- on a device (select.h of the kernels) ----
 *
 * What a row will see there is known before its layers run, all but what its lists hold: when stages are due, and how
 * much they keep, follows from positions.
 */

/* A decoded row; plans, heads [n_layers, n_kv_heads] of its policy alone, classes of its sequence. */
typedef struct SelectRow {
    SeqId seq;
    uint32_t position;
    const AttnPolicy *policy;
    const AttnPlan *plans;
    const KvHead *heads;
    const KvPages *classes;
} SelectRow;

/* Has the row lists of its own? Then selector_plan_row has its plans [n_kv_heads] in a layer, lists where the device
 * has them, and what is due in it, which counts as done. */
bool selector_row_selects(Selector *selector, const SelectRow *row);
void selector_plan_row(Selector *selector, const SelectRow *row, uint32_t layer, AttnPlan *ret_plans,
                       SelectJob *ret_job);
/* Does a device have all that the policy asks for? Its kernels move no keys. */
bool selector_device_takes(const AttnPolicy *policy);
/* Can a device select by the policy's stages? Sectors of its longest list; 0: no. */
uint32_t selector_device_list(const Selection *selection);

/* Do rows of the policy need a selector? */
bool selector_serves(const AttnPolicy *policy);
/* Attention of one layer's piece; params are those of plain attention. false: a kernel failed. */
bool selector_attend(Selector *selector, const ForwardPass *pass, uint32_t layer, const AttendParams *params);
