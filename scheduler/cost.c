/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cost.h"

#include <math.h>

/* Shares of a new measurement. */
#define MEAN_SHARE (1.0 / 8)
#define DEVIATION_SHARE (1.0 / 4)

void estimate_learn(Estimate *estimate, double usec)
{
    if (estimate->mean == 0) {
        *estimate = (Estimate){.mean = usec, .deviation = usec / 8};
        return;
    }
    estimate->deviation += DEVIATION_SHARE * (fabs(usec - estimate->mean) - estimate->deviation);
    estimate->mean += MEAN_SHARE * (usec - estimate->mean);
}

double estimate_high(const Estimate *estimate)
{
    return estimate->mean + 2 * estimate->deviation;
}

static uint32_t width_of(uint32_t n_rows)
{
    return n_rows < 16 ? 0 : n_rows < 64 ? 1 : n_rows < 192 ? 2 : 3;
}

/* 0 up to 255, 1 up to 511, 2 up to 1023 ... */
static uint32_t depth_of(uint32_t position)
{
    uint32_t depth = 0;
    for (position >>= 8; position && depth + 1 < COST_DEPTHS; position >>= 1) depth++;
    return depth;
}

void cost_learn(CostTable *table, uint32_t n_rows, uint32_t depth, double usec_per_row_layer)
{
    uint32_t width = width_of(n_rows), d = depth_of(depth);
    estimate_learn(&table->row_layer[width][d], usec_per_row_layer);
    table->depth[width][d] = depth;
}

/* The nearest depth that is known; from a shallower one it costs more by at most the ratio of the two. */
static double guess_of_width(const CostTable *table, uint32_t width, uint32_t depth)
{
    const Estimate *of_depth = table->row_layer[width];
    uint32_t wanted = depth_of(depth), d = wanted;
    while (d < COST_DEPTHS && of_depth[d].mean == 0) d++;
    if (d == COST_DEPTHS)
        for (d = wanted; d > 0 && of_depth[d].mean == 0;) d--;
    double ratio = (depth + 1.0) / (table->depth[width][d] + 1.0);
    return estimate_high(&of_depth[d]) * (ratio > 1 ? ratio : 1);
}

double cost_guess(const CostTable *table, uint32_t n_rows, uint32_t depth)
{
    uint32_t width = width_of(n_rows);
    double guess = guess_of_width(table, width, depth);
    /* A row costs less among many: a narrower pass that is known tells an upper bound. */
    for (uint32_t w = width; guess == 0 && w-- > 0;) guess = guess_of_width(table, w, depth);
    return guess;
}
