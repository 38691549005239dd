/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/scheduler/prefix_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const HeadRoles roles = {.name = "some"};

const FakePolicy rig_policies[N_POLICIES] = {
    [FULL] = {.policy = {.name = "full"},
              .classes = {{.name = "full", .page_bytes = 1, .window = PLAN_ALL}},
              .n_classes = 1},
    [QUANTISED] = {.policy = {.name = "quantised"},
                   .classes = {{.name = "full", .page_bytes = 1, .window = PLAN_ALL, .is_quantised = true}},
                   .n_classes = 1},
    [STREAM] = {.policy = {.name = "stream", .roles = &roles, .recent_prefill = 192, .recent_decode = 128},
                .classes = {{.name = "full", .page_bytes = 1, .window = PLAN_ALL},
                            {.class_id = 1, .name = "stream", .page_bytes = 1, .sink = 64, .window = 192}},
                .n_classes = 2},
    [WINDOW_QUANTISED] =
        {.policy = {.name = "window"},
         .classes = {{.name = "full", .page_bytes = 1, .window = PLAN_ALL, .is_quantised = true},
                     {.class_id = 2, .name = "window", .page_bytes = 1, .window = 150, .is_quantised = true}},
         .n_classes = 2},
    [ALL_WINDOWED] = {.policy = {.name = "windowed", .roles = &roles, .recent_prefill = 64, .recent_decode = 64},
                      .classes = {{.class_id = 3, .name = "stream", .page_bytes = 1, .sink = 100, .window = 64}},
                      .n_classes = 1},
};

uint64_t rig_usec;

static uint64_t clock_usec(void)
{
    return rig_usec;
}

static PrefixRig rig_with(PrefixParams params)
{
    PrefixRig rig = {.engine = fake_pages_new(rig_policies, N_POLICIES)};
    params.engine = rig.engine;
    params.clock_usec = clock_usec;
    Error error;
    rig_usec = 0;
    cr_assert(prefix_cache_new(&params, &rig.cache, &error), "%s", error.text);
    return rig;
}

PrefixRig prefix_rig_new(uint32_t max_nodes, bool exact)
{
    return rig_with((PrefixParams){.max_nodes = max_nodes, .exact = exact});
}

PrefixRig prefix_rig_limited(uint64_t max_idle_bytes)
{
    return rig_with((PrefixParams){.max_nodes = 100, .max_idle_bytes = max_idle_bytes});
}

void prefix_rig_free(PrefixRig *rig)
{
    cr_assert_eq(prefix_cache_stats(rig->cache).n_pages, fake_pages_kept(rig->engine));
    prefix_cache_free(rig->cache);
    cr_assert_eq(fake_pages_kept(rig->engine), 0);
    cr_assert_eq(fake_pages_used(rig->engine), 0, "a sequence was left open");
    fake_pages_free(rig->engine);
}

/* Every page that a query at n needs is there, holds these tokens behind these, and nothing else is. */
static void check_sets(const PrefixRig *rig, const RigRun *run, const PageSet *sets, const uint32_t *tokens, uint32_t n)
{
    const FakePolicy *policy = &rig_policies[run->policy];
    bool in_part = !policy->classes[0].is_quantised;
    for (uint32_t first = 0; first < n; first += KV_PAGE_TOKENS)
        for (uint32_t c = 0; c < KV_MAX_CLASSES; c++) {
            PageId id = sets[first / KV_PAGE_TOKENS].page[c];
            bool needed = c < policy->n_classes && kv_class_needs(&policy->classes[c], n, first);
            cr_assert_eq(id != PAGE_NONE, needed, "class %u, page at %u of %u", c, first, n);
            if (!needed) continue;
            const FakePage *page = fake_page(rig->engine, id);
            uint32_t taken = n - first < KV_PAGE_TOKENS ? n - first : KV_PAGE_TOKENS;
            cr_assert(page->n_tokens >= taken && page->first == first && page->class_id == policy->classes[c].class_id);
            cr_assert(page->policy == run->policy && page->salt == run->salt);
            cr_assert_eq(page->history, fake_history(tokens, first));
            cr_assert_arr_eq(page->tokens, tokens + first, taken * sizeof *tokens);
            cr_assert(page->is_decoded == (first >= run->cursor.n_prefilled));
            cr_assert(taken == page->n_tokens || page->n_tokens < KV_PAGE_TOKENS || in_part);
        }
}

