/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv/kv_memory.h"
#include "tests/support/kv_rig.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>

static Error error;

/* Bytes of all pools that are really there. */
static uint64_t count_resident(const KvRig *rig)
{
    uint64_t n = 0, budget = kv_memory_usage(rig->memory).total_bytes;
    unsigned char there[1];
    for (uint32_t c = 0; c < rig->classes.n_classes; c++) {
        const KvPool *pools[2] = {kv_memory_pool(rig->memory, c), kv_memory_image_pool(rig->memory, c)};
        for (int i = 0; i < 2; i++)
            for (size_t at = 0; pools[i] && at + 4096 <= budget / pools[i]->page_bytes * pools[i]->page_bytes;
                 at += 4096)
                n += mincore(pools[i]->base + at, 4096, there) == 0 && there[0] & 1 ? 4096 : 0;
    }
    return n;
}

/* Pages of class_id that can still be had. */
static uint32_t count_free(const KvMemory *memory, uint32_t class_id, bool with_image)
{
    uint32_t n = 0;
    while (kv_memory_has(memory, &(KvWant){class_id, n + 1, with_image ? n + 1 : 0}, 1, 0)) n++;
    return n;
}

static const KvClass *class_at(const KvRig *rig, uint32_t i)
{
    return &rig->classes.classes[i];
}

Test(test_kv_memory, a_budget_pays_for_any_class)
{
    KvRig rig;
    kv_rig_open(&rig, false, "full=int8", 10 * 4096 * 3, 1);
    const uint32_t a = 0, b = 2; /* full of the dense policy, stream of the second */
    cr_assert(class_at(&rig, a)->image_bytes && !class_at(&rig, b)->image_bytes);
    uint64_t budget = kv_memory_usage(rig.memory).total_bytes;
    PageId pages[64];
    for (int round = 0; round < 3; round++) {
        uint32_t n = count_free(rig.memory, a, true);
        cr_assert_eq(n, budget / (class_at(&rig, a)->page_bytes + class_at(&rig, a)->image_bytes));
        for (uint32_t i = 0; i < n; i++) pages[i] = kv_page_take(rig.memory, a, true);
        cr_expect_eq(count_free(rig.memory, a, true), 0);
        for (uint32_t i = 0; i < n; i++) {
            size_t bytes;
            char *data = kv_page_data(rig.memory, pages[i], &bytes);
            memset(data, (int)i, bytes);
            kv_page_drop_image(rig.memory, pages[i]);
            data = kv_page_data(rig.memory, pages[i], &bytes);
            memset(data, (int)(i + 100), bytes);
        }
        uint32_t n_more = count_free(rig.memory, b, false);
        cr_expect_eq(n_more, n * class_at(&rig, a)->image_bytes / class_at(&rig, b)->page_bytes);
        for (uint32_t i = 0; i < n; i++) {
            size_t bytes;
            const char *data = kv_page_data(rig.memory, pages[i], &bytes);
            for (size_t at = 0; at < bytes; at++) cr_assert_eq(data[at], (char)(i + 100), "page %u at %zu", i, at);
            kv_page_unref(rig.memory, pages[i]);
        }
        n = count_free(rig.memory, b, false);
        cr_assert_eq(n, budget / class_at(&rig, b)->page_bytes);
        for (uint32_t i = 0; i < n; i++) {
            size_t bytes;
            pages[i] = kv_page_take(rig.memory, b, false);
            memset(kv_page_data(rig.memory, pages[i], &bytes), 1, class_at(&rig, b)->page_bytes);
        }
        uint64_t resident = count_resident(&rig);
        cr_expect(resident > budget / 2 && resident <= budget, "%llu of %llu bytes", (unsigned long long)resident,
                  (unsigned long long)budget);
        for (uint32_t i = 0; i < n; i++) kv_page_unref(rig.memory, pages[i]);
        cr_expect_eq(kv_memory_usage(rig.memory).used_bytes, 0);
    }
    kv_rig_close(&rig);
}

Test(test_kv_memory, counts_owners)
{
    KvRig rig;
    kv_rig_open(&rig, false, "full=int8", 1 << 20, 1);
    PageId page = kv_page_take(rig.memory, 0, true);
    cr_expect(kv_page_class(page) == 0 && kv_page_id(0, kv_page_index(page)) == page);
    cr_expect_neq(kv_page_image(rig.memory, page), KV_NO_IMAGE);
    KvUsage usage = kv_memory_usage(rig.memory);
    cr_expect_eq(usage.used_bytes, class_at(&rig, 0)->page_bytes + class_at(&rig, 0)->image_bytes);
    cr_expect(usage.n_pages_used == 1 && usage.used_tokens >= KV_PAGE_TOKENS);
    kv_page_ref(rig.memory, page);
    cr_expect_eq(kv_page_owners(rig.memory, page), 2);
    kv_page_drop_image(rig.memory, page);
    kv_page_drop_image(rig.memory, page);
    cr_expect_eq(kv_page_image(rig.memory, page), KV_NO_IMAGE);
    cr_expect_eq(kv_memory_usage(rig.memory).used_bytes, class_at(&rig, 0)->page_bytes);
    kv_page_unref(rig.memory, page);
    cr_expect_eq(kv_page_owners(rig.memory, page), 1);
    kv_page_unref(rig.memory, page);
    cr_expect_eq(kv_page_owners(rig.memory, page), 0);
    cr_expect_eq(kv_page_owners(rig.memory, PAGE_NONE), 0);
    cr_expect_eq(kv_page_owners(rig.memory, kv_page_id(0, 77)), 0);
    kv_rig_close(&rig);
}

Test(test_kv_memory, refuses_a_budget_below_a_page)
{
    KvRig rig;
    KvMemory *memory = NULL;
    kv_rig_open(&rig, false, "f16", 1 << 20, 1);
    cr_expect_not(kv_memory_new(&rig.classes, 100, &memory, &error));
    cr_expect_str_eq(error.param, "host_memory");
    cr_expect_null(memory);
    kv_memory_free(NULL);
    kv_rig_close(&rig);
}

Test(test_kv_memory, memory_beside_the_pages_is_of_the_budget)
{
    KvRig rig;
    uint64_t budget = 1 << 20;
    kv_rig_open(&rig, false, "f16", budget, 1);
    uint32_t n_all = count_free(rig.memory, 0, false);
    uint64_t page_bytes = rig.classes.classes[0].page_bytes;
    kv_memory_charge(rig.memory, 3 * page_bytes);
    cr_expect_eq(count_free(rig.memory, 0, false), (budget - 3 * page_bytes) / page_bytes);
    cr_expect_eq(kv_memory_usage(rig.memory).used_bytes, 3 * page_bytes);
    cr_expect_not(kv_memory_has(rig.memory, NULL, 0, budget - 3 * page_bytes + 1));
    cr_expect(kv_memory_has(rig.memory, NULL, 0, budget - 3 * page_bytes));
    kv_memory_charge(rig.memory, budget - 3 * page_bytes);
    cr_expect_eq(count_free(rig.memory, 0, false), 0);
    cr_expect_not(kv_memory_has(rig.memory, NULL, 0, 1));
    kv_memory_discharge(rig.memory, budget);
    cr_expect_eq(count_free(rig.memory, 0, false), n_all);
    kv_rig_close(&rig);
}
