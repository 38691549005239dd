/* SPDX-License-Identifier: Apache-2.0 */
/* Pages may be read back where both numbers are the same: so what changes their bytes has to change a number. */
#include "engine/engine_state.h"
#include "engine/model/smooth.h"
#include "tests/support/engine_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, N_TOKENS = 40 };

static const uint8_t streams[2][LAYERS * 2] = {{1, 0, 0, 1}, {0, 1, 0, 1}};
static const HeadRoles roles[2] = {{"a", streams[0]}, {"b", streams[1]}};

/* The first page of a text under a policy, and the numbers that go with it. */
typedef struct Print {
    uint64_t model, policy;
    size_t bytes;
    char *page;
} Print;

static Print print_of(const char *arch, const char *seed, KvTypes types, const AttnPolicy *policy)
{
    const AttnPolicy policies[2] = {{.name = "dense"}, policy ? *policy : (AttnPolicy){0}};
    EngineParams params = engine_rig_params(types, 1, N_TOKENS);
    params.policies = policies;
    params.n_policies = policy ? 2 : 1;
    Engine *engine = ENGINE_RIG(params, arch, seed, "layers=2");
    PolicyId id = policy ? 1 : 0;
    SeqId seq = engine_rig_seq(engine, id);
    uint32_t tokens[N_TOKENS];
    PageSet set;
    Error error;
    engine_rig_text(engine, 3, tokens, N_TOKENS);
    engine_rig_feed(engine, seq, ROWS_PREFILL, tokens, N_TOKENS, 0, NULL);
    engine_seq_page(engine, seq, 0, &set);
    Print print = {.model = engine_model_fingerprint(engine),
                   .policy = engine_policy_fingerprint(engine, id),
                   .bytes = engine_page_bytes(engine, set.page[0])};
    print.page = malloc(print.bytes);
    cr_assert_not_null(print.page);
    cr_assert(engine_page_read(engine, set.page[0], KV_PAGE_TOKENS, print.page, &error), "%s", error.text);
    engine_close(engine);
    return print;
}

/* Two engines whose pages differ are told apart, and the model's own number is the weights' alone. */
static void expect_told_apart(Print a, Print b, bool by_model, const char *what)
{
    cr_expect(a.bytes != b.bytes || memcmp(a.page, b.page, a.bytes), "%s: the pages are the same", what);
    cr_expect_eq(a.model != b.model, by_model, "%s", what);
    cr_expect(by_model || a.policy != b.policy, "%s", what);
    free(a.page);
    free(b.page);
}

Test(test_fingerprint, the_same_is_the_same)
{
    Print a = print_of("arch=qwen3", "seed=1", kv_types_all(KV_F16), NULL);
    Print b = print_of("arch=qwen3", "seed=1", kv_types_all(KV_F16), NULL);
    cr_expect(a.model == b.model && a.policy == b.policy && a.bytes == b.bytes && !memcmp(a.page, b.page, a.bytes));
    free(a.page);
    free(b.page);
}

Test(test_fingerprint, other_weights_are_another_model)
{
    const KvTypes types = kv_types_all(KV_F16);
    expect_told_apart(print_of("arch=qwen3", "seed=1", types, NULL), print_of("arch=qwen3", "seed=2", types, NULL),
                      true, "seed");
}

Test(test_fingerprint, types_and_roles_count)
{
    const AttnPolicy a = {"dense", &roles[0], 64, 64, 64}, b = {"dense", &roles[1], 64, 64, 64};
    const KvTypes types = kv_types_all(KV_F16);
    expect_told_apart(print_of("arch=llama", "seed=1", types, NULL),
                      print_of("arch=llama", "seed=1", kv_types_all(KV_BF16), NULL), false, "type");
    expect_told_apart(print_of("arch=llama", "seed=1", types, &a), print_of("arch=llama", "seed=1", types, &b), false,
                      "roles");
}

/* Four bits anywhere smooth the keys of all classes: f16 pages once went from a server with them to one without. */
Test(test_fingerprint, smoothed_keys_are_others)
{
    Error error;
    Engine *engine = ENGINE_RIG(engine_rig_params(kv_types_all(KV_F16), 1, 4), "arch=qwen3");
    ((float *)(uintptr_t)engine->weights.layers[1].k_norm)[3] *= 40; /* a copy of the engine's own */
    uint64_t before = engine_policy_fingerprint(engine, 0);
    cr_expect_eq(engine_policy_fingerprint(engine, 0), before);
    cr_assert(smooth_keys(&engine->shape, &engine->weights, &error), "%s", error.text);
    cr_expect_neq(engine_policy_fingerprint(engine, 0), before);
    engine_close(engine);
}