RigRun rig_open(PrefixRig *rig, PolicyId policy, uint32_t salt, const uint32_t *tokens, uint32_t n)
{
    RigRun run = {.policy = policy, .salt = salt, .n_prefilled = UINT32_MAX};
    char name[16];
    int n_name = salt ? snprintf(name, sizeof name, "salt %u", salt) : 0;
    const PageSet *sets;
    prefix_cache_open(rig->cache,
                      &(PrefixKey){.policy = policy, .salt = salt ? name : NULL, .n_salt = (uint32_t)n_name}, tokens, n,
                      &run.cursor, &sets, &run.n_cached, &run.end);
    cr_assert(run.n_cached <= n && run.cursor.n_known >= run.n_cached);
    cr_assert_eq(run.cursor.n_tokens, run.n_cached / KV_PAGE_TOKENS * KV_PAGE_TOKENS);
    check_sets(rig, &run, sets, tokens, run.n_cached);
    run.seq = fake_seq_new(rig->engine, policy, salt);
    fake_seq_adopt(rig->engine, run.seq, sets, tokens, run.n_cached);
    run.n_given = run.n_cached;
    return run;
}

static PrefixRun describe(const PrefixRig *rig, const RigRun *run)
{
    PrefixRun given = {.seq = run->seq, .n_prefilled = run->n_prefilled};
    given.tokens = fake_seq_tokens(rig->engine, run->seq, &given.n_tokens);
    return given;
}

void rig_run_to(PrefixRig *rig, RigRun *run, const uint32_t *tokens, uint32_t n, uint32_t step)
{
    for (uint32_t at = run->n_given; at < n;) {
        bool decodes = at >= run->n_prefilled;
        uint32_t end = decodes || n < run->n_prefilled ? n : run->n_prefilled;
        uint32_t some = end - at < step ? end - at : step;
        fake_seq_append(rig->engine, run->seq, tokens + at, some, decodes, step);
        at += some;
        PrefixRun given = describe(rig, run);
        prefix_cache_extend(rig->cache, &run->cursor, &given);
    }
    run->n_given = n;
}

void rig_finish(PrefixRig *rig, RigRun *run)
{
    PrefixRun given = describe(rig, run);
    prefix_cache_finish(rig->cache, &run->cursor, &given);
    fake_seq_close(rig->engine, run->seq);
}

void rig_close(PrefixRig *rig, RigRun *run)
{
    prefix_cache_close(rig->cache, &run->cursor);
    fake_seq_close(rig->engine, run->seq);
}

uint32_t rig_serve(PrefixRig *rig, PolicyId policy, const uint32_t *tokens, uint32_t n_prompt, uint32_t n)
{
    RigRun run = rig_open(rig, policy, 0, tokens, n_prompt - 1);
    run.n_prefilled = n_prompt;
    rig_run_to(rig, &run, tokens, n, 64);
    rig_finish(rig, &run);
    return run.n_cached;
}

uint32_t rig_look(PrefixRig *rig, PolicyId policy, uint32_t salt, const uint32_t *tokens, uint32_t n,
                  PrefixEnd *ret_end)
{
    RigRun run = rig_open(rig, policy, salt, tokens, n);
    rig_close(rig, &run);
    if (ret_end) *ret_end = run.end;
    return run.n_cached;
}

void rig_count_up(uint32_t *tokens, uint32_t n, uint32_t first)
{
    for (uint32_t i = 0; i < n; i++) tokens[i] = first + i;
}
