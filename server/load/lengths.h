/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long prompts, answers and pauses of a load are: drawn from a distribution that is written as N, A-B (uniform,
 * ends included), exp:MEAN or lognormal:MEDIAN:SIGMA; K and M behind a number are powers of 1024. Any thread.
 */
#pragma once
#include "base/error.h"
#include "base/rng.h"

typedef enum LengthKind { LENGTHS_UNIFORM, LENGTHS_EXPONENTIAL, LENGTHS_LOGNORMAL } LengthKind;

typedef struct Lengths {
    LengthKind kind;
    double a, b;       /* first and last; mean; median and sigma of the logarithm */
    uint32_t min, max; /* what is drawn is cut to these */
} Lengths;

/* Numbers of the text are within [min, max], else the error says so; it does not name the option. */
LW_CHECK bool lengths_parse(const char *text, uint32_t min, uint32_t max, Lengths *ret_lengths, Error *error);

uint32_t lengths_draw(const Lengths *lengths, Rng *rng);

/* The gap to the next arrival of a Poisson process, in units of the mean. */
double lengths_draw_gap(Rng *rng);
