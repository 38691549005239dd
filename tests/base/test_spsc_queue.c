/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spsc_queue.h"

#include <criterion/criterion.h>

static SpscQueue *make(size_t item_bytes, size_t capacity)
{
    Error error;
    SpscQueue *queue = NULL;
    cr_assert(spsc_new(item_bytes, capacity, &queue, &error), "%s", error.text);
    return queue;
}

Test(spsc_queue, refuses_nonsense)
{
    SpscQueue *queue = NULL;
    Error error = {0};
    cr_assert_not(spsc_new(0, 4, &queue, &error));
    cr_assert_not(spsc_new(8, 0, &queue, &error));
    cr_assert_not(spsc_new(8, SIZE_MAX, &queue, &error));
    cr_assert_eq(error.code, ERR_INVALID);
    cr_assert_not(spsc_new(SIZE_MAX / 4, 8, &queue, &error));
    cr_assert_eq(error.code, ERR_NO_MEMORY);
    cr_assert_null(queue);
    spsc_free(NULL);
}

Test(spsc_queue, full_and_empty_are_answers)
{
    SpscQueue *queue = make(sizeof(uint32_t), 3); /* rounded up to 4 */
    uint32_t item = 0;
    cr_assert_not(spsc_pop(queue, &item));
    for (item = 0; item < 4; item++) cr_assert(spsc_push(queue, &item));
    cr_assert_not(spsc_push(queue, &item));
    for (uint32_t want = 0; want < 4; want++) {
        cr_assert(spsc_pop(queue, &item));
        cr_assert_eq(item, want);
    }
    cr_assert_not(spsc_pop(queue, &item));
    spsc_free(queue);
}

Test(spsc_queue, keeps_order_over_many_turns)
{
    typedef struct {
        uint64_t a;
        char b[13];
    } Odd;
    SpscQueue *queue = make(sizeof(Odd), 1);
    for (uint64_t i = 0; i < 1000; i++) {
        Odd in = {.a = i, .b = "twelve chars"}, out = {0};
        cr_assert(spsc_push(queue, &in));
        cr_assert_not(spsc_push(queue, &in));
        cr_assert(spsc_pop(queue, &out));
        cr_assert_eq(out.a, i);
        cr_assert_str_eq(out.b, in.b);
    }
    spsc_free(queue);
}
