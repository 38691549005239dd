/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: gpu_kernels [short | race]
 * CUDA kernels against their reference twins, on device 0. A plain program: Criterion would set CUDA up for each test.
 */
#include "tests/gpu/device_check.h"

#include <cublas_v2.h>
#include <stdio.h>
#include <string.h>

/* A handle as the engine makes it: on the default stream, with a workspace that no call allocates. */
static Stream make_stream(void)
{
    enum { WORKSPACE_BYTES = 32 << 20 };
    cublasHandle_t handle;
    bool good = cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS &&
                cublasSetWorkspace(handle, device_new(NULL, WORKSPACE_BYTES), WORKSPACE_BYTES) == CUBLAS_STATUS_SUCCESS;
    device_report(good, "cuBLAS cannot be set up");
    return (Stream){.blas = handle};
}

int main(int argc, char **argv)
{
    bool is_race = argc > 1 && strcmp(argv[1], "race") == 0;   /* what shares memory, in little: see is_short */
    bool is_short = argc > 1 && strcmp(argv[1], "short") == 0; /* for a sanitizer, which makes all of it slow */
    Error error;
    const KernelTable *table = kernels_cuda(0, &error);
    if (!table) {
        printf("SKIPPED, no device: %s\n0 passed, 0 failed\n", error.text);
        return 77; /* what Meson calls a skip */
    }
    device_report(!kernels_cuda(-1, &error) && error.code == ERR_NOT_FOUND, "device -1: %s", error.text);
    device_report(!kernels_cuda(9999, &error) && error.code == ERR_NOT_FOUND, "device 9999: %s", error.text);
    if (is_race) {
        test_linear_race(table, make_stream());
        return device_finish();
    }
    test_pointwise(table, is_short);
    test_linear(table, make_stream(), is_short);
    return device_finish();
}
