/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of tests/gpu share: counting results, copies to the device and back. One thread. */
#pragma once
#include "base/error.h"
#include "kernels/table.h"
#include "tests/support/compare.h"

#include <cuda_runtime_api.h>

/* Ends the program with its closing line when a call failed. */
void device_check(cudaError_t rc, const char *what);
/* Counts one result; prints it when it is bad. */
void device_report(bool good, const char *fmt, ...) LW_PRINTF(2, 3);
/* Prints 'N passed, N failed'; the program's exit status. */
int device_finish(void);

/* cudaMalloc and a copy; x may be NULL. Freed by device_free. */
void *device_new(const void *x, size_t bytes);
void device_free(void *p);
void device_read(void *to, const void *from, size_t bytes);

/* Poisoned floats on the device, with a guard behind them. */
typedef struct DeviceFloats {
    float *data;
    size_t n;
} DeviceFloats;
DeviceFloats device_floats_new(size_t n);
/* Frees x after comparing it, and its guard, with want. */
bool device_floats_close(DeviceFloats x, const float *want, Tolerance tolerance, char *text, size_t text_size);

/* is_short: without the large cases. */
void test_pointwise(const KernelTable *table, bool is_short);
void test_linear(const KernelTable *table, Stream stream, bool is_short);
void test_linear_race(const KernelTable *table, Stream stream); /* few products of each kernel */
