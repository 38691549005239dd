/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `calibrate` has found out about one model file, as one JSON document: a file of head roles (roles.h) as soon as
 * it is whole, and before that the state from which the work goes on. Read with care, written whole or not at all.
 */
#pragma once
#include "base/arena.h"
#include "engine/eval/policy_spec.h"
#include "engine/eval/tasks.h"
#include "engine/select/roles.h"

#include <cjson/cJSON.h>

enum { CALIBRATION_MAX_BYTES = 4 << 20, CALIBRATION_MAX_CELLS = 1024 };

/* The streaming heads on prompts of their own, against dense on the same ones. */
typedef struct CheckedTask {
    char task[TASK_MAX_TEXT];
    uint32_t questions, dense_right, right;
    double loss; /* nats that the right answer's surprise rises by */
} CheckedTask;

/* A policy at one length on one machine: a decode step, and answers to all tasks. */
typedef struct CrossoverCell {
    char policy[POLICY_SPEC_MAX];
    uint32_t length, questions, dense_right, right;
    double dense_usec, usec; /* median of a step */
} CrossoverCell;

typedef struct Calibration {
    /* Set by who begins; a file that differs in one of these is refused. */
    uint64_t model; /* engine_model_fingerprint */
    cJSON *method;  /* owned */
    uint32_t n_layers, n_kv_heads, n_prompts;
    /* Measurements of another sparsity, or of another machine, are measured again. */
    double sparsity;
    const char *machine;
    uint32_t sink, recent, recent_prefill;
    double *losses;   /* [n_layers, n_kv_heads, n_prompts] nats an answer; NaN: not measured; owned */
    double *gates;    /* [n_layers, n_kv_heads] instead of losses; NULL: heads are ranked by losses; owned */
    bool *is_ranked;  /* [n_layers, n_kv_heads] false: has a sliding window, and no role; owned */
    uint8_t *streams; /* [n_layers, n_kv_heads] of those chosen; owned */
    bool is_complete; /* streams is what the file says */
    CheckedTask *checked;
    uint32_t n_checked;
    CrossoverCell *cells; /* [n_cells] of CALIBRATION_MAX_CELLS; owned */
    uint32_t n_cells;
} Calibration;

/* All measured of nothing; takes method. Fails only for memory, and has deleted method then. */
LW_CHECK bool calibration_init(Calibration *calibration, uint32_t n_layers, uint32_t n_kv_heads, uint32_t n_prompts,
                               cJSON *method, Error *error);
void calibration_done(Calibration *calibration);
/* Takes over what text [n] holds. An error names the member, or both models. */
LW_CHECK bool calibration_parse(const char *text, size_t n, Calibration *calibration, Error *error);
/* Only the cells of the crossover, of whatever method, sparsity and machine; for calibration_done. */
LW_CHECK bool calibration_parse_cells(const char *text, size_t n, uint64_t model, Calibration *ret_calibration,
                                      Error *error);
/* The same of a file; nothing where there is none. */
LW_CHECK bool calibration_load(const char *path, Calibration *calibration, Error *error);
LW_CHECK bool calibration_json(const Calibration *calibration, cJSON **ret_root, Error *error);
LW_CHECK bool calibration_save(const Calibration *calibration, const char *path, Error *error);

/* ret_scores: [n_layers, n_kv_heads] by which heads go (gates.h): gates, or the mean of the losses. */
void calibration_scores(const Calibration *calibration, double *ret_scores);
/*
 * The shortest length from which on, at all that were measured, a step of the policy is faster than a dense one and as
 * many answers are right; 0: there is none.
 */
uint32_t calibration_crossover(const Calibration *calibration, const char *policy);
const CrossoverCell *calibration_cell(const Calibration *calibration, const char *policy, uint32_t length);

/* The crossovers of a finished file, for whoever certifies a policy. */
typedef struct Crossovers {
    Calibration of;   /* its cells alone */
    AttnPolicy roles; /* those that were found; in the arena that they were read into */
} Crossovers;

/* An error names the member, or both models. */
LW_CHECK bool crossovers_parse(const char *text, size_t n, const RolesModel *model, Arena *arena,
                               Crossovers *ret_crossovers, Error *error);
void crossovers_done(Crossovers *crossovers);
/*
 * Of the policy that the spec is, by whatever name it was calibrated: calibration_crossover. ERR_NOT_FOUND: it was not
 * calibrated.
 */
LW_CHECK bool crossovers_find(const Crossovers *crossovers, const PolicySpec *spec, uint32_t *ret_from, Error *error);
