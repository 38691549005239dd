/* SPDX-License-Identifier: Apache-2.0 */
/* A sampler with a workspace of its own, and a judge of what it draws, for tests. Asserts by abort(). One thread. */
#pragma once
#include "engine/sample/sampler.h"

Sampler *sampler_maker_new(uint32_t n_vocab, TokenText text);
void sampler_maker_free(Sampler *sampler); /* and its workspace */

/*
 * Chi-square of n_draws draws over all ids, those of small expectation put together, as the distance from its mean in
 * standard deviations: beyond 4 the chance is about 1e-4. Infinite if an id without probability was drawn.
 */
double draws_deviation(const double *prob, const uint32_t *got, uint32_t n, int n_draws);
