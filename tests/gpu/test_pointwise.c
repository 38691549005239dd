/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/device_check.h"
#include "tests/support/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const Tolerance CLOSE = {.abs = 1e-6, .rel = 1e-5, .min_cosine = 1 - 1e-9};
static const Tolerance EXACT = {.min_cosine = 1 - 1e-12};
static const DType TYPES[] = {DTYPE_F32,  DTYPE_F16,    DTYPE_BF16,   DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0,
                              DTYPE_Q5_1, DTYPE_Q8_0,   DTYPE_Q2_K,   DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K,
                              DTYPE_Q6_K, DTYPE_IQ4_NL, DTYPE_IQ4_XS, DTYPE_MXFP4};

static void *checked_alloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p) exit(1);
    return p;
}

static float *random_new(size_t n, float scale)
{
    static uint64_t seed = 1;
    float *x = checked_alloc(n, sizeof *x);
    random_floats(&seed, x, n, scale);
    return x;
}

static void check(bool ran, DeviceFloats got, float *want, Tolerance tolerance, const char *name, size_t n)
{
    char text[200] = "the launch failed";
    bool good = device_floats_close(got, want, tolerance, text, sizeof text) && ran;
    device_report(good, "%s, %zu: %s", name, n, text);
    free(want);
}

/* shift takes the pointers off their alignment. */
static void test_vector_add(const KernelTable *table, size_t n, size_t shift)
{
    float *x = random_new(n + shift, 3), *y = random_new(n + shift, 3), *want = checked_alloc(n + shift, sizeof *want);
    float *dx = device_new(x, (n + shift) * sizeof *x), *dy = device_new(y, (n + shift) * sizeof *y);
    DeviceFloats z = device_floats_new(n + shift);
    memset(want, 0xFF, shift * sizeof *want);
    VectorAddParams params = {x + shift, y + shift, want + shift, n},
                    on_device = {dx + shift, dy + shift, z.data + shift, n};
    bool ran = vector_add_ref(&params) && table->vector_add(&on_device, (Stream){0});
    check(ran, z, want, EXACT, "vector_add", n);
    device_free(dx);
    device_free(dy);
    free(x);
    free(y);
}

static void test_glu(const KernelTable *table, size_t n, GluActivation activation)
{
    float *gate = random_new(n, 20), *up = random_new(n, 3), *want = checked_alloc(n, sizeof *want);
    float *d_gate = device_new(gate, n * sizeof *gate), *d_up = device_new(up, n * sizeof *up);
    DeviceFloats y = device_floats_new(n);
    GluParams params = {gate, up, want, n, activation}, on_device = {d_gate, d_up, y.data, n, activation};
    bool ran = glu_ref(&params) && table->glu(&on_device, (Stream){0});
    check(ran, y, want, CLOSE, "glu", n);
    device_free(d_gate);
    device_free(d_up);
    free(gate);
    free(up);
}

static void test_softcap(const KernelTable *table, size_t n)
{
    float *x = random_new(n, 200), *want = checked_alloc(n, sizeof *want), *dx = device_new(x, n * sizeof *x);
    DeviceFloats y = device_floats_new(n);
    SoftcapParams params = {x, want, n, 30}, on_device = {dx, y.data, n, 30};
    bool ran = softcap_ref(&params) && table->softcap(&on_device, (Stream){0});
    check(ran, y, want, CLOSE, "softcap", n);
    device_free(dx);
    free(x);
}

static void test_rmsnorm(const KernelTable *table, uint32_t n_rows, uint32_t n)
{
    size_t all = (size_t)n_rows * n;
    float *x = random_new(all, 5), *weight = random_new(n, 2), *want = checked_alloc(all, sizeof *want);
    float *d_weight = device_new(weight, n * sizeof *weight);
    DeviceFloats y = device_floats_new(all);
    if (all > 0) device_check(cudaMemcpy(y.data, x, all * sizeof *x, cudaMemcpyHostToDevice), "copying x");
    RmsNormParams params = {x, weight, want, n_rows, n, 1e-5f},
                  on_device = {y.data, d_weight, y.data, n_rows, n, 1e-5f};
    bool ran = rmsnorm_ref(&params) && table->rmsnorm(&on_device, (Stream){0});
    check(ran, y, want, CLOSE, "rmsnorm in place", n_rows);
    device_free(d_weight);
    free(x);
    free(weight);
}

