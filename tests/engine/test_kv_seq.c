/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv/kv_seq.h"
#include "tests/support/kv_rig.h"

#include <criterion/criterion.h>
#include <string.h>

static Error error;

static SeqId new_seq(KvRig *rig, PolicyId policy, uint32_t n_tokens)
{
    SeqId seq = 0;
    cr_assert(kv_seq_new(rig->seqs, policy, &seq, &error), "%s", error.text);
    cr_assert(kv_seq_reserve(rig->seqs, seq, n_tokens, &error), "%s", error.text);
    kv_seq_advance(rig->seqs, seq, n_tokens);
    return seq;
}

static uint64_t used(const KvRig *rig)
{
    return kv_memory_usage(rig->memory).used_bytes;
}

static PageId page_of(const KvRig *rig, SeqId seq, uint32_t class, uint32_t logical_page)
{
    PageSet set;
    kv_seq_page(rig->seqs, seq, logical_page, &set);
    return set.page[class];
}

Test(test_kv_seq, a_shared_open_page_is_copied_by_who_writes_first)
{
    KvRig rig;
    kv_rig_open(&rig, false, "full=int8", 1 << 20, 3);
    SeqId a = new_seq(&rig, 0, 100), b = 0;
    size_t bytes;
    memset(kv_page_data(rig.memory, page_of(&rig, a, 0, 1), &bytes), 7, 1000);
    uint64_t before = used(&rig);
    cr_assert(kv_seq_fork(rig.seqs, a, &b, &error));
    cr_expect_eq(used(&rig), before, "sharing takes no page");
    cr_expect_eq(page_of(&rig, a, 0, 1), page_of(&rig, b, 0, 1));
    cr_expect_not(kv_seq_may_write(rig.seqs, a, 1));
    cr_assert(kv_seq_reserve(rig.seqs, b, 1, &error));
    cr_expect(kv_seq_may_write(rig.seqs, a, 1) && kv_seq_may_write(rig.seqs, b, 1));
    cr_expect_eq(page_of(&rig, a, 0, 0), page_of(&rig, b, 0, 0));
    cr_expect_neq(page_of(&rig, a, 0, 1), page_of(&rig, b, 0, 1));
    char *copy = kv_page_data(rig.memory, page_of(&rig, b, 0, 1), &bytes);
    cr_expect(copy[0] == 7 && copy[999] == 7 && copy[1000] == 0);
    cr_expect_not(kv_seq_may_write(rig.seqs, b, 64), "only what was reserved");
    kv_seq_close(rig.seqs, a);
    cr_expect_eq(kv_page_owners(rig.memory, page_of(&rig, b, 0, 0)), 1);
    kv_rig_close(&rig);
}

Test(test_kv_seq, views_tell_where_images_begin)
{
    KvRig rig;
    kv_rig_open(&rig, false, "full=int8", 1 << 20, 1);
    SeqId a = new_seq(&rig, 0, 130);
    const KvPages *view = kv_seq_views(rig.seqs, a);
    cr_assert(kv_seq_reserve(rig.seqs, a, 100, &error));
    cr_expect(view->first_image == 2 && view->image_pool == kv_memory_image_pool(rig.memory, 0));
    for (uint32_t i = 0; i < 4; i++) {
        cr_expect_eq(view->pages[i], kv_page_index(page_of(&rig, a, 0, i)));
        cr_expect_eq(kv_page_image(rig.memory, page_of(&rig, a, 0, i)) != KV_NO_IMAGE, i >= 2);
        if (i >= 2) cr_expect_eq(view->images[i - 2], kv_page_image(rig.memory, page_of(&rig, a, 0, i)));
    }
    kv_seq_advance(rig.seqs, a, 62);
    cr_expect_eq(view->first_image, 3);
    cr_expect_eq(view->images[0], kv_page_image(rig.memory, page_of(&rig, a, 0, 3)));
    cr_expect_eq(kv_page_image(rig.memory, page_of(&rig, a, 0, 2)), KV_NO_IMAGE, "it is full");
    kv_rig_close(&rig);
}

Test(test_kv_seq, windows_leave_pages_behind)
{
    KvRig rig;
    kv_rig_open(&rig, true, "f16", 1 << 20, 2);
    SeqId a = new_seq(&rig, 1, 600);
    for (uint32_t i = 0; i < 10; i++) {
        cr_expect_neq(page_of(&rig, a, 0, i), PAGE_NONE);
        cr_expect_eq(page_of(&rig, a, 1, i) != PAGE_NONE, i == 0 || i >= 8, "stream: sink 64, recent 64: page %u", i);
        cr_expect_eq(page_of(&rig, a, 2, i) != PAGE_NONE, i >= 7, "window 100: page %u", i);
    }
    cr_expect_eq(page_of(&rig, a, 0, 10), PAGE_NONE);
    kv_rig_close(&rig);
}

