/* SPDX-License-Identifier: Apache-2.0 */
/* What a synthetic model is made of: shared by synthetic.c (its file) and synthetic_fill.c (its weights). */
#pragma once
#include "engine/model/synthetic.h"

typedef struct SyntheticTensor {
    char name[64];
    DType type;
    uint32_t n_rows, n_cols; /* a vector has one row */
    float mean, deviation;
    const float *values; /* NULL: random; else [n_cols] */
    uint64_t offset;     /* from the first tensor */
} SyntheticTensor;

struct Synthetic {
    SyntheticTensor *tensors; /* [n_tensors] */
    uint32_t n_tensors;
    float *rope_divisors; /* [rope_dim / 2]; NULL: none */
    uint64_t header_bytes, data_bytes;
    int fd;
    char path[32];
};
