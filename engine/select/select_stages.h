/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stages of a selection, for the query rows of one block (decode: one row) and one KV head: which sectors they see
 * beyond sink and recent range (InfiniteHiP 4, LServe 3.5). What comes out depends on the query rows, the stored keys
 * and what earlier rows of the sequence left in the list alone. Engine thread.
 */
#pragma once
#include "engine/select/select_state.h"
#include "kernels/table.h"

typedef struct SelectQuery {
    const Selection *selection;
    uint32_t layer, n_layers, kv_head;
    RowKind kind;
    uint32_t position, end; /* by which the ranges are; behind the last row that may follow this list */
    uint32_t first_pos;     /* of the first row */
    bool is_packed;         /* beyond the trained context: what is selected will be moved */
    const float *q;         /* of the first row and the head's group (scan.h) */
    uint32_t n_rows, row_heads, group, k_dim;
    const KvPages *pages;
    uint32_t slot;
    const RopeTurns *turns;
} SelectQuery;

/* Room to work in, and what does the work. */
typedef struct SelectTools {
    const KernelTable *kernels;
    Stream stream;
    uint32_t *units, *indices, *top_scratch; /* [sectors of a context] each */
    float *scores;                           /* the same */
    void *scan_scratch, *slash_scratch;
    float scale, softcap; /* of attention */
} SelectTools;

/* Where the recent range of a query at the position begins; not beyond the sink: nothing is left to select. */
uint32_t select_recent_from(const Selection *selection, uint32_t position);
/* Rows of this kind at the position (prefill: of the block that begins there) select. */
bool select_applies(const Selection *selection, RowKind kind, uint32_t position);
/* The first stage that is due t rows after the first decoded one; n_stages: none is. */
uint32_t select_first_due(const SelectQuery *query, const SelectList *list, uint32_t t);
/* Units that a stage keeps at most, by list->recent_from, end and level; PLAN_ALL: all. */
uint32_t select_keep(const SelectQuery *query, const SelectList *list, uint32_t stage);
/*
 * Runs the stages from first_stage on; those before it stand in the list. words: as of select_state_edit. *bytes: more
 * of what was read. false: a kernel failed.
 */
bool select_run(const SelectTools *tools, const SelectQuery *query, uint32_t first_stage, SelectList *list,
                uint32_t *words, uint64_t *bytes);
/* The plan's sectors: [list->n_sectors]. */
const uint32_t *select_sectors(const SelectList *list, const uint32_t *words);
/* n sectors that the list lacks, ascending, one of each of n equal parts of them; returns how many there are. */
uint32_t select_probes(const SelectQuery *query, const SelectList *list, const uint32_t *words, uint32_t n,
                       uint32_t *ret_sectors);
/* Sectors between the ranges that are not listed. */
uint32_t select_n_left_out(const Selection *selection, const SelectList *list);
