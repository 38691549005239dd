/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The papers' own selections (sparse-attention.md, decision 7), on plain arrays and without the limits of pages: chunks
 * of any size, a list for each query head, bounds of rotated keys. What our selections are measured against; nothing
 * serves by it. Any thread.
 *
 *   InfiniteHiP  algorithms 1 to 3, as its paper has them or as its released code does (A1, A2)
 *   LServe       3.5.2: pages by the bounds of their logical pages, the newest one among them (B3)
 */
#pragma once
#include "base/arena.h"
#include "engine/select/policy.h"

typedef enum PaperScope { PAPER_LAYER, PAPER_KV_HEAD, PAPER_HEAD } PaperScope; /* whose query heads share a list */

typedef struct PaperStage {
    ScanKind scan;
    uint32_t chunk_tokens; /* a multiple of that of the next stage */
    uint32_t part_tokens;  /* box, center, mean: a chunk scores as the best of its parts of so many; 0: it is one */
    uint32_t keep_tokens;
    uint32_t row_stride; /* so many consecutive rows are averaged into one query; 0: 1 */
} PaperStage;

/*
 * Chunks begin at sink and hold the keys that stand at least `recent` behind the first row. The released code lets the
 * scan overlap the recent range by one chunk, whose last ones it takes whole, and moves what is left in the end down to
 * a multiple of its size. keeps_newest: the page of the last row is one of those kept, at least 3 are.
 */
typedef struct PaperMethod {
    const char *name;
    PaperStage stages[SELECT_MAX_STAGES];
    uint32_t n_stages;
    uint32_t sink, recent; /* tokens */
    PaperScope scope;
    ScanPositions positions; /* relative: of the two probes of a descent, the left is at 0 and the right at 1 (A3) */
    bool is_released, keeps_newest;
} PaperMethod;

typedef struct PaperInput {
    const float *q; /* [n_rows, n_heads, dim], rotated at their positions */
    const float *k; /* [n_kv_heads, n_keys, dim], key i at position i, rotated there */
    uint32_t n_rows, n_heads, n_kv_heads, n_keys, dim;
    uint32_t first_pos;  /* of the first row; every row's own key is there */
    const double *theta; /* [n_pairs] in the order of kernels/pointwise/rope.h */
    uint32_t n_pairs;    /* 0: nothing is rotated */
} PaperInput;

typedef struct PaperList {
    const uint32_t *tokens; /* [n] ascending; without sink and recent range, unless they were scanned */
    uint32_t n;
} PaperList;

/* What to measure of the list with that number: among keys [first, end), against the k best of them. */
typedef struct PaperQuestion {
    const PaperList *list;
    uint32_t number;
    float scale; /* of q k in the softmax */
    uint32_t first, end, k;
} PaperQuestion;

typedef struct PaperRecall {
    double top, mass; /* shares: of the k tokens with the highest scores, of the softmax */
} PaperRecall;

/* The papers' presets by name ("hip-paper-3k", "lserve-4k", ...); NULL: no such name, past the last. */
const PaperMethod *paper_method(const char *name);
const char *paper_method_name(uint32_t i);

uint32_t paper_n_lists(const PaperMethod *method, const PaperInput *input);
uint32_t paper_list_of_head(const PaperMethod *method, const PaperInput *input, uint32_t head);
/* Lists [paper_n_lists] of the rows of one query block, in the arena. */
LW_CHECK bool paper_select(const PaperMethod *method, const PaperInput *input, Arena *arena, PaperList *ret_lists,
                           Error *error);
/*
 * How much a list holds of what its heads see, at true positions: of the k tokens with the highest scores of any of its
 * rows and heads, and of their softmax, on average of rows and heads.
 */
LW_CHECK bool paper_measure(const PaperMethod *method, const PaperInput *input, const PaperQuestion *question,
                            PaperRecall *ret_recall, Error *error);
