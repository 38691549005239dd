/* SPDX-License-Identifier: Apache-2.0 */
/* A sampler with a workspace of its own, for tests of one sampler. Asserts by abort(). One thread. */
#pragma once
#include "engine/sample/sampler.h"

Sampler *sampler_maker_new(uint32_t n_vocab, TokenText text);
void sampler_maker_free(Sampler *sampler); /* and its workspace */
