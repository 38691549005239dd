/* SPDX-License-Identifier: Apache-2.0 */
/* Policies that come with requests, among those that an engine was opened with; presets and what may be changed of
 * them. */
#include "engine/engine_state.h"
#include "engine/select/policy_check.h"
#include "engine/select/presets.h"
#include "tests/support/engine_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static Error error;

static const uint8_t streams[2 * 2] = {1, 0, 0, 0};
static const HeadRoles roles = {"one", streams}, strange = {"other", streams};
static const AttnPolicy own[] = {{.name = "dense"},
                                 {"one", &roles, .sink = 64, .recent_prefill = 64, .recent_decode = 64}};

static Engine *open_engine(void)
{
    EngineParams params = engine_rig_params(kv_types_all(KV_F16), 2, 64);
    params.policies = own;
    params.n_policies = 2;
    return ENGINE_RIG(params, NULL);
}

static AttnPolicy with_budget(uint32_t budget, const AttnPolicy *base)
{
    AttnPolicy policy;
    cr_assert(wish_apply(&(AttnWish){.preset = "lserve-4k", .budget = budget}, base, &policy, &error), "%s",
              error.text);
    return policy;
}

static PolicyId intern(Engine *engine, const AttnPolicy *policy)
{
    PolicyId id = 0;
    cr_assert(engine_policy_intern(engine, policy, &id, &error), "%s", error.text);
    return id;
}

Test(policies, equal_ones_are_one)
{
    Engine *engine = open_engine();
    AttnPolicy a = with_budget(512, &own[0]), b = with_budget(1024, &own[0]), c = with_budget(512, &own[1]);
    PolicyId first = intern(engine, &a);
    cr_expect_eq(intern(engine, &a), first);
    cr_expect_neq(intern(engine, &b), first);
    PolicyId third = intern(engine, &c);
    cr_expect_neq(third, first);
    cr_expect_eq(intern(engine, &own[1]), 1, "the engine's own");
    cr_expect_null(engine_policy(engine, 2), "those of requests are not among them");
    cr_expect_eq(engine_policy(engine, third)->roles, &roles);
    /* Bounds lie in pages of their own class. */
    uint32_t n;
    const KvClassInfo *dense = engine_policy_classes(engine, 0, &n);
    const KvClassInfo *bounded = engine_policy_classes(engine, first, &n);
    cr_expect(n == 1 && bounded->class_id != dense->class_id && bounded->page_bytes >= dense->page_bytes);
    (void)engine_policy_classes(engine, third, &n);
    cr_expect_eq(n, 2, "one for the heads that stream");
    engine_close(engine);
}

Test(policies, a_place_is_used_again_under_another_number)
{
    Engine *engine = open_engine();
    AttnPolicy policy = with_budget(512, &own[0]);
    PolicyId first = intern(engine, &policy), id, ids[POLICY_MAX_SLOTS];
    uint32_t n = 0;
    for (; 2 + 1 + n < POLICY_MAX_SLOTS; n++) {
        policy = with_budget(576 + 64 * n, &own[0]);
        ids[n] = intern(engine, &policy);
    }
    policy = with_budget(8192, &own[0]);
    cr_expect_not(engine_policy_intern(engine, &policy, &id, &error));
    cr_expect_eq(error.code, ERR_BUSY);
    engine_policy_release(engine, first);
    cr_expect_not_null(engine_policy(engine, first), "as long as nobody needs the place");
    id = intern(engine, &policy);
    cr_expect_eq(policy_slot(id), policy_slot(first));
    cr_expect_neq(id, first);
    cr_expect_null(engine_policy(engine, first));
    SeqId seq;
    cr_expect_not(engine_seq_new(engine, first, &seq, &error));
    cr_assert(engine_seq_new(engine, id, &seq, &error));
    /* Of those that are free the one that was used longest ago goes. */
    engine_policy_release(engine, ids[5]);
    engine_policy_release(engine, ids[3]);
    policy = with_budget(8256, &own[0]);
    cr_expect_eq(policy_slot(intern(engine, &policy)), policy_slot(ids[3]));
    engine_close(engine);
}

Test(policies, what_cannot_be_served_is_refused)
{
    Engine *engine = open_engine();
    AttnPolicy policy = with_budget(512, &own[0]);
    PolicyId id;
    policy.roles = &strange;
    cr_expect_not(engine_policy_intern(engine, &policy, &id, &error));
    cr_expect_str_eq(error.param, "longwave.attention.roles");
    policy = with_budget(512, &own[0]);
    policy.selection.bypass = 100;
    cr_expect_not(engine_policy_intern(engine, &policy, &id, &error));
    cr_expect_str_eq(error.param, "longwave.attention.budget");
    policy = with_budget(512, &own[0]);
    policy.selection.stages[0].unit_tokens = 48;
    cr_expect_not(engine_policy_intern(engine, &policy, &id, &error));
    /* The recent range grows until the next refresh: what a row sees then is more than the budget. */
    policy = with_budget(512, &own[0]);
    policy.selection.stages[0].refresh = 256;
    cr_expect_not(engine_policy_intern(engine, &policy, &id, &error));
    cr_expect_str_eq(error.param, "longwave.attention.budget");
    policy = with_budget(512, &own[0]);
    policy.wavelength.k_decode = -1;
    cr_expect_not(engine_policy_intern(engine, &policy, &id, &error));
    cr_expect_str_eq(error.param, "longwave.attention.wavelength");
    engine_close(engine);
}

