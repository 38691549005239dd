/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA kernels against their reference twins, on device 0. A plain program: Criterion would set CUDA up for each test.
 */
#include "kernels/table.h"
#include "tests/support/compare.h"
#include "tests/support/weights.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 3000001, GUARD = 8 };
static unsigned n_passed, n_failed;

static void check(cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess) return;
    printf("FAILED: %s: %s\n", what, cudaGetErrorString(rc));
    printf("%u passed, %u failed\n", n_passed, n_failed + 1);
    exit(1);
}

static void report(bool good, const char *name, size_t n, const char *text)
{
    n_passed += good;
    n_failed += !good;
    if (!good) printf("FAILED: %s, n = %zu: %s\n", name, n, text);
}

/* z is followed by a guard that must stay as it was; shift takes the pointers off their alignment. */
static void test_vector_add(const KernelTable *table, const float *x, const float *y, float *device, size_t n,
                            size_t shift)
{
    static float want[MAX + GUARD], got[MAX + GUARD];
    char text[200] = "the launch failed";
    float *dx = device + shift, *dy = device + MAX + 2 * GUARD + shift, *dz = device + 2 * (MAX + 2 * GUARD) + shift;
    memset(want, 0xA5, sizeof want);
    check(cudaMemcpy(dx, x, n * sizeof *x, cudaMemcpyHostToDevice), "copying x");
    check(cudaMemcpy(dy, y, n * sizeof *y, cudaMemcpyHostToDevice), "copying y");
    check(cudaMemset(dz, 0xA5, (n + GUARD) * sizeof *dz), "clearing z");
    VectorAddParams params = {x, y, want, n}, device_params = {dx, dy, dz, n};
    bool good = vector_add_ref(&params) && table->vector_add(&device_params, (Stream){0});
    check(cudaDeviceSynchronize(), "vector_add");
    check(cudaMemcpy(got, dz, (n + GUARD) * sizeof *got, cudaMemcpyDeviceToHost), "copying z");
    good = good && compare_floats(got, want, n, (Tolerance){.min_cosine = 1 - 1e-12}, text, sizeof text);
    if (good && memcmp(got + n, want + n, GUARD * sizeof *got) != 0) {
        snprintf(text, sizeof text, "wrote past the end");
        good = false;
    }
    report(good, "vector_add", n, text);
}

int main(void)
{
    static const size_t sizes[] = {0, 1, 3, 4, 5, 255, 256, 1024, 1025, MAX};
    Error error;
    float *device = NULL, *x = malloc(2 * MAX * sizeof *x), *y = x + MAX;
    uint64_t seed = 1;
    const KernelTable *table = kernels_cuda(0, &error);
    if (!x) return 1;
    if (!table) {
        printf("SKIPPED, no device: %s\n0 passed, 0 failed\n", error.text);
        free(x);
        return 77; /* what Meson calls a skip */
    }
    report(!kernels_cuda(-1, &error) && error.code == ERR_NOT_FOUND, "device -1 is refused", 0, error.text);
    report(!kernels_cuda(9999, &error) && error.code == ERR_NOT_FOUND, "device 9999 is refused", 0, error.text);
    random_floats(&seed, x, 2 * MAX, 3);
    check(cudaMalloc((void **)&device, 3 * (MAX + 2 * GUARD) * sizeof *device), "allocating");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t shift = 0; shift < 2; shift++) test_vector_add(table, x, y, device, sizes[i], shift);
    cudaFree(device);
    free(x);
    printf("%u passed, %u failed\n", n_passed, n_failed);
    return n_failed > 0;
}
