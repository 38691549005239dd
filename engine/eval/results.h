/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What eval has measured so far, as one JSON document: raw answers and rows, so that pairs can be compared, and work
 * that was broken off goes on where it ended. Files are read with care and written whole or not at all. One thread.
 *   {"longwave_eval": 1, "identity": {...}, "answers": [...], "rows": [...], "recall": [...], "estimates": [...]}
 */
#pragma once
#include "base/error.h"
#include "engine/eval/ask.h"
#include "engine/eval/counts.h"

#include <cjson/cJSON.h>

enum { RESULTS_MAX_BYTES = 256 << 20, RESULTS_MAX_NAME = 128, RESULTS_MAX_ITEMS = 1 << 20 };

typedef struct Results {
    cJSON *root;
} Results;

/* identity: an object of what must be equal for two measurements to be comparable; copied. */
LW_CHECK bool results_new(const cJSON *identity, Results *ret_results, Error *error);
/* Refuses what is no such document, and one of another identity, naming the first member that differs. */
LW_CHECK bool results_parse(const char *text, size_t n, const cJSON *identity, Results *ret_results, Error *error);
/* The same of a file; where there is none yet the results are new. */
LW_CHECK bool results_load(const char *path, const cJSON *identity, Results *ret_results, Error *error);
LW_CHECK bool results_save(const Results *results, const char *path, Error *error);
void results_done(Results *results);

/* Questions about one haystack under one policy. */
typedef struct AnswersKey {
    const char *policy, *task; /* as they were asked for */
    uint32_t length, haystack;
} AnswersKey;

typedef struct AnswersCell {
    AnswersKey key;
    const EvalQuestion *questions; /* [n] */
    const Answer *answers;         /* [n] */
    uint32_t n;
    double prefill_seconds, seconds; /* of the prompt, of the questions */
    KvCounts counts;
} AnswersCell;

const cJSON *results_answers(const Results *results, const AnswersKey *key); /* NULL: not there */
LW_CHECK bool results_add_answers(Results *results, const AnswersCell *cell, Error *error);

/* Rows of one text behind `position` tokens of it, under a policy and as the model itself would have them. */
typedef struct RowsKey {
    const char *policy, *kind; /* "decode", "prefill" */
    uint32_t position;
} RowsKey;

typedef struct RowsCell {
    RowsKey key;
    uint32_t n;
    const double *kl;        /* [n] nats, of the policy from dense */
    const bool *same_top;    /* [n] */
    const double *nll;       /* [n] of the text's next token */
    const double *dense_nll; /* [n] */
    double seconds;
    KvCounts counts;
} RowsCell;

const cJSON *results_rows(const Results *results, const RowsKey *key);
LW_CHECK bool results_add_rows(Results *results, const RowsCell *cell, Error *error);

/* What the lists of a policy's decoded rows hold, mean over rows, layers and heads that select. */
typedef struct RecallCell {
    const char *policy;
    uint32_t position, layer;
    uint32_t n;        /* heads and rows */
    double recall;     /* of the true top k keys between the ranges, k being the length of the list */
    double mass;       /* of attention that the plan sees */
    double best_mass;  /* that sink, recent range and the true top k together have */
    double range_mass; /* of sink and recent range alone */
} RecallCell;

LW_CHECK bool results_add_recall(Results *results, const RecallCell *cell, Error *error);
/* Is there any recall of the policy at the position? */
bool results_has_recall(const Results *results, const char *policy, uint32_t position);

/* Of decoded rows, means over layers and heads that select: what probes say is left out of the attention, and what is.
 */
typedef struct EstimatesCell {
    const char *policy;
    uint32_t position, n;
    const double *estimated, *missing; /* [n] */
} EstimatesCell;

LW_CHECK bool results_add_estimates(Results *results, const EstimatesCell *cell, Error *error);
bool results_has_estimates(const Results *results, const char *policy, uint32_t position);

/*
 * For other documents of the kind: text [n] as JSON, for cJSON_Delete, unless it is nested too deep, ends too soon,
 * goes on behind its end (an error names the byte), or has a member twice; does `own` have all members of identity?
 */
LW_CHECK bool results_read_json(const char *text, size_t n, cJSON **ret_root, Error *error);
LW_CHECK bool results_same_identity(const cJSON *identity, const cJSON *own, Error *error);

/* Members that a reader has checked already. */
double results_number(const cJSON *item, const char *name);
const char *results_text(const cJSON *item, const char *name);
