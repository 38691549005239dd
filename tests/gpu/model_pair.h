/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One model in two engines, on the CPU and on CUDA device 0, and what the two make of the same tokens. On the CPU
 * products are exact (dequantised weights, fp64), so that what differs is the device's doing. One thread; a failure of
 * an engine ends the program.
 */
#pragma once
#include "engine/device.h"
#include "engine/engine.h"
#include "tests/gpu/device_check.h"

typedef struct Pair {
    Engine *cpu, *gpu;
} Pair;

typedef struct PairParams {
    const char *path;
    KvType kv_type;
    bool is_deterministic;
    uint32_t context, max_sequences, max_rows;
    const AttnPolicy *policies; /* [n_policies] the first dense; NULL: that alone */
    uint32_t n_policies;
    bool is_fast; /* the CPU multiplies as it does for users */
} PairParams;

/* cpu false: the device alone. */
Pair pair_open(Device *device, const PairParams *params, bool cpu);
void pair_close(Pair *pair);

/* The same calls on an engine, which have to succeed. */
SeqId model_seq(Engine *engine); /* dense */
SeqId model_seq_of(Engine *engine, PolicyId policy);
/* Tokens [n] behind the sequence's, in chunks (0: at once); logits [n, n_vocab], of the last row alone, or NULL. */
void model_feed(Engine *engine, SeqId seq, RowKind kind, const uint32_t *tokens, uint32_t n, uint32_t chunk,
                float *logits);
/* One token for each of n sequences, in one pass; logits [n, n_vocab]. */
void model_step(Engine *engine, const SeqId *seqs, const uint32_t *tokens, uint32_t n, float *logits);
float *model_logits(const Engine *engine, uint32_t n_rows); /* free() it */
void model_text(const Engine *engine, uint32_t seed, uint32_t *tokens, uint32_t n);

/* What log-probabilities [n_rows, n_vocab] of tokens that have at least 1e-4 in either differ by. */
typedef struct Distance {
    double largest, mean; /* mean: of the likeliest tokens */
} Distance;
Distance model_distance(const float *a, const float *b, uint32_t n_rows, uint32_t n_vocab);
/* Reports whether the mean is within the limit, and the largest not far beyond; prints the figures too. */
void model_compare(const char *what, const float *want, const float *got, uint32_t n_rows, uint32_t n_vocab,
                   double limit);
