/* SPDX-License-Identifier: Apache-2.0 */
/* Policies with wavelength windows in an engine: whom they change, and when. */
#include "tests/support/engine_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { N = 260, N_DECODED = 30 };

enum { DENSE, FAR, SAME, PREFILL, DECODE, WINDOWS, N_POLICIES };

static const AttnPolicy policies[N_POLICIES] = {
    [DENSE] = {.name = "dense"},
    [FAR] = {.name = "far", .wavelength = {.k_prefill = 1e5, .k_decode = 1e5}},
    [SAME] = {.name = "same", .wavelength = {.k_prefill = 0.3, .k_decode = 0.3}},
    [PREFILL] = {.name = "prefill", .wavelength = {.k_prefill = 0.3}},
    [DECODE] = {.name = "decode", .wavelength = {.k_decode = 0.3}},
    [WINDOWS] = {.name = "windows", .wavelength = {.k_prefill = 0.3, .k_decode = 0.3, .in_window_layers = true}},
};

static EngineParams params_of(void)
{
    EngineParams params = engine_rig_params(kv_types_all(KV_F16), 1, N);
    params.policies = policies;
    params.n_policies = N_POLICIES;
    return params;
}

/* The first rows as a prompt, the rest decoded: [N, n_vocab] */
static float *run(Engine *engine, PolicyId policy, uint32_t chunk)
{
    uint32_t tokens[N], n_prompt = N - N_DECODED;
    float *logits = engine_rig_logits(engine, N);
    SeqId seq = engine_rig_seq(engine, policy);
    engine_rig_text(engine, 9, tokens, N);
    engine_rig_feed(engine, seq, ROWS_PREFILL, tokens, n_prompt, chunk, logits);
    engine_rig_feed(engine, seq, ROWS_DECODE, tokens + n_prompt, N_DECODED, 1,
                    logits + (size_t)n_prompt * engine_shape(engine)->n_vocab);
    engine_seq_close(engine, seq);
    return logits;
}

/* The first row whose logits differ; N: none does. */
static uint32_t first_difference(const Engine *engine, const float *a, const float *b)
{
    size_t row = engine_shape(engine)->n_vocab;
    uint32_t i = 0;
    while (i < N && !memcmp(a + i * row, b + i * row, row * sizeof *a)) i++;
    return i;
}

/* No pair is cut in the first page; the windows of k = 0.3 end within two pages of base 100. */
Test(test_wavelength_engine, rows_that_windows_change)
{
    static const struct {
        PolicyId a, b;
        uint32_t first;
    } cases[] = {{DENSE, FAR, N},      {DENSE, SAME, 64},
                 {DENSE, PREFILL, 64}, {DENSE, DECODE, N - N_DECODED},
                 {SAME, WINDOWS, N},   {PREFILL, SAME, N - N_DECODED}};
    Engine *engine = ENGINE_RIG(params_of(), "type=F32", "heads=2", "kv_heads=1", "head_dim=64", "rope_base=100");
    float *logits[N_POLICIES];
    for (uint32_t i = 0; i < N_POLICIES; i++) logits[i] = run(engine, i, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(first_difference(engine, logits[cases[i].a], logits[cases[i].b]), cases[i].first, "case %zu", i);
    for (uint32_t i = 0; i < N_POLICIES; i++) {
        float *chunks = run(engine, i, 37);
        cr_expect_eq(first_difference(engine, logits[i], chunks), N, "chunks change nothing");
        free(chunks);
        free(logits[i]);
    }
    engine_close(engine);
}

/* Stretched wavelengths have longer windows: of those of the unstretched ones nothing would be left in a page. */
Test(test_wavelength_engine, windows_follow_stretched_wavelengths)
{
    static const RopeOverride stretched = {ROPE_LINEAR, 1000};
    EngineParams params = params_of();
    params.rope = &stretched;
    Engine *engine = ENGINE_RIG(params, "type=F32", "heads=2", "kv_heads=1", "head_dim=64", "rope_base=100");
    float *dense = run(engine, DENSE, 0), *same = run(engine, SAME, 0);
    cr_expect_eq(first_difference(engine, dense, same), N);
    free(dense);
    free(same);
    engine_close(engine);
}

/* Layers with sliding windows stay whole unless the rule says otherwise. */
Test(test_wavelength_engine, layers_with_sliding_windows)
{
    Engine *engine = ENGINE_RIG(params_of(), "arch=gemma3", "window=200", "layers=1", "type=F32", "heads=2",
                                "kv_heads=1", "head_dim=64");
    float *dense = run(engine, DENSE, 0), *same = run(engine, SAME, 0), *windows = run(engine, WINDOWS, 0);
    cr_expect(shape_layer_window(engine_shape(engine), 0) == 200);
    cr_expect_eq(first_difference(engine, dense, same), N);
    cr_expect_eq(first_difference(engine, dense, windows), 64);
    free(dense);
    free(same);
    free(windows);
    engine_close(engine);
}
