/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long work takes, learnt from how long it took: exponential averages of the time and of how far it strays. A guess
 * that is to be kept is the mean and twice that deviation. Engine thread.
 */
#pragma once
#include <stdint.h>

typedef struct Estimate {
    double mean, deviation; /* usec; mean 0: nothing is known */
} Estimate;

void estimate_learn(Estimate *estimate, double usec);
double estimate_high(const Estimate *estimate);

enum { COST_WIDTHS = 4, COST_DEPTHS = 16 };

/* Usec per row and layer of prefill, by the rows of the pass (few rows cost more each) and the depth of its positions.
 */
typedef struct CostTable {
    Estimate row_layer[COST_WIDTHS][COST_DEPTHS];
    uint32_t depth[COST_WIDTHS][COST_DEPTHS]; /* where it was learnt last */
} CostTable;

void cost_learn(CostTable *table, uint32_t n_rows, uint32_t depth, double usec_per_row_layer);
/* 0: nothing is known yet. */
double cost_guess(const CostTable *table, uint32_t n_rows, uint32_t depth);
