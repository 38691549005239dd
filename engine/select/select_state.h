/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sequence's selection keeps from one decoded row to the next: for each (layer, KV head) the units that every
 * stage kept, and the list of the plan. Addresses are reserved once and touched where they are used. What a pass
 * changes counts when it ends (select_state_commit) and is gone when it is given up. On a device the words are in its
 * memory, and the lists alone; kernels write them. Engine thread.
 */
#pragma once
#include "base/error.h"
#include "engine/batch.h"
#include "engine/device.h"
#include "engine/select/attention_stats.h"
#include "engine/select/policy.h"

/* One head's lists. */
typedef struct SelectList {
    uint32_t n_stages;             /* with a list; 0: nothing has been selected */
    uint32_t n[SELECT_MAX_STAGES]; /* units that each kept: their first sectors, stage after stage */
    uint32_t n_sectors;            /* of the plan, behind those of the stages */
    uint32_t recent_from, end;     /* positions: where the recent range begins; behind the last row of this choice */
    int32_t level;                 /* adaptive: the budget is 2^level of its own */
} SelectList;

typedef struct SelectSeq {
    uint32_t decode_from;    /* position of the first decoded row; UINT32_MAX: none yet */
    uint32_t n_prompt;       /* tokens of the prompt whose end dense rows go by; 0: not known */
    bool is_dense;           /* an audit's fork: it selects nothing, and its windows are open */
    AttentionStats stats[2]; /* by RowKind */
} SelectSeq;

typedef struct SelectState SelectState;

/* n_heads: of all layers together; max_sectors: of a whole context. */
LW_CHECK bool select_state_new(uint32_t max_sequences, uint32_t n_heads, uint32_t max_sectors, SelectState **ret_state,
                               Error *error);
/* The words on a device, max_list for each head and bank; 0: there are none. */
LW_CHECK bool select_state_new_on(Device *device, uint32_t max_sequences, uint32_t n_heads, uint32_t max_list,
                                  SelectState **ret_state, Error *error);
uint64_t select_state_device_bytes(uint32_t max_sequences, uint32_t n_heads, uint32_t max_list);
void select_state_free(SelectState *state); /* NULL is fine */

void select_state_open(SelectState *state, SeqId seq);
void select_state_close(SelectState *state, SeqId seq);
void select_state_fork(SelectState *state, SeqId from, SeqId to);
/* As the pass that the sequence is in has left it so far. */
SelectSeq *select_state_seq(SelectState *state, SeqId seq);
const SelectList *select_state_list(const SelectState *state, SeqId seq, uint32_t head, const uint32_t **ret_words);
/* The same, to be changed: room for (SELECT_MAX_STAGES + 1) * max_sectors words; on a device what they held is gone. */
SelectList *select_state_edit(SelectState *state, SeqId seq, uint32_t head, uint32_t **ret_words);
/* The pass has ended; it has been given up. */
void select_state_commit(SelectState *state, SeqId seq);
void select_state_revert(SelectState *state, SeqId seq);
/* Nothing is selected any more. */
void select_state_clear(SelectState *state, SeqId seq);

/* A copy of it all, in no pass; the reader has checked where the bytes come from. */
size_t select_state_bytes(const SelectState *state, SeqId seq);
void select_state_read(const SelectState *state, SeqId seq, void *dst);
void select_state_write(SelectState *state, SeqId seq, const void *src);
