/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/live_set.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { MAX = 100 };

static Error error;

Test(test_live_set, finds_what_was_added_until_it_is_removed)
{
    LiveSet set;
    bool is_there[4 * MAX] = {0};
    uint32_t n = 0;
    srand(3);
    cr_assert(live_set_init(&set, MAX, &error));
    for (int i = 0; i < 20000; i++) {
        RequestId id = 1 + (RequestId)(rand() % (4 * MAX - 1));
        if (is_there[id]) {
            live_set_remove(&set, id);
            n--;
        } else if (n < MAX) {
            live_set_add(&set, id);
            live_set_find(&set, id)->is_cancelled = id % 2;
            n++;
        } else {
            live_set_remove(&set, id);
            continue;
        }
        is_there[id] = !is_there[id];
        cr_assert_eq(set.n, n);
        for (RequestId other = 1; i % 50 == 0 && other < 4 * MAX; other++) {
            const Live *live = live_set_find(&set, other);
            cr_assert_eq(live != NULL, is_there[other]);
            cr_assert(!live || (live->id == other && live->is_cancelled == other % 2));
        }
    }
    live_set_done(&set);
}

Test(test_live_set, of_one)
{
    LiveSet set;
    cr_assert(live_set_init(&set, 1, &error));
    live_set_add(&set, 7);
    cr_expect_null(live_set_find(&set, 8));
    live_set_remove(&set, 8);
    live_set_remove(&set, 7);
    live_set_add(&set, 9);
    cr_expect_not_null(live_set_find(&set, 9));
    live_set_done(&set);
}
