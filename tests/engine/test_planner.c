/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/planner.h"
#include "kernels/table.h"
#include "tests/support/engine_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOKENS = 400, N_LAYERS = 3, N_KV_HEADS = 2, N_ROWS = 100 };

static Error error;

static const uint8_t streams[N_LAYERS * N_KV_HEADS] = {0, 1, 1, 1, 1, 0};
static const HeadRoles roles = {"some", streams};
static const AttnPolicy policies[] = {{.name = "dense"},
                                      {"some", &roles, .sink = 64, .recent_prefill = 128, .recent_decode = 64}};

static AttnPlan plan_at(const ModelShape *shape, PolicyId policy, uint32_t layer, uint32_t head, RowKind kind)
{
    const PlanQuery query = {shape, &policies[policy], layer, head, kind};
    return planner_of(&query)->plan(&query);
}

Test(test_planner, rows_of_the_table)
{
    const ModelShape shape = {.n_layers = N_LAYERS, .n_kv_heads = N_KV_HEADS};
    for (RowKind kind = ROWS_PREFILL; kind <= ROWS_DECODE; kind++)
        for (uint32_t layer = 0; layer < N_LAYERS; layer++)
            for (uint32_t head = 0; head < N_KV_HEADS; head++) {
                AttnPlan dense = plan_at(&shape, 0, layer, head, kind), some = plan_at(&shape, 1, layer, head, kind);
                bool is_streaming = streams[layer * N_KV_HEADS + head];
                cr_expect(dense.sink == 0 && dense.recent == PLAN_ALL && dense.n_list == 0);
                cr_expect_eq(some.sink, is_streaming ? 64 : 0);
                cr_expect_eq(some.recent, !is_streaming ? PLAN_ALL : kind == ROWS_PREFILL ? 128 : 64);
            }
    const ModelShape gemma = {.n_layers = N_LAYERS, .n_kv_heads = 1, .window_tokens = 50, .full_layer_period = 3};
    for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
        AttnPlan plan = plan_at(&gemma, 0, layer, 0, ROWS_DECODE);
        cr_expect(plan.sink == 0 && plan.recent == (layer == 2 ? PLAN_ALL : 50));
    }
}

/*
 * Kernels that show every query less than it asks for: layer and head of a streaming plan are made dense by the engine
 * of policy 0, and masked here. The number of a layer is counted from the calls.
 */
static struct {
    const KernelTable *real;
    uint32_t n_calls;
    RowKind kind;
} mask;

static bool attend_masked(const AttendParams *params, Stream stream)
{
    uint32_t layer = mask.n_calls++ % N_LAYERS;
    AttnPlan plans[N_KV_HEADS];
    KvSpan span = params->spans[0];
    cr_assert_eq(params->n_spans, 1);
    for (uint32_t head = 0; head < N_KV_HEADS; head++) {
        plans[head] = span.plans[head];
        cr_assert_eq(plans[head].recent, PLAN_ALL);
        if (streams[layer * N_KV_HEADS + head])
            plans[head] = (AttnPlan){.sink = 64, .recent = mask.kind == ROWS_PREFILL ? 128 : 64};
    }
    span.plans = plans;
    AttendParams masked = *params;
    masked.spans = &span;
    return mask.real->attend(&masked, stream);
}

static EngineParams params_of(KvTypes types)
{
    EngineParams params = engine_rig_params(types, 3, N_TOKENS);
    params.policies = policies;
    params.n_policies = 2;
    return params;
}

