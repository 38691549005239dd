/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/device_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, POISON = 0xFF }; /* all ones is a NaN */
static unsigned n_passed, n_failed;

void device_check(cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess) return;
    printf("FAILED: %s: %s\n", what, cudaGetErrorString(rc));
    n_failed++;
    exit(device_finish());
}

void device_report(bool good, const char *fmt, ...)
{
    va_list args;
    n_passed += good;
    n_failed += !good;
    if (good) return;
    printf("FAILED: ");
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
}

int device_finish(void)
{
    printf("%u passed, %u failed\n", n_passed, n_failed);
    fflush(stdout);
    return n_failed > 0;
}

void *device_new(const void *x, size_t bytes)
{
    void *p = NULL;
    device_check(cudaMalloc(&p, bytes + 16), "allocating");
    if (x) device_check(cudaMemcpy(p, x, bytes, cudaMemcpyHostToDevice), "copying to the device");
    return p;
}

void device_free(void *p)
{
    device_check(cudaFree(p), "freeing");
}

void device_read(void *to, const void *from, size_t bytes)
{
    device_check(cudaDeviceSynchronize(), "a kernel");
    device_check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copying from the device");
}

DeviceFloats device_floats_new(size_t n)
{
    DeviceFloats x = {.data = device_new(NULL, (n + GUARD) * sizeof(float)), .n = n};
    device_check(cudaMemset(x.data, POISON, (n + GUARD) * sizeof(float)), "poisoning");
    return x;
}

bool device_floats_close(DeviceFloats x, const float *want, Tolerance tolerance, char *text, size_t text_size)
{
    float *got = malloc((x.n + GUARD) * sizeof *got);
    unsigned char guard[GUARD * sizeof(float)];
    if (!got) exit(1);
    memset(guard, POISON, sizeof guard);
    device_read(got, x.data, (x.n + GUARD) * sizeof *got);
    device_free(x.data);
    bool good = compare_floats(got, want, x.n, tolerance, text, text_size);
    if (good && memcmp(got + x.n, guard, sizeof guard) != 0) {
        snprintf(text, text_size, "wrote past the end");
        good = false;
    }
    free(got);
    return good;
}
