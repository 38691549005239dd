/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv/kv_budget.h"

/* Of each class, what the policy that takes most of it needs for one context. */
static void need_of_context(const KvBudget *budget, uint32_t n_tokens, KvShare *ret_needs)
{
    const KvClassTable *table = budget->classes;
    for (uint32_t i = 0; i < table->n_classes; i++) ret_needs[i] = (KvShare){0};
    for (PolicyId policy = 0; policy < budget->n_policies; policy++)
        for (uint32_t c = 0; c < table->policies[policy].n_classes; c++) {
            KvShare need = kv_class_need(table, policy, c, n_tokens, budget->max_rows);
            KvShare *most = &ret_needs[table->policies[policy].classes[c].class_id];
            if (need.n_pages > most->n_pages) most->n_pages = need.n_pages;
            if (need.n_images > most->n_images) most->n_images = need.n_images;
        }
}

KvBytes kv_budget_need(const KvBudget *budget, uint32_t n_tokens, uint32_t n_passes, KvShare *ret_needs)
{
    KvBytes bytes = {0};
    need_of_context(budget, n_tokens, ret_needs);
    for (uint32_t i = 0; i < budget->classes->n_classes; i++) {
        KvShare *need = &ret_needs[i];
        if (need->n_images) need->n_images = n_passes * need->n_images + budget->max_sequences;
        bytes.pages += need->n_pages * budget->classes->classes[i].page_bytes;
        bytes.images += need->n_images * budget->classes->classes[i].image_bytes;
    }
    return bytes;
}

KvBytes kv_budget_need_in(const KvBudget *budget, uint32_t n_tokens, uint64_t room, KvShare *ret_needs)
{
    for (uint32_t n_passes = budget->max_passes;; n_passes--) {
        KvBytes need = kv_budget_need(budget, n_tokens, n_passes, ret_needs);
        if (n_passes <= 1 || need.images + need.pages <= room) return need;
    }
}

uint32_t kv_budget_longest(const KvBudget *budget, uint32_t limit, uint64_t room, KvShare *needs)
{
    uint32_t fits = 0;
    for (uint32_t step = 1u << 31; step; step >>= 1) {
        if (step > limit - fits) continue;
        KvBytes need = kv_budget_need(budget, fits + step, 1, needs);
        if (need.pages + need.images <= room) fits += step;
    }
    return fits;
}

void kv_budget_scale(const KvBudget *budget, uint64_t from, uint64_t to, KvShare *shares)
{
    for (uint32_t i = 0; i < budget->classes->n_classes; i++)
        shares[i].n_pages = (uint64_t)((long double)shares[i].n_pages * (long double)to / (long double)from);
}
