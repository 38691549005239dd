/* SPDX-License-Identifier: Apache-2.0 */
#include "server/compile_queue.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

enum { ME = 1, YOU, THEM, MAX_WAITS = 16 };

static CompileWait waits[MAX_WAITS];

/* The grammar is known by one letter. */
static CompileWait *add(CompileQueue *queue, CompileWait *wait, char grammar, uint64_t client, bool is_long)
{
    *wait = (CompileWait){.grammar = {.digest = {(uint8_t)grammar}}, .client = client, .is_long = is_long};
    compile_queue_add(queue, wait);
    return wait;
}

/* The letters of all that may begin, each ending before the next one. */
static const char *order_of(CompileQueue *queue)
{
    static char order[MAX_WAITS + 1];
    size_t n = 0;
    for (CompileWait *wait; n < MAX_WAITS && (wait = compile_queue_begin(queue)); compile_queue_end(queue, wait))
        order[n++] = (char)wait->grammar.digest[0];
    order[n] = '\0';
    return order;
}

Test(compile_queue, clients_take_turns)
{
    CompileQueue queue = {0};
    for (int i = 0; i < 5; i++) add(&queue, &waits[i], (char)('a' + i), ME, false);
    add(&queue, &waits[5], 'x', YOU, false);
    add(&queue, &waits[6], 'y', YOU, false);
    add(&queue, &waits[7], '1', THEM, false);
    cr_expect(eq(str, (char *)order_of(&queue), "ax1bycde"));
    cr_expect_eq(queue.n_waiting, 0);
}

Test(compile_queue, who_comes_later_waits_for_one_of_each_other)
{
    CompileQueue queue = {0};
    for (int i = 0; i < 8; i++) add(&queue, &waits[i], (char)('a' + i), ME, false);
    for (int i = 0; i < 3; i++) compile_queue_end(&queue, compile_queue_begin(&queue));
    add(&queue, &waits[8], 'x', YOU, false);
    add(&queue, &waits[9], 'y', YOU, false);
    cr_expect(eq(str, (char *)order_of(&queue), "dxeyfgh"));
}

/* Two that come again and again, one request each, do not keep out who has many waiting. */
Test(compile_queue, nobody_starves)
{
    CompileQueue queue = {0};
    int n_mine = 0;
    for (int i = 0; i < 4; i++) add(&queue, &waits[i], (char)('a' + i), ME, false);
    add(&queue, &waits[4], 'x', YOU, false);
    add(&queue, &waits[5], 'y', THEM, false);
    for (int i = 0; i < 12; i++) {
        CompileWait *wait = compile_queue_begin(&queue);
        cr_assert_not_null(wait);
        compile_queue_end(&queue, wait);
        if (wait->client == ME)
            n_mine++;
        else
            add(&queue, wait, (char)wait->grammar.digest[0], wait->client, false);
    }
    cr_expect_eq(n_mine, 4);
}

Test(compile_queue, what_takes_long_leaves_a_place_for_tries)
{
    CompileQueue queue = {0};
    for (int i = 0; i < 4; i++) add(&queue, &waits[i], (char)('a' + i), ME, true);
    const CompileWait *heavy = compile_queue_begin(&queue);
    cr_assert_eq(heavy, &waits[0]);
    cr_expect_null(compile_queue_begin(&queue), "one place for what takes long");
    add(&queue, &waits[4], 'x', ME, false); /* even of the same client */
    cr_expect(eq(str, (char *)order_of(&queue), "x"));
    add(&queue, &waits[5], 'X', YOU, true);
    add(&queue, &waits[6], 'y', YOU, false);
    compile_queue_end(&queue, heavy);
    cr_expect(eq(str, (char *)order_of(&queue), "bXcdy"));
}

Test(compile_queue, all_places_are_taken_by_tries_where_nothing_takes_long)
{
    CompileQueue queue = {0};
    for (int i = 0; i < COMPILE_PLACES + 1; i++) add(&queue, &waits[i], (char)('a' + i), ME, false);
    for (int i = 0; i < COMPILE_PLACES; i++) cr_expect_not_null(compile_queue_begin(&queue));
    cr_expect_null(compile_queue_begin(&queue));
    cr_expect_eq(queue.n_waiting, 1);
}

Test(compile_queue, one_compiles_for_all_that_want_the_same)
{
    CompileQueue queue = {0};
    for (int i = 0; i < 3; i++) add(&queue, &waits[i], 'a', (uint64_t)i, false);
    CompileWait *one = compile_queue_begin(&queue);
    cr_assert_eq(one, &waits[0]);
    cr_expect_null(compile_queue_begin(&queue));
    compile_queue_end(&queue, one); /* its try was not enough */
    add(&queue, one, 'a', 0, true);
    add(&queue, &waits[3], 'b', YOU, true);
    cr_assert_eq(compile_queue_begin(&queue), one);
    cr_expect_null(compile_queue_begin(&queue));
    compile_queue_end(&queue, one);
    cr_expect_eq(compile_queue_take_same(&queue, &one->grammar), &waits[1]);
    cr_expect_eq(compile_queue_take_same(&queue, &one->grammar), &waits[2]);
    cr_expect_null(compile_queue_take_same(&queue, &one->grammar));
    cr_expect(eq(str, (char *)order_of(&queue), "b"));
}

Test(compile_queue, others_go_on_when_the_one_that_compiles_for_them_leaves)
{
    CompileQueue queue = {0};
    add(&queue, &waits[0], 'a', ME, true);
    add(&queue, &waits[1], 'b', ME, true);
    add(&queue, &waits[2], 'b', YOU, false);
    const CompileWait *heavy = compile_queue_begin(&queue);
    cr_assert_eq(heavy, &waits[0]);
    cr_expect_null(compile_queue_begin(&queue), "'b' is in hand");
    cr_expect(compile_queue_remove(&queue, &waits[1]));
    cr_expect_not(compile_queue_remove(&queue, &waits[1]));
    cr_expect_not(compile_queue_remove(&queue, heavy), "it does not wait");
    cr_expect_eq(compile_queue_begin(&queue), &waits[2]);
    compile_queue_end(&queue, &waits[1]); /* who has no place leaves none */
    cr_expect_eq(queue.running[1], &waits[2]);
}

Test(compile_queue, time_ends_waiting)
{
    CompileQueue queue = {0};
    for (int i = 0; i < 4; i++) add(&queue, &waits[i], (char)('a' + i), ME, i == 3);
    cr_expect(eq(u64, compile_queue_deadline(&queue), 0));
    waits[0].deadline_usec = 900;
    waits[1].deadline_usec = 500;
    waits[3].deadline_usec = 700;
    cr_expect(eq(u64, compile_queue_deadline(&queue), 500));
    cr_expect_null(compile_queue_take_late(&queue, 499));
    cr_expect_eq(compile_queue_take_late(&queue, 500), &waits[1]);
    cr_expect(eq(u64, compile_queue_deadline(&queue), 700));
    cr_expect_eq(compile_queue_take_late(&queue, 1000), &waits[0]);
    cr_expect_eq(compile_queue_take_late(&queue, 1000), &waits[3]);
    cr_expect_null(compile_queue_take_late(&queue, 1000));
    cr_expect(eq(str, (char *)order_of(&queue), "c"));
}
