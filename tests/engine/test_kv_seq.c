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
