/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv/kv_class.h"
#include "engine/select/presets.h"
#include "tests/support/kv_rig.h"

#include <criterion/criterion.h>
#include <string.h>

static Error error;

Test(test_kv_class, types_are_one_for_all_or_by_class)
{
    KvTypes types;
    cr_assert(kv_types_parse("bf16", &types, &error));
    for (int i = 0; i < KV_N_KINDS; i++) cr_expect_eq(types.of[i], KV_BF16);
    cr_assert(kv_types_parse("stream=int4,full=int8", &types, &error));
    cr_expect(types.of[KV_FULL] == KV_INT8 && types.of[KV_STREAM] == KV_INT4 && types.of[KV_WINDOW] == KV_F16);
    static const char *const bad[] = {"",          "f64",     "full=",       "=f16",   "full=f16,",
                                      "F16",       "all=f16", "full=f16,f8", "f16,f8", "full=f8,full=f8",
                                      "full=f16x", "full f8"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        types = (KvTypes){{KV_F8, KV_F8, KV_F8}};
        cr_expect_not(kv_types_parse(bad[i], &types, &error), "'%s'", bad[i]);
        cr_expect_str_eq(error.param, "kv_type");
        cr_expect_eq(types.of[0], KV_F8, "untouched");
    }
}

/* Every head has a slot of its own in one class of each policy, and classes are shared where they are equal. */
static void check_heads(const KvRig *rig, PolicyId policy)
{
    const KvPolicyMap *map = &rig->classes.policies[policy];
    uint32_t n_slots = 0;
    for (uint32_t c = 0; c < map->n_classes; c++) {
        const KvClass *class = &rig->classes.classes[map->classes[c].class_id];
        bool seen[RIG_LAYERS * RIG_KV_HEADS] = {0};
        n_slots += class->n_slots;
        for (uint32_t i = 0; i < RIG_LAYERS * RIG_KV_HEADS; i++) {
            cr_expect_eq(class->slots[i] != KV_NO_SLOT, map->heads[i].class_index == c);
            if (map->heads[i].class_index != c) continue;
            cr_expect_eq(class->slots[i], map->heads[i].slot);
            cr_expect(map->heads[i].slot < class->n_slots && !seen[map->heads[i].slot]);
            seen[map->heads[i].slot] = true;
        }
    }
    cr_expect_eq(n_slots, RIG_LAYERS * RIG_KV_HEADS);
}

Test(test_kv_class, heads_find_their_classes)
{
    for (int has_window = 0; has_window < 2; has_window++) {
        KvRig rig;
        kv_rig_open(&rig, has_window, "full=int8", 1 << 20, 1);
        for (PolicyId policy = 0; policy < RIG_POLICIES; policy++) check_heads(&rig, policy);
        const KvPolicyMap *dense = &rig.classes.policies[0], *some = &rig.classes.policies[1];
        cr_expect_eq(dense->n_classes, has_window ? 2 : 1);
        cr_expect_eq(some->n_classes, has_window ? 3 : 2);
        cr_expect_str_eq(some->classes[0].name, "full");
        cr_expect_str_eq(some->classes[1].name, "stream");
        cr_expect(some->classes[0].is_quantised && !some->classes[1].is_quantised);
        cr_expect(some->classes[0].window == PLAN_ALL && some->classes[1].sink == 64 && some->classes[1].window == 64);
        cr_expect_eq(rig.classes.policies[2].classes[1].window, 128, "the larger of prefill's and decode's");
        if (has_window) cr_expect_eq(some->classes[2].class_id, dense->classes[1].class_id, "one window class");
        cr_expect_neq(some->classes[0].class_id, dense->classes[0].class_id, "other heads, another class");
        cr_expect_eq(rig.classes.n_classes, has_window ? 6 : 5);
        kv_rig_close(&rig);
    }
}

Test(test_kv_class, refuses_roles_that_break_the_rules)
{
    KvRig rig;
    KvClassTable table = {0};
    const KvTypes types = {{KV_F16, KV_F16, KV_F16}};
    const AttnPolicy bad[] = {{"a", NULL, 63, 64, 64},
                              {"a", NULL, 64, 0, 64},
                              {"a", NULL, 64, 64, 0},
                              {"a", NULL, 64, 64, 65},
                              {"a", NULL, 0, UINT32_MAX - 63, 64}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        kv_rig_shape(&rig, false);
        rig.policies[1] = bad[i];
        rig.policies[1].roles = &rig.roles[1];
        cr_expect_not(kv_classes_init(&rig.shape, rig.policies, RIG_POLICIES, &types, &table, &error), "%zu", i);
        cr_expect_str_eq(error.param, "roles");
    }
    kv_rig_shape(&rig, true);
    rig.streams[1][0] = 1;
    cr_expect_not(kv_classes_init(&rig.shape, rig.policies, RIG_POLICIES, &types, &table, &error));
    cr_expect(strstr(error.text, "layer 0"), "%s", error.text);
}

