/* SPDX-License-Identifier: Apache-2.0 */
/* What longwave bench measures: a model's prefill and decode, or the kernels; and what both share. One thread. */
#pragma once
#include "base/buffer.h"
#include "base/threads.h"
#include "config/config.h"
#include "engine/model/family.h"
#include "engine/device.h"
#include "kernels/table.h"
#include "server/load/samples.h"

typedef struct BenchSpread {
    double median, min, max;
} BenchSpread;

/* Sorts values: [n], n > 0. */
BenchSpread bench_spread(double *values, size_t n);

/* How long the step has taken that began then; steps NULL: it is not kept. */
LW_CHECK bool bench_add_step(Samples *steps, uint64_t begin_usec, Error *error);

/* Bytes a microsecond that the pool reads from a block: the best of several passes. */
double bench_read_ceiling(ThreadPool *pool, const uint8_t *block, size_t n_bytes);

typedef struct BenchPlan {
    const Config *config; /* with the device's defaults */
    Device *device;
    const KernelTable *row;  /* of the host; NULL: those of the device */
    const ModelShape *shape; /* of a synthetic model; NULL: config->model */
    DType type;              /* of its matrices */
} BenchPlan;

/* Append the report to out: text, or one JSON object with --json. */
LW_CHECK bool bench_model(const BenchPlan *plan, Buffer *out, Error *error);
LW_CHECK bool bench_kernels(const BenchPlan *plan, Buffer *out, Error *error);