Test(policies, presets)
{
    for (size_t i = 0; preset_name_at(i); i++) {
        const AttnPolicy *preset = preset_find(preset_name_at(i));
        AttnPolicy policy;
        cr_expect(policy_check(preset, &error), "%s: %s", preset->name, error.text);
        cr_expect(wish_apply(&(AttnWish){.preset = preset->name}, &own[0], &policy, &error));
        cr_expect(policy_equals(&policy, preset));
        for (size_t j = 0; j < i; j++) cr_expect_not(policy_equals(preset, preset_find(preset_name_at(j))));
    }
    cr_expect_null(preset_find("auto"));
    AttnPolicy policy;
    cr_assert(wish_apply(&(AttnWish){.preset = "hip-3k", .budget = 2000}, &own[0], &policy, &error));
    cr_expect_eq(policy.selection.stages[2].keep_tokens, 720, "whole sectors of what sink and recent range leave");
    cr_expect_eq(policy.selection.bypass, 2000);
    cr_expect_eq(policy.selection.early_keep_tokens, 720, "early layers see no more than was asked for");
    cr_assert(wish_apply(&(AttnWish){.preset = "hip-3k", .budget = 65536}, &own[0], &policy, &error));
    const SelectStage *stages = policy.selection.stages;
    cr_expect_eq(stages[2].keep_tokens, 65536 - 1280);
    cr_expect(stages[1].keep_tokens == 2 * stages[2].keep_tokens && stages[0].keep_tokens == 2 * stages[1].keep_tokens,
              "stages before the last leave it a choice");
    cr_expect(policy_check(&policy, &error), "%s", error.text);
    cr_assert(wish_apply(&(AttnWish){.preset = "streaming-llm", .budget = 1000}, &own[0], &policy, &error));
    cr_expect(policy.selection.recent == 896 && policy.selection.bypass == 1000);
}

/* ---- what a device refuses: before anything is computed, so one without functions will do ---- */

static Device device = {.name = "a device"};

/* Opened with lserve-4k of such a budget; 0: dense. */
static Engine *policies_on_device(uint32_t context, uint32_t budget)
{
    static const ModelShape shape = {.n_layers = 2,
                                     .n_heads = 4,
                                     .n_kv_heads = 2,
                                     .head_dim = 64,
                                     .v_dim = 64,
                                     .rope_dim = 64,
                                     .train_context = 1 << 20};
    Engine *engine = calloc(1, sizeof *engine);
    cr_assert_not_null(engine);
    *engine = (Engine){.device = &device, .shape = shape};
    arena_init(&engine->arena, 1 << 16, SIZE_MAX);
    engine->params.context = context;
    engine->params.kv_types = kv_types_all(KV_BF16);
    AttnPolicy opened[2] = {own[0]};
    if (budget) opened[1] = with_budget(budget, &own[0]);
    cr_assert(policies_open(engine, opened, budget ? 2 : 1, &error), "%s", error.text);
    return engine;
}

static void close_policies(Engine *engine)
{
    kv_classes_done(&engine->classes);
    arena_done(&engine->arena);
    free(engine);
}

Test(policies, a_device_that_was_opened_dense_selects_nothing_later)
{
    Engine *engine = policies_on_device(1 << 20, 0);
    PolicyId id;
    cr_expect_not(engine_policy_intern(engine, preset_find("lserve-4k"), &id, &error));
    cr_expect_eq(error.code, ERR_UNSUPPORTED);
    cr_expect_str_eq(error.param, "longwave.attention");
    cr_expect_not_null(strstr(error.text, "attention = lserve-4k"));
    close_policies(engine);
}

Test(policies, lists_longer_than_a_device_has_room_for_are_refused)
{
    Engine *engine = policies_on_device(1 << 20, 16384);
    cr_expect_eq(engine->max_list, 16384 / KV_SECTOR_TOKENS);
    AttnPolicy policy = with_budget(16448, &own[0]);
    PolicyId id;
    cr_expect_not(engine_policy_intern(engine, &policy, &id, &error));
    cr_expect_eq(error.code, ERR_UNSUPPORTED);
    cr_expect_str_eq(error.param, "longwave.attention.budget");
    cr_expect_not_null(strstr(error.text, "room for 16384"), "%s", error.text);
    cr_expect_not(engine_policy_intern(engine, preset_find("hip-3k"), &id, &error));
    cr_expect_not_null(strstr(error.text, "device = cpu"), "%s", error.text);
    close_policies(engine);
}

/* However large a budget is, a list holds no more than the context. */
Test(policies, lists_of_a_device_are_no_longer_than_the_context)
{
    Engine *engine = policies_on_device(4096, 1 << 19);
    cr_expect_eq(engine->max_list, 4096 / KV_SECTOR_TOKENS + KV_PAGE_SECTORS);
    close_policies(engine);
}
