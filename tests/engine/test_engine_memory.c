/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine asks for: one whole context at least, and nothing that is not used. */
#include "engine/engine.h"
#include "engine/select/presets.h"
#include "tests/support/engine_rig.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 64 };

static Error error;
static const uint8_t streams[2 * 2] = {1, 0, 0, 1};
static const HeadRoles roles = {"half", streams};
static const AttnPolicy policies[] = {{.name = "dense"},
                                      {"half", &roles, .sink = 64, .recent_prefill = 128, .recent_decode = 64}};

static EngineParams params_of(uint32_t max_sequences)
{
    EngineParams params = engine_rig_params((KvTypes){{KV_INT8, KV_F16, KV_F16}}, max_sequences, CHUNK);
    params.policies = policies;
    params.n_policies = 2;
    return params;
}

static bool try_open(EngineParams params, uint32_t context, Engine **ret_engine)
{
    TinyModel model = tiny_model_default();
    char path[256];
    model.context = context;
    cr_assert(tiny_model_temp(&model, path, sizeof path, &error), "%s", error.text);
    params.model_path = path;
    bool ok = engine_open(&params, ret_engine, &error);
    unlink(path);
    return ok;
}

/* Takes a sequence of each policy, one after the other, to the end of the context. */
static void fill_contexts(Engine *engine)
{
    uint32_t tokens[CHUNK];
    engine_rig_text(engine, 1, tokens, CHUNK);
    for (PolicyId policy = 0; policy < 2; policy++) {
        SeqId seq = engine_rig_seq(engine, policy);
        for (uint32_t left; (left = engine_context(engine) - engine_seq_tokens(engine, seq)) > 0;)
            engine_rig_feed(engine, seq, ROWS_PREFILL, tokens, left < CHUNK ? left : CHUNK, 0, NULL);
        engine_seq_close(engine, seq);
    }
}

Test(test_engine_memory, one_whole_context_has_to_fit)
{
    Engine *engine = NULL;
    EngineParams params = params_of(1);
    uint32_t fits = 0;
    cr_assert(try_open(params, 700, &engine), "%s", error.text);
    params.kv_bytes = engine_kv_usage(engine).total_bytes;
    engine_close(engine);
    cr_assert(try_open(params, 700, &engine), "%s", error.text);
    fill_contexts(engine);
    engine_close(engine);
    params.kv_bytes--;
    params.context = 700;
    cr_assert_not(try_open(params, 700, &engine));
    cr_expect_str_eq(error.param, "host_memory");
    const char *hint = strstr(error.text, "enough for a ctx of ");
    cr_assert(hint && sscanf(hint, "enough for a ctx of %u", &fits) == 1 && fits < 700, "%s", error.text);
    params.context = fits + 1;
    cr_expect_not(try_open(params, 700, &engine), "it holds %u", fits + 1);
    for (uint32_t asked = 0; asked <= fits; asked += fits) { /* 0: whole pages of what fits are chosen */
        params.context = asked;
        cr_assert(try_open(params, 700, &engine), "%s", error.text);
        cr_expect_eq(engine_context(engine), asked ? fits : fits / KV_PAGE_TOKENS * KV_PAGE_TOKENS);
        fill_contexts(engine);
        engine_close(engine);
    }
    params.kv_bytes = params.kv_bytes / 2;
    params.context = 0;
    cr_expect_not(try_open(params, 700, &engine), "too little to be chosen");
    cr_expect_str_eq(error.param, "host_memory");
}