/* Positions up to millions, where fp32 angles are wrong. */
static void test_rope(const KernelTable *table, uint32_t n_tokens, uint32_t n_heads, uint32_t head_dim,
                      uint32_t n_pairs)
{
    size_t n_table = (size_t)n_tokens * n_pairs * 2, n = (size_t)n_tokens * n_heads * head_dim;
    double *theta = checked_alloc(n_pairs, sizeof *theta);
    uint32_t *positions = checked_alloc(n_tokens, sizeof *positions);
    float *cos_sin = checked_alloc(n_table, sizeof *cos_sin), *x = random_new(n, 4);
    for (uint32_t j = 0; j < n_pairs; j++) theta[j] = pow(5e5, -1.0 + (double)(j + 1) / n_pairs);
    for (uint32_t t = 0; t < n_tokens; t++) positions[t] = t % 2 ? t : 16000000 - 3 * t;
    double *d_theta = device_new(theta, n_pairs * sizeof *theta);
    uint32_t *d_positions = device_new(positions, n_tokens * sizeof *positions);
    DeviceFloats got_table = device_floats_new(n_table), got = device_floats_new(n);
    device_check(cudaMemcpy(got.data, x, n * sizeof *x, cudaMemcpyHostToDevice), "copying x");
    RopeTableParams table_params = {theta, positions, cos_sin, n_tokens, n_pairs, 1.25f}, on_device = table_params;
    RopeParams params = {x, cos_sin, n_tokens, n_heads, head_dim, n_pairs}, turn = params;
    on_device.theta = d_theta;
    on_device.positions = d_positions;
    on_device.cos_sin = got_table.data;
    turn.x = got.data;
    turn.cos_sin = got_table.data;
    bool ran = rope_table_ref(&table_params) && table->rope_table(&on_device, (Stream){0});
    ran = ran && rope_ref(&params) && table->rope(&turn, (Stream){0});
    check(ran, got, x, (Tolerance){.abs = 2e-6, .rel = 1e-5, .min_cosine = 1 - 1e-9}, "rope", n_tokens);
    check(ran, got_table, cos_sin, (Tolerance){.abs = 2e-7, .rel = 1e-6, .min_cosine = 1 - 1e-12}, "rope_table",
          n_tokens);
    device_free(d_theta);
    device_free(d_positions);
    free(theta);
    free(positions);
}

static void test_embed(const KernelTable *table, DType type, uint32_t n_tokens, uint32_t n_blocks)
{
    enum { VOCAB = 71 };
    static uint64_t seed = 9;
    const DTypeInfo *info = dtype_info(type);
    uint32_t n = n_blocks * info->block_elements, *ids = checked_alloc(n_tokens, sizeof *ids);
    size_t bytes = VOCAB * dtype_row_bytes(type, n), all = (size_t)n_tokens * n;
    void *rows = checked_alloc(bytes, 1);
    float *want = checked_alloc(all, sizeof *want);
    random_weights(&seed, type, rows, (size_t)VOCAB * n);
    for (uint32_t t = 0; t < n_tokens; t++) ids[t] = t % VOCAB;
    void *d_rows = device_new(rows, bytes), *d_ids = device_new(ids, n_tokens * sizeof *ids);
    DeviceFloats y = device_floats_new(all);
    EmbedParams params = {rows, type, ids, want, n_tokens, n, 1.5f},
                on_device = {d_rows, type, d_ids, y.data, n_tokens, n, 1.5f};
    bool ran = embed_ref(&params) && table->embed(&on_device, (Stream){0});
    check(ran, y, want, (Tolerance){.abs = 1e-7, .rel = 1e-6, .min_cosine = 1 - 1e-12}, info->name, n_tokens);
    device_free(d_rows);
    device_free(d_ids);
    free(rows);
    free(ids);
}

void test_pointwise(const KernelTable *table, bool is_short)
{
    enum { SHORT = 2000 };
    static const size_t sizes[] = {0, 1, 3, 4, 5, 255, 256, 1024, 1025, 3000001};
    static const uint32_t counts[] = {0, 1, 2, 15, 16, 17, 65535, 65536, 65537};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && (!is_short || sizes[i] < SHORT); i++) {
        for (size_t shift = 0; shift < 2; shift++) test_vector_add(table, sizes[i], shift);
        test_glu(table, sizes[i], GLU_SILU);
        test_glu(table, sizes[i], GLU_GELU_TANH);
        test_softcap(table, sizes[i]);
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts && (!is_short || counts[i] < SHORT); i++) {
        test_rmsnorm(table, counts[i], 1);
        test_rmsnorm(table, counts[i], 33);
        if (counts[i] > 0) test_rope(table, counts[i], 3, 10, 4);
        test_embed(table, DTYPE_Q8_0, counts[i], 1);
    }
    test_rmsnorm(table, 3, 128);
    test_rmsnorm(table, 2, 16384);
    test_rope(table, 5, 32, 128, 64);
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) test_embed(table, TYPES[i], 72, 3);
    device_report(!table->embed(&(EmbedParams){.type = (DType)99}, (Stream){0}), "embed takes type 99");
}
