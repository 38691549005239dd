/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Are the lists of decoded rows those that the reference makes of the same queries and key bounds? For runs whose lists
 * a device made: the run once more, from where it began, with the look at it, gives the queries of some layers and
 * sequences; then the lists that the run itself has left are compared with what select_ref makes of these. A page may
 * be in one and not in the other if its score is as near to the last chosen one's as LIST_CHECK_NEAR. Engine thread.
 */
#pragma once
#include "engine/engine.h"

#define LIST_CHECK_NEAR 1e-3 /* of 1 + the score of the last page that the reference takes */

typedef struct ListCheck ListCheck;

typedef struct ListCounts {
    uint32_t n_lists, n_equal, n_near; /* lists compared; the same page by page; pages that are near enough instead */
} ListCounts;

/* seqs [n_seqs]: of the run once more, each at the place where the run began. */
LW_CHECK bool list_check_new(Engine *engine, const SeqId *seqs, uint32_t n_seqs, ListCheck **ret_check, Error *error);
void list_check_free(ListCheck *check); /* NULL is fine */
/* A TraceCall for the decoded rows of these. On the host it takes each row's list for a new one: refresh is 1 there. */
void list_check_look(void *check, const LayerTrace *trace);
/*
 * seqs [n_seqs]: of the run itself, after as many rows. Adds to *counts. An error names the first page that should not
 * be where it is, ERR_DEVICE; nothing to compare is one too, ERR_INTERNAL.
 */
LW_CHECK bool list_check_end(ListCheck *check, const SeqId *seqs, ListCounts *counts, Error *error);
/* The same of one list [n] of a layer and KV head of sequence i, whoever made it. */
LW_CHECK bool list_check_list(ListCheck *check, uint32_t i, uint32_t layer, uint32_t kv_head, const uint32_t *list,
                              uint32_t n, ListCounts *counts, Error *error);