Test(test_kv_seq, adopts_what_somebody_kept)
{
    KvRig rig;
    kv_rig_open(&rig, true, "full=int8", 1 << 20, 2);
    PageSet sets[10];
    SeqId a = new_seq(&rig, 0, 600), b = 0;
    for (uint32_t i = 0; i < 10; i++) kv_seq_page(rig.seqs, a, i, &sets[i]);
    cr_assert(kv_seq_new(rig.seqs, 0, &b, &error));
    uint64_t before = used(&rig);
    cr_expect_not(kv_seq_adopt(rig.seqs, b, sets, 512, &error), "the window class lacks its pages there");
    cr_expect_not(kv_seq_adopt(rig.seqs, b, sets, 570, &error), "half a closed page");
    PageSet wrong = sets[9];
    wrong.page[0] = sets[9].page[1];
    sets[9].page[1] = PAGE_NONE;
    cr_expect_not(kv_seq_adopt(rig.seqs, b, sets, 600, &error));
    sets[9] = wrong;
    cr_expect_not(kv_seq_adopt(rig.seqs, b, sets, 600, &error), "a page of another class");
    cr_expect_not(kv_seq_adopt(rig.seqs, b, sets, RIG_CONTEXT + 1, &error));
    cr_expect(kv_seq_tokens(rig.seqs, b) == 0 && used(&rig) == before);
    kv_seq_page(rig.seqs, a, 9, &sets[9]);
    cr_assert(kv_seq_reserve(rig.seqs, b, 100, &error));
    cr_assert(kv_seq_adopt(rig.seqs, b, sets, 590, &error), "%s", error.text);
    cr_expect_eq(kv_seq_tokens(rig.seqs, b), 590);
    cr_expect_eq(used(&rig), before, "the reserved pages went");
    cr_expect_not(kv_seq_adopt(rig.seqs, b, sets, 64, &error), "not at the end of a page");
    kv_seq_close(rig.seqs, a);
    cr_expect(kv_seq_may_write(rig.seqs, b, 1), "nobody else is left");
    kv_rig_close(&rig);
}

/* A cache may keep pages that the sequence itself has left long ago. */
Test(test_kv_seq, adopted_pages_that_no_query_sees_are_left)
{
    KvRig rig;
    kv_rig_open(&rig, true, "f16", 1 << 20, 2);
    PageSet sets[10];
    SeqId a = new_seq(&rig, 1, 0), b = new_seq(&rig, 1, 0);
    for (uint32_t i = 0; i < 10; i++) {
        cr_assert(kv_seq_reserve(rig.seqs, a, KV_PAGE_TOKENS, &error), "%s", error.text);
        kv_seq_advance(rig.seqs, a, KV_PAGE_TOKENS);
        kv_seq_page(rig.seqs, a, i, &sets[i]);
        for (uint32_t c = 0; c < 3; c++) kv_page_ref(rig.memory, sets[i].page[c]);
    }
    cr_assert(kv_seq_adopt(rig.seqs, b, sets, 640, &error), "%s", error.text);
    for (uint32_t i = 0; i < 10; i++)
        for (uint32_t c = 0; c < 3; c++) {
            cr_expect_eq(page_of(&rig, b, c, i), page_of(&rig, a, c, i), "class %u page %u", c, i);
            kv_page_unref(rig.memory, sets[i].page[c]);
        }
    kv_rig_close(&rig);
}

static void expect_within_need(bool has_window, const char *kv_types, PolicyId policy, uint32_t max_rows)
{
    KvRig rig;
    SeqId seq = 0;
    kv_rig_open(&rig, has_window, kv_types, 4 << 20, 1);
    cr_assert(kv_seq_new(rig.seqs, policy, &seq, &error));
    for (uint32_t n = 0, i = 0, rows; n < RIG_CONTEXT; i++) {
        rows = i % 2 ? max_rows : max_rows * 2 / 3 + 1;
        rows = rows < RIG_CONTEXT - n ? rows : RIG_CONTEXT - n;
        cr_assert(kv_seq_reserve(rig.seqs, seq, rows, &error), "%s", error.text);
        uint64_t need = kv_classes_need_bytes(&rig.classes, policy, n + rows, max_rows);
        cr_expect_leq(used(&rig), need, "%s, policy %u: %u tokens and %u of at most %u more", kv_types, policy, n, rows,
                      max_rows);
        kv_seq_advance(rig.seqs, seq, rows);
        n += rows;
    }
    kv_rig_close(&rig);
}

Test(test_kv_seq, takes_no_more_than_it_is_said_to_need)
{
    static const uint32_t max_rows[] = {1, 5, 64, 65, 100, 256, RIG_CONTEXT};
    static const char *const types[] = {"f16", "int8", "full=int4,stream=f8,window=bf16"};
    for (uint32_t i = 0; i < sizeof max_rows / sizeof *max_rows; i++)
        for (uint32_t t = 0; t < 3; t++)
            for (PolicyId policy = 0; policy < RIG_POLICIES; policy++)
                for (int has_window = 0; has_window < 2; has_window++)
                    expect_within_need(has_window, types[t], policy, max_rows[i]);
}

Test(test_kv_seq, errors_change_nothing)
{
    KvRig rig;
    kv_rig_open(&rig, true, "full=int8", 40 * 4096, 2);
    SeqId a = new_seq(&rig, 0, 10), b = 0;
    uint64_t before = used(&rig);
    cr_expect_not(kv_seq_reserve(rig.seqs, a, RIG_CONTEXT - 9, &error));
    cr_expect_eq(error.code, ERR_CONTEXT_LENGTH);
    cr_expect_not(kv_seq_reserve(rig.seqs, a, RIG_CONTEXT - 10, &error));
    cr_expect_eq(error.code, ERR_BUSY);
    cr_expect_eq(used(&rig), before);
    cr_expect_not(kv_seq_may_write(rig.seqs, a, UINT32_MAX));
    cr_expect_not(kv_seq_new(rig.seqs, RIG_POLICIES, &b, &error));
    cr_assert(kv_seq_new(rig.seqs, 1, &b, &error));
    cr_expect_eq(kv_seq_policy(rig.seqs, b), 1);
    SeqId c = 9;
    cr_expect_not(kv_seq_new(rig.seqs, 0, &c, &error));
    cr_expect_eq(error.code, ERR_BUSY);
    cr_expect_not(kv_seq_fork(rig.seqs, a, &c, &error));
    cr_expect(c == 9 && !kv_seq_is_open(rig.seqs, 2) && used(&rig) == before);
    kv_rig_close(&rig);
}
