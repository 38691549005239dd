/* SPDX-License-Identifier: Apache-2.0 */
/* How fast several sequences are decoded together, greedily where a device tells the best tokens, and what the matrix
 * products alone would allow. One thread. */
#pragma once
#include "engine/eval/list_check.h"
#include "server/cmd/bench.h"

/* Runs the tokens of positions [what the sequence holds, end): decode rows one by one, each a step; others in whole
 * batches. */
LW_CHECK bool bench_run_until(Engine *engine, SeqId seq, const uint32_t *tokens, uint32_t end, RowKind kind,
                              Samples *steps, Error *error);

typedef struct BatchBench {
    Engine *engine;
    PolicyId policy;
    const uint32_t *tokens; /* [depth, and n_sequences + n_steps at least] */
    uint32_t n_sequences, depth, n_steps, n_repetitions;
    Samples *steps;    /* of all runs but the first; NULL: they are not kept */
    ListCounts *lists; /* of the last run they are compared, and counted here; NULL: they are not */
} BatchBench;

/* A run that has ended: seqs [n] are what came of forks of bases [n]. */
typedef struct BenchAgain {
    Engine *engine;
    const SeqId *bases, *seqs;
    uint32_t n;
} BenchAgain;

/*
 * The run once more, looked at (list_check.h): in each of n_steps steps sequence i decodes tokens[step + i]. Takes n
 * places for sequences.
 */
LW_CHECK bool bench_check_lists(const BenchAgain *run, const uint32_t *tokens, uint32_t n_steps, ListCounts *counts,
                                Error *error);

/* Tokens a second, of all sequences together. */
LW_CHECK bool bench_batch(const BatchBench *bench, BenchSpread *ret_rates, Error *error);

/* The row's matrix products; all else does nothing. An engine on it takes the least time that the products allow. */
KernelTable bench_products_alone(const KernelTable *row);