/* A prompt of all but the last rows, then those as decoded ones. Logits of all: [N_TOKENS, n_vocab] */
static float *run_text(Engine *engine, PolicyId policy, uint32_t seed, uint32_t chunk)
{
    uint32_t tokens[N_TOKENS], n_prompt = N_TOKENS - N_ROWS;
    float *logits = engine_rig_logits(engine, N_TOKENS);
    SeqId seq = engine_rig_seq(engine, policy);
    engine_rig_text(engine, seed, tokens, N_TOKENS);
    mask.kind = ROWS_PREFILL;
    engine_rig_feed(engine, seq, ROWS_PREFILL, tokens, n_prompt, chunk, logits);
    mask.kind = ROWS_DECODE;
    engine_rig_feed(engine, seq, ROWS_DECODE, tokens + n_prompt, N_ROWS, 1,
                    logits + (size_t)n_prompt * engine_shape(engine)->n_vocab);
    engine_seq_close(engine, seq);
    return logits;
}

/* What the pages of a streaming class have left behind, a dense head with that mask does not look at. */
Test(test_planner, a_streaming_head_is_a_dense_one_with_that_mask)
{
    for (KvType type = 0; type < KV_N_TYPES; type++) {
        EngineParams params = params_of(kv_types_all(type));
        mask.real = kernels_cpu();
        mask.n_calls = 0;
        KernelTable masked_kernels = *mask.real;
        masked_kernels.attend = attend_masked;
        Engine *streaming = ENGINE_RIG(params, "layers=3");
        params.kernels = &masked_kernels;
        Engine *dense = ENGINE_RIG(params, "layers=3");
        size_t bytes = (size_t)N_TOKENS * engine_shape(dense)->n_vocab * sizeof(float);
        float *wanted = run_text(dense, 0, 1, 0), *got = run_text(streaming, 1, 1, 0);
        float *chunks = run_text(streaming, 1, 1, 70), *plain = run_text(streaming, 0, 1, 0);
        cr_expect_arr_eq(got, wanted, bytes, "%s", kv_type_info(type)->name);
        cr_expect_arr_eq(chunks, wanted, bytes, "%s in chunks", kv_type_info(type)->name);
        cr_expect_neq(memcmp(got, plain, bytes), 0, "the mask matters");
        free(wanted);
        free(got);
        free(chunks);
        free(plain);
        engine_close(dense);
        engine_close(streaming);
    }
}

Test(test_planner, policies_mix_in_one_batch)
{
    const KvTypes types = {{KV_INT8, KV_F16, KV_F16}};
    Engine *engine = ENGINE_RIG(params_of(types), "layers=3");
    size_t n_vocab = engine_shape(engine)->n_vocab;
    uint32_t tokens[3][N_TOKENS], rows[N_TOKENS];
    static const PolicyId policy[3] = {1, 0, 1};
    float *wanted[3], *logits;
    SeqId seqs[3];
    for (uint32_t i = 0; i < 3; i++) {
        wanted[i] = run_text(engine, policy[i], i + 1, 0);
        engine_rig_text(engine, i + 1, tokens[i], N_TOKENS);
        seqs[i] = engine_rig_seq(engine, policy[i]);
    }
    for (uint32_t first = 0; first < N_TOKENS; first += N_ROWS) {
        RowKind kind = first < N_TOKENS - N_ROWS ? ROWS_PREFILL : ROWS_DECODE;
        BatchSpan spans[3];
        for (uint32_t i = 0; i < 3; i++) {
            spans[i] = (BatchSpan){seqs[i], i * N_ROWS, N_ROWS, first, LOGITS_ALL, kind};
            memcpy(rows + i * N_ROWS, tokens[i] + first, N_ROWS * sizeof *rows);
        }
        cr_assert(engine_forward(engine, &(Batch){rows, 3 * N_ROWS, spans, 3}, &logits, &error), "%s", error.text);
        for (uint32_t i = 0; i < 3; i++)
            cr_expect_arr_eq(logits + (size_t)i * N_ROWS * n_vocab, wanted[i] + first * n_vocab,
                             N_ROWS * n_vocab * sizeof *logits, "sequence %u from %u on", i, first);
    }
    for (uint32_t i = 0; i < 3; i++) free(wanted[i]);
    engine_close(engine);
}
