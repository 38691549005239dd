/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of the host's selector, as a device would have left them, beside the reference; and what must be refused. */
#include "engine/eval/list_check.h"
#include "engine/eval/policy_spec.h"
#include "tests/support/engine_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 1400, STEPS = 5, MAX_LIST = 64 };

static Error error;
static Engine *engine;
static SeqId base, run, again;
static uint32_t tokens[PROMPT + STEPS];
static ListCheck *check;

static SeqId fork_of(SeqId seq)
{
    SeqId fork = 0;
    cr_assert(engine_seq_fork(engine, seq, &fork, &error), "%s", error.text);
    return fork;
}

static void begin(void)
{
    static const char text[] = "lserve-4k:budget=512:recent=128:refresh=1";
    PolicySpec spec;
    PolicyId id;
    EngineParams params = engine_rig_params(kv_types_all(KV_F16), 4, 512);
    engine = ENGINE_RIG(params, "context=2048", "head_dim=64");
    cr_assert(policy_spec_parse(text, strlen(text), &spec, &error), "%s", error.text);
    cr_assert(engine_policy_intern(engine, &spec.policy, &id, &error), "%s", error.text);
    engine_rig_text(engine, 3, tokens, PROMPT + STEPS);
    base = engine_rig_seq(engine, id);
    engine_rig_feed(engine, base, ROWS_PREFILL, tokens, PROMPT, 512, NULL);
    run = fork_of(base);
    again = fork_of(base);
    engine_rig_feed(engine, run, ROWS_DECODE, tokens + PROMPT, STEPS, 1, NULL);
    cr_assert(list_check_new(engine, &again, 1, &check, &error), "%s", error.text);
    engine_set_trace(engine, list_check_look, check);
    engine_rig_feed(engine, again, ROWS_DECODE, tokens + PROMPT, STEPS, 1, NULL);
    engine_set_trace(engine, NULL, NULL);
}

static void end(void)
{
    list_check_free(check);
    engine_close(engine);
}

TestSuite(test_list_check, .init = begin, .fini = end);

Test(test_list_check, lists_of_a_run_are_the_reference_s)
{
    ListCounts counts = {0};
    cr_assert(list_check_end(check, &run, &counts, &error), "%s", error.text);
    cr_assert_geq(counts.n_lists, 4);
    cr_assert_eq(counts.n_equal, counts.n_lists);
    cr_assert_eq(counts.n_near, 0);
}

/* A run that has made no list has nothing to show. */
Test(test_list_check, nothing_to_compare_is_an_error)
{
    ListCounts counts = {0};
    ListCheck *empty;
    cr_assert(list_check_new(engine, &again, 1, &empty, &error), "%s", error.text);
    cr_assert_not(list_check_end(empty, &run, &counts, &error));
    cr_assert_eq(error.code, ERR_INTERNAL);
    list_check_free(empty);
}

static uint32_t right_list(uint32_t *ret_list)
{
    uint32_t n = engine_seq_list(engine, run, 0, 0, ret_list, MAX_LIST);
    cr_assert(n >= 2 * KV_PAGE_SECTORS && n <= MAX_LIST && n % KV_PAGE_SECTORS == 0, "%u", n);
    return n;
}

static bool is_accepted(const uint32_t *list, uint32_t n)
{
    ListCounts counts = {0};
    return list_check_list(check, 0, 0, 0, list, n, &counts, &error);
}

static bool lists_page(const uint32_t *list, uint32_t n, uint32_t page)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] / KV_PAGE_SECTORS == page) return true;
    return false;
}

/* A page in the place of another, in order: refused unless it scores as much, which random keys do not. */
Test(test_list_check, a_planted_page_is_refused)
{
    uint32_t list[MAX_LIST], n = right_list(list), n_refused = 0, n_tried = 0;
    cr_assert(is_accepted(list, n), "%s", error.text);
    for (uint32_t i = 0; i < n; i += KV_PAGE_SECTORS) {
        uint32_t planted[MAX_LIST], page = list[i] / KV_PAGE_SECTORS + 1;
        if (lists_page(list, n, page) || (page + 1) * KV_PAGE_TOKENS > PROMPT - 192) continue;
        memcpy(planted, list, sizeof planted);
        for (uint32_t k = 0; k < KV_PAGE_SECTORS; k++) planted[i + k] = page * KV_PAGE_SECTORS + k;
        n_tried++;
        if (is_accepted(planted, n)) continue;
        n_refused++;
        cr_expect_eq(error.code, ERR_DEVICE);
        cr_expect(strstr(error.text, "layer 0, KV head 0") && strstr(error.text, "no figure"), "%s", error.text);
    }
    cr_assert(n_tried >= 2 && n_refused + 1 >= n_tried, "%u of %u", n_refused, n_tried);
}

Test(test_list_check, lists_of_another_form_are_refused)
{
    uint32_t list[MAX_LIST], broken[MAX_LIST], n = right_list(list);
    cr_expect_not(is_accepted(list, n - KV_PAGE_SECTORS));
    for (int kind = 0; kind < 4; kind++) {
        memcpy(broken, list, sizeof broken);
        if (kind == 0) broken[n - 1] ^= 1;                         /* not whole */
        if (kind == 1) broken[0] = UINT32_MAX;                     /* no sector */
        if (kind == 2) memcpy(broken, list + KV_PAGE_SECTORS, 16); /* a page twice */
        if (kind == 3)
            for (uint32_t k = 0; k < KV_PAGE_SECTORS; k++) broken[k] = k; /* of the sink */
        cr_expect_not(is_accepted(broken, n), "%d", kind);
        cr_expect(strstr(error.text, "whole pages"), "%s", error.text);
    }
}
