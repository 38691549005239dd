/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of a named shape with random weights, as a GGUF file that has a path but no name: what it computes takes the
 * time of the real model and means nothing. Weights depend on the seed alone. The file goes with synthetic_free; an
 * engine that has opened it goes on. One thread.
 */
#pragma once
#include "base/tensor.h"
#include "base/threads.h"
#include "engine/model/family.h"

typedef struct Synthetic Synthetic;

/* "SHAPE:TYPE", as llama-3.1-8b:q8_0; an error lists what there is, or names the rows that are no whole blocks. */
LW_CHECK bool synthetic_parse(const char *text, const ModelShape **ret_shape, DType *ret_type, Error *error);
/* All matrices have the type, vectors are F32; weights are zero until synthetic_fill. */
LW_CHECK bool synthetic_new(const ModelShape *shape, DType type, Synthetic **ret_synthetic, Error *error);
void synthetic_free(Synthetic *synthetic); /* NULL is fine */
const char *synthetic_path(const Synthetic *synthetic);
/* Takes the memory of all weights; matrices have about 1 as the sum of a row's squares. */
LW_CHECK bool synthetic_fill(Synthetic *synthetic, uint64_t seed, ThreadPool *pool, Error *error);