static uint64_t resident_bytes(void)
{
    unsigned long long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    cr_assert(file && fscanf(file, "%llu %llu", &size, &resident) == 2);
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

Test(test_engine_memory, long_contexts_cost_nothing_before_they_are_there)
{
    enum { CONTEXT = 3000000, SEQUENCES = 64 };
    Engine *engine = NULL;
    uint64_t before = resident_bytes();
    cr_assert(try_open(params_of(SEQUENCES), CONTEXT, &engine), "%s", error.text);
    cr_expect_geq(engine_kv_usage(engine).total_bytes / CONTEXT, SEQUENCES * 2 * 2 * 32);
    cr_expect_lt(resident_bytes() - before, 48 << 20, "%llu bytes", (unsigned long long)(resident_bytes() - before));
    SeqId seqs[SEQUENCES];
    for (uint32_t i = 0; i < SEQUENCES; i++) seqs[i] = engine_rig_seq(engine, i % 2);
    cr_assert(engine_seq_reserve(engine, seqs[SEQUENCES - 1], CONTEXT, &error), "%s", error.text);
    cr_expect_not(engine_seq_reserve(engine, seqs[0], CONTEXT + 1, &error));
    cr_expect_eq(error.code, ERR_CONTEXT_LENGTH);
    PageSet set;
    engine_seq_page(engine, seqs[SEQUENCES - 1], (CONTEXT - 1) / KV_PAGE_TOKENS, &set);
    uint8_t page[1 << 16];
    cr_assert_leq(engine_page_bytes(engine, set.page[0]), sizeof page);
    memset(page, 7, sizeof page);
    cr_assert(engine_page_write(engine, set.page[0], page, &error), "%s", error.text);
    for (uint32_t i = 0; i < SEQUENCES; i++) engine_seq_close(engine, seqs[i]);
    cr_expect_eq(engine_kv_usage(engine).used_bytes, 0);
    cr_expect_lt(resident_bytes() - before, 64 << 20);
    engine_close(engine);
}

static uint64_t used(const Engine *engine)
{
    return engine_kv_usage(engine).used_bytes;
}

/* Lists that decoding makes are paid for like pages: ahead, all or nothing, and given back with the sequence. */
Test(test_engine_memory, lists_are_of_the_same_budget)
{
    enum { N = 1024, N_HEADS = 4, LIST_BYTES = 2 * 4096 };
    Engine *engine = NULL;
    EngineParams params = params_of(3);
    AttnPolicy selects = {.name = "dense"};
    PolicyId policy;
    SeqId seq, fork, third;
    params.n_policies = 1;
    cr_assert(try_open(params, 2048, &engine), "%s", error.text);
    cr_assert(wish_apply(&(AttnWish){.preset = "lserve-4k", .budget = 512}, &policies[0], &selects, &error));
    cr_assert(engine_policy_intern(engine, &selects, &policy, &error), "%s", error.text);
    cr_assert(engine_seq_new(engine, policy, &seq, &error) && engine_seq_reserve(engine, seq, 512, &error));
    uint64_t of_page = used(engine) / (512 / KV_PAGE_TOKENS);
    cr_assert(engine_seq_reserve(engine, seq, N, &error), "%s", error.text);
    cr_expect_eq(used(engine), N / KV_PAGE_TOKENS * of_page + N_HEADS * LIST_BYTES);
    cr_expect_eq(engine_need_bytes(engine, policy, N) - engine_need_bytes(engine, policy, 512),
                 (N - 512) / KV_PAGE_TOKENS * engine_policy_classes(engine, policy, &(uint32_t){0})->page_bytes +
                     N_HEADS * LIST_BYTES);
    cr_assert(engine_seq_fill(engine, seq, N, 1, &error), "%s", error.text);
    uint64_t before = used(engine);
    cr_assert(engine_seq_fork(engine, seq, &fork, &error), "%s", error.text);
    cr_expect(used(engine) == before && !engine_seq_list_bytes(engine, fork), "as long as it writes nothing");
    cr_assert(engine_seq_reserve(engine, fork, 1, &error), "%s", error.text);
    cr_expect_eq(engine_seq_list_bytes(engine, fork), N_HEADS * LIST_BYTES);
    cr_expect_eq(used(engine), before + of_page + N_HEADS * LIST_BYTES, "pages are shared, lists are not");
    engine_seq_close(engine, fork);
    cr_expect_eq(used(engine), before);
    PageSet sets[N / KV_PAGE_TOKENS];
    for (uint32_t i = 0; i < N / KV_PAGE_TOKENS; i++) engine_seq_page(engine, seq, i, &sets[i]);
    cr_assert(engine_seq_new(engine, policy, &third, &error) && engine_seq_adopt(engine, third, sets, N, &error));
    cr_expect(engine_seq_reserve(engine, third, 1, &error));
    cr_expect_eq(used(engine), before + of_page + N_HEADS * LIST_BYTES);
    engine_seq_close(engine, third);
    engine_seq_close(engine, seq);
    cr_expect_eq(used(engine), 0);
    engine_close(engine);
}
