/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/heap.h"

#include <criterion/criterion.h>
#include <stdint.h>

enum { N = 200 };

typedef struct Member {
    uint32_t key;
    bool is_in;
    HeapLink link;
} Member;

static Member members[N];

static bool comes_before(const HeapLink *a, const HeapLink *b)
{
    return HEAP_CONST_OWNER(a, Member, link)->key < HEAP_CONST_OWNER(b, Member, link)->key;
}

static uint32_t least_key(void)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < N; i++)
        if (members[i].is_in && members[i].key < least) least = members[i].key;
    return least;
}

/* Members come and go from anywhere, with equal keys among them; the top is always one of the least. */
Test(heap, random_members)
{
    Heap heap = {.comes_before = comes_before};
    uint64_t random = 1;
    for (uint32_t i = 0; i < 100000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        Member *member = &members[(random >> 33) % N];
        bool pops = i / 1000 % 2 && heap.top && random >> 62 == 0;
        if (pops) member = HEAP_OWNER(heap.top, Member, link);
        bool was_in = member->is_in;
        cr_assert_eq(heap_remove(&heap, &member->link), was_in);
        if (!was_in) member->key = (uint32_t)(random >> 40) % 500;
        if (!was_in) heap_push(&heap, &member->link);
        member->is_in = !was_in;
        cr_assert_eq(heap.top != NULL, least_key() != UINT32_MAX);
        if (heap.top) cr_assert_eq(HEAP_OWNER(heap.top, Member, link)->key, least_key());
    }
    while (heap.top) {
        Member *top = HEAP_OWNER(heap.top, Member, link);
        cr_assert_eq(top->key, least_key());
        cr_assert(heap_remove(&heap, &top->link));
        top->is_in = false;
    }
    cr_assert_eq(least_key(), UINT32_MAX);
}