Test(test_kv_class, windows_bound_what_a_sequence_needs)
{
    KvRig rig;
    kv_rig_open(&rig, true, "full=int8", 1 << 20, 1);
    const KvPolicyMap *map = &rig.classes.policies[0];
    const KvClass *full = &rig.classes.classes[map->classes[0].class_id];
    const KvClass *window = &rig.classes.classes[map->classes[1].class_id];
    cr_expect_eq(kv_classes_need_bytes(&rig.classes, 0, 1, 64),
                 full->page_bytes + full->image_bytes + window->page_bytes);
    uint64_t more =
        kv_classes_need_bytes(&rig.classes, 0, 64000, 64) - kv_classes_need_bytes(&rig.classes, 0, 32000, 64);
    cr_expect_eq(more, 500 * full->page_bytes, "only the full class grows");
    kv_rig_close(&rig);
}

/* A page is needed as long as the plan of a query still sees a key of it, and no longer. */
Test(test_kv_class, pages_are_needed_while_a_query_sees_them)
{
    static const uint32_t windows[] = {1, 2, 63, 64, 65, 128, 200, PLAN_ALL};
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
        for (uint32_t sink = 0; sink <= 128; sink += 64) {
            const KvClassInfo info = {.sink = sink, .window = windows[w]};
            const AttnPlan plan = {.sink = sink, .recent = windows[w]};
            for (uint32_t n = 0; n < 500; n++)
                for (uint32_t first = 0; first + KV_PAGE_TOKENS <= n; first += KV_PAGE_TOKENS) {
                    bool is_seen = false;
                    for (uint32_t i = 0; i < KV_PAGE_TOKENS; i++) is_seen |= plan_sees(&plan, n, first + i);
                    cr_assert_eq(kv_class_needs(&info, n, first), is_seen, "window %u, sink %u, query %u, page of %u",
                                 windows[w], sink, n, first);
                }
        }
}

static uint64_t bytes_at(const char *shape, KvType type, uint64_t n_tokens)
{
    const KvTypes types = kv_types_all(type);
    return kv_tokens_bytes(shape_by_name(shape), &types, n_tokens);
}

Test(test_kv_class, bytes_of_named_shapes)
{
    cr_expect_eq(bytes_at("llama-3.1-8b", KV_F16, 1), 128 * 1024);
    cr_expect_eq(bytes_at("llama-3.1-8b", KV_F32, 1), 256 * 1024);
    cr_expect_eq(bytes_at("llama-3.1-8b", KV_F16, 131072), 16ull << 30);
    cr_expect_eq(bytes_at("llama-3.1-8b", KV_F16, 0), 0);
    cr_expect_eq(bytes_at("llama-3.1-8b", KV_INT4, 1), 32 * 8 * 2 * (64 + 4), "two scales a head");
    cr_expect_eq(bytes_at("smollm2-135m", KV_F16, 1), 23040);
    uint64_t layer = 2 * 256 * 2;
    cr_expect_eq(bytes_at("gemma3-270m", KV_BF16, 512), 18 * 512 * layer);
    cr_expect_eq(bytes_at("gemma3-270m", KV_BF16, 513), (15 * 512 + 3 * 513) * layer);
    cr_expect_eq(bytes_at("gemma3-270m", KV_BF16, 32768), (15 * 512 + 3 * 32768) * layer);
    const KvTypes mixed = {{KV_F32, KV_F32, KV_F16}};
    cr_expect_eq(kv_token_bytes(shape_by_name("gemma3-270m"), &mixed), (15 + 2 * 3) * layer);
}

/* A device's pages are of one kind: bounds lie in all of them as soon as one policy reads bounds. */
Test(test_kv_class, on_a_device_all_policies_share_bounds_or_none_has_them)
{
    static const ModelShape shape = {.n_layers = 2, .n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .v_dim = 64};
    const AttnPolicy policies[] = {{.name = "dense"}, *preset_find("lserve-4k")};
    const KvTypes types = kv_types_all(KV_BF16);
    for (uint32_t n = 1; n <= 2; n++) {
        KvClassTable table;
        cr_assert(kv_classes_init_shared(&shape, policies, n, &types, &table, &error), "%s", error.text);
        cr_expect_eq(table.n_classes, 1);
        cr_expect_eq(kv_classes_have_bounds(&table), n == 2);
        for (uint32_t i = 0; i < n; i++) cr_expect_eq(table.policies[i].classes[0].class_id, 0);
        kv_classes_done(&table);
    }
}
