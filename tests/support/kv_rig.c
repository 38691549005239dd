/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/kv_rig.h"

#include <criterion/criterion.h>

void kv_rig_shape(KvRig *rig, bool has_window)
{
    *rig = (KvRig){.shape = {.n_layers = RIG_LAYERS,
                             .n_kv_heads = RIG_KV_HEADS,
                             .n_heads = RIG_KV_HEADS,
                             .head_dim = 16,
                             .v_dim = 8,
                             .window_tokens = has_window ? 100 : 0,
                             .full_layer_period = has_window ? 4 : 0}};
    static const char *const names[RIG_POLICIES] = {"dense", "some", "others"};
    for (uint32_t p = 0; p < RIG_POLICIES; p++) {
        for (uint32_t i = 0; p > 0 && i < RIG_LAYERS * RIG_KV_HEADS; i++) {
            bool sees_all = !has_window || i / RIG_KV_HEADS == RIG_LAYERS - 1;
            rig->streams[p][i] = sees_all && (p == 1 ? i % 2 == 0 : i % 4 == 3);
        }
        rig->roles[p] = (HeadRoles){.name = names[p], .streams = rig->streams[p]};
        rig->policies[p] = (AttnPolicy){names[p], p ? &rig->roles[p] : NULL, 64 * (p % 2), 64 * p, 64};
    }
}

void kv_rig_open(KvRig *rig, bool has_window, const char *kv_types, uint64_t budget_bytes, uint32_t max_sequences)
{
    Error error;
    KvTypes types;
    kv_rig_shape(rig, has_window);
    cr_assert(kv_types_parse(kv_types, &types, &error), "%s", error.text);
    cr_assert(kv_classes_init(&rig->shape, rig->policies, RIG_POLICIES, &types, &rig->classes, &error), "%s",
              error.text);
    cr_assert(kv_memory_new(&rig->classes, budget_bytes, &rig->memory, &error), "%s", error.text);
    const KvSeqsParams params = {&rig->classes, rig->memory, RIG_CONTEXT, max_sequences};
    cr_assert(kv_seqs_new(&params, &rig->seqs, &error), "%s", error.text);
}

void kv_rig_close(KvRig *rig)
{
    kv_seqs_free(rig->seqs);
    cr_assert_eq(kv_memory_usage(rig->memory).used_bytes, 0, "pages are left");
    cr_assert_eq(kv_memory_usage(rig->memory).n_pages_used, 0);
    kv_memory_free(rig->memory);
    kv_classes_done(&rig->classes);
}
