/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/select_state.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { N_SEQUENCES = 3, N_HEADS = 2, MAX_SECTORS = 4096 };

static Error error;
static SelectState *state;

static void begin(void)
{
    cr_assert(select_state_new(N_SEQUENCES, N_HEADS, MAX_SECTORS, &state, &error), "%s", error.text);
    for (SeqId seq = 0; seq < N_SEQUENCES; seq++) select_state_open(state, seq);
}

static void end(void)
{
    select_state_free(state);
}

TestSuite(test_select_state, .init = begin, .fini = end);

/* A list of n sectors that begin at `first`, of one stage. */
static void edit(SeqId seq, uint32_t head, uint32_t first, uint32_t n)
{
    uint32_t *words;
    SelectList *list = select_state_edit(state, seq, head, &words);
    *list = (SelectList){.n_stages = 1, .n = {n}, .n_sectors = n, .recent_from = first};
    for (uint32_t i = 0; i < n; i++) words[i] = words[n + i] = first + i;
}

static void holds(SeqId seq, uint32_t head, uint32_t first, uint32_t n)
{
    const uint32_t *words;
    const SelectList *list = select_state_list(state, seq, head, &words);
    cr_assert_eq(list->n_sectors, n);
    for (uint32_t i = 0; i < 2 * n; i++) cr_assert_eq(words[i], first + i % n, "%u", i);
}

Test(test_select_state, a_pass_that_is_given_up_leaves_nothing)
{
    edit(0, 1, 100, 8);
    select_state_commit(state, 0);
    edit(0, 1, 300, 3);
    select_state_seq(state, 0)->decode_from = 77;
    holds(0, 1, 300, 3);
    select_state_revert(state, 0);
    holds(0, 1, 100, 8);
    cr_assert_eq(select_state_seq(state, 0)->decode_from, UINT32_MAX);
    holds(0, 0, 0, 0);
}

Test(test_select_state, copies_go_their_own_way)
{
    edit(0, 0, 10, 5);
    select_state_commit(state, 0);
    select_state_fork(state, 0, 1);
    void *kept = malloc(select_state_bytes(state, 0));
    select_state_read(state, 0, kept);
    edit(0, 0, 50, 2);
    select_state_commit(state, 0);
    holds(1, 0, 10, 5);
    select_state_close(state, 0);
    select_state_open(state, 2);
    select_state_write(state, 2, kept);
    holds(2, 0, 10, 5);
    free(kept);
}

/* Memory of a closed sequence is given back, also where a further prompt had taken its lists away. */
Test(test_select_state, closed_sequences_keep_no_memory)
{
    uint32_t *words;
    edit(0, 0, 1, MAX_SECTORS);
    select_state_commit(state, 0);
    select_state_clear(state, 0);
    select_state_close(state, 0);
    select_state_open(state, 0);
    for (uint32_t bank = 0; bank < 2; bank++) {
        (void)select_state_edit(state, 0, 0, &words);
        cr_expect_eq(words[MAX_SECTORS - 1], 0, "bank %u", bank);
        select_state_commit(state, 0);
    }
}
