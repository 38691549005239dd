/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random runs through the prefix cache against a model that is as plain as can be: the pages that the cache keeps are
 * searched one by one for the longest prefix whose pages are all there.
 */
#include "tests/scheduler/prefix_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPEN = 8, MAX_HISTORIES = 40, MAX_CHECKPOINTS = 4000 };

typedef struct Checkpoint {
    PolicyId policy;
    uint32_t salt, at;
} Checkpoint;

typedef struct Model {
    PrefixRig rig;
    bool exact;
    uint64_t random;
    RigRun runs[MAX_OPEN]; /* [n_runs] */
    uint32_t n_runs;
    RigRun keys[MAX_HISTORIES]; /* policy and salt of what was ever run */
    uint32_t histories[MAX_HISTORIES][FAKE_CONTEXT], n_history[MAX_HISTORIES]; /* what was ever run */
    uint32_t plans[MAX_OPEN][FAKE_CONTEXT], n_plan[MAX_OPEN];                  /* what each open one will be */
    Checkpoint checkpoints[MAX_CHECKPOINTS];
    uint32_t n_checkpoints;
} Model;

static uint32_t below(Model *model, uint32_t n)
{
    model->random = model->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(model->random >> 33) % n;
}

/* ---- what should be found ---- */

/* Does the cache keep a page of the class with these tokens, of which the first 'taken' may be taken? */
static bool keeps(const Model *model, const KvClassInfo *info, const RigRun *key, const uint32_t *tokens,
                  uint32_t first, uint32_t taken)
{
    uint64_t history = fake_history(tokens, first);
    for (PageId id = 0; id < fake_pages_end(model->rig.engine); id++) {
        const FakePage *page = fake_page_any(model->rig.engine, id);
        if (page->kept && page->class_id == info->class_id && page->policy == key->policy && page->salt == key->salt &&
            page->first == first && page->history == history && page->n_tokens >= taken &&
            !(model->exact && page->is_decoded) &&
            !(taken < page->n_tokens && page->n_tokens == KV_PAGE_TOKENS && info->is_quantised) &&
            memcmp(page->tokens, tokens + first, taken * sizeof *tokens) == 0)
            return true;
    }
    return false;
}

static bool usable(const Model *model, const RigRun *key, const uint32_t *tokens, uint32_t n)
{
    const FakePolicy *policy = &rig_policies[key->policy];
    for (uint32_t first = 0; first < n; first += KV_PAGE_TOKENS)
        for (uint32_t c = 0; c < policy->n_classes; c++) {
            uint32_t taken = n - first < KV_PAGE_TOKENS ? n - first : KV_PAGE_TOKENS;
            if (kv_class_needs(&policy->classes[c], n, first) &&
                !keeps(model, &policy->classes[c], key, tokens, first, taken))
                return false;
        }
    return true;
}

static uint32_t longest(const Model *model, const RigRun *key, const uint32_t *tokens, uint32_t n)
{
    while (n > 0 && !usable(model, key, tokens, n)) n--;
    return n;
}

/* ---- what is done ---- */

/* Mostly what goes on from something that was there before, under the same key. */
static void make_plan(Model *model, RigRun *key, uint32_t *tokens, uint32_t *ret_n)
{
    uint32_t n = 0, from = below(model, MAX_HISTORIES);
    *key = (RigRun){.policy = below(model, N_POLICIES), .salt = below(model, 2)};
    if (model->n_history[from]) {
        if (below(model, 8)) *key = model->keys[from];
        n = 1 + below(model, model->n_history[from]);
        if (below(model, 3) == 0) n = model->n_history[from];
        memcpy(tokens, model->histories[from], n * sizeof *tokens);
    }
    uint32_t more = 2 + below(model, 400), base = below(model, 3);
    for (uint32_t i = 0; i < more && n < FAKE_CONTEXT - 8; i++) tokens[n++] = below(model, 40) ? base : below(model, 3);
    *ret_n = n;
}

static void start(Model *model)
{
    if (model->n_runs == MAX_OPEN) return;
    uint32_t at = model->n_runs, *tokens = model->plans[at];
    RigRun key;
    make_plan(model, &key, tokens, &model->n_plan[at]);
    uint32_t n_prompt = 1 + below(model, model->n_plan[at]);
    if (below(model, 2)) n_prompt = model->n_plan[at] - below(model, 2);
    uint32_t wanted = longest(model, &key, tokens, n_prompt - 1);
    model->runs[at] = rig_open(&model->rig, key.policy, key.salt, tokens, n_prompt - 1);
    cr_assert_eq(model->runs[at].n_cached, wanted, "policy %u: %u of %u tokens instead of %u", key.policy,
                 model->runs[at].n_cached, n_prompt - 1, wanted);
    cr_assert_eq(model->runs[at].end == PREFIX_WHOLE || wanted < n_prompt - 1, true);
    model->runs[at].n_prefilled = n_prompt;
    model->n_runs++;
}

static void note_checkpoint(Model *model, const RigRun *run, uint32_t at)
{
    cr_assert_lt(model->n_checkpoints, MAX_CHECKPOINTS);
    model->checkpoints[model->n_checkpoints++] = (Checkpoint){run->policy, run->salt, at};
}

static void go_on(Model *model, uint32_t at)
{
    RigRun *run = &model->runs[at];
    uint32_t left = model->n_plan[at] - run->n_given;
    if (left == 0) return;
    uint32_t n = run->n_given + 1 + below(model, left < 300 ? left : 300);
    rig_run_to(&model->rig, run, model->plans[at], n, 1 + below(model, 130));
}

static void end_run(Model *model, uint32_t at, bool finishes)
{
    RigRun *run = &model->runs[at];
    uint32_t history = below(model, MAX_HISTORIES);
    /* The model reads pages, so they must not hold more than the run knows of. */
    if (run->n_given == run->n_cached) rig_run_to(&model->rig, run, model->plans[at], run->n_given + 1, 1);
    model->keys[history] = *run;
    memcpy(model->histories[history], model->plans[at], sizeof model->plans[at]);
    model->n_history[history] = run->n_given;
    note_checkpoint(model, run, run->n_prefilled);
    note_checkpoint(model, run, finishes ? run->n_given : run->n_given / KV_PAGE_TOKENS * KV_PAGE_TOKENS);
    if (finishes)
        rig_finish(&model->rig, run);
    else
        rig_close(&model->rig, run);
    uint32_t last = --model->n_runs;
    model->runs[at] = model->runs[last];
    memcpy(model->plans[at], model->plans[last], sizeof model->plans[at]);
    model->n_plan[at] = model->n_plan[last];
}

static void fork_run(Model *model, uint32_t at)
{
    if (model->n_runs == MAX_OPEN) return;
    uint32_t made = model->n_runs++;
    model->runs[made] = model->runs[at];
    model->runs[made].cursor = prefix_cache_fork(model->rig.cache, &model->runs[at].cursor);
    model->runs[made].seq = fake_seq_fork(model->rig.engine, model->runs[at].seq);
    memcpy(model->plans[made], model->plans[at], sizeof model->plans[at]);
    model->n_plan[made] = model->n_plan[at];
    for (uint32_t i = model->runs[made].n_given; i < model->n_plan[made]; i++)
        model->plans[made][i] = below(model, 20) ? 1 : 2;
}

static void do_something(Model *model)
{
    uint32_t what = below(model, 100);
    rig_usec += below(model, 2000000);
    if (what < 25)
        start(model);
    else if (what < 30)
        for (uint32_t i = below(model, 6); i > 0 && prefix_cache_evict(model->rig.cache);) i--;
    else if (model->n_runs == 0)
        return;
    else if (what < 75)
        go_on(model, below(model, model->n_runs));
    else if (what < 92)
        end_run(model, below(model, model->n_runs), true);
    else if (what < 96)
        end_run(model, below(model, model->n_runs), false);
    else
        fork_run(model, below(model, model->n_runs));
}

/* ---- what is always so ---- */

static void check_counts(const Model *model)
{
    PrefixStats stats = prefix_cache_stats(model->rig.cache);
    cr_assert_eq(stats.n_pages, fake_pages_kept(model->rig.engine));
    cr_assert_leq(stats.n_nodes, stats.n_pages);
}

static bool is_needed(const Model *model, const FakePage *page, const KvClassInfo *info)
{
    for (uint32_t i = 0; i < model->n_checkpoints; i++) {
        const Checkpoint *checkpoint = &model->checkpoints[i];
        uint32_t below_it = checkpoint->at / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
        if (checkpoint->policy == page->policy && checkpoint->salt == page->salt && page->first <= checkpoint->at &&
            kv_class_needs(info, below_it, page->first))
            return true;
    }
    return info->window == PLAN_ALL || page->first < info->sink || page->first % 4096 >= 4096 - info->window - 64;
}

/* Nobody runs: what is left of windowed classes is near a checkpoint. */
static void check_windows(const Model *model)
{
    for (PageId id = 0; id < fake_pages_end(model->rig.engine); id++) {
        const FakePage *page = fake_page_any(model->rig.engine, id);
        const FakePolicy *policy = &rig_policies[page->policy];
        for (uint32_t c = 0; page->kept && c < policy->n_classes; c++)
            if (policy->classes[c].class_id == page->class_id)
                cr_assert(is_needed(model, page, &policy->classes[c]), "policy %u, page at %u", page->policy,
                          page->first);
    }
}

/* Pages have a byte each. */
static void check_idle(const Model *model)
{
    PrefixStats before = prefix_cache_stats(model->rig.cache);
    uint64_t idle = prefix_cache_idle_bytes(model->rig.cache);
    while (prefix_cache_evict(model->rig.cache)) {
    }
    cr_assert_eq(before.n_pages - prefix_cache_stats(model->rig.cache).n_pages, idle);
    cr_assert_eq(prefix_cache_idle_bytes(model->rig.cache), 0);
}

static void run_model(uint64_t seed, uint32_t max_nodes, bool exact, uint32_t n_steps)
{
    Model *model = calloc(1, sizeof *model);
    cr_assert_not_null(model);
    model->rig = prefix_rig_new(max_nodes, exact);
    model->exact = exact;
    model->random = seed;
    for (uint32_t i = 0; i < n_steps; i++) {
        do_something(model);
        check_counts(model);
    }
    if (seed % 4 == 0) check_idle(model);
    while (model->n_runs) end_run(model, 0, true);
    check_windows(model);
    cr_assert_eq(prefix_cache_idle_bytes(model->rig.cache), prefix_cache_stats(model->rig.cache).n_pages);
    while (prefix_cache_evict(model->rig.cache)) check_counts(model);
    cr_assert_eq(prefix_cache_stats(model->rig.cache).n_pages, 0);
    prefix_rig_free(&model->rig);
    free(model);
}

Test(prefix_model, random_runs_with_room)
{
    for (uint64_t seed = 1; seed <= 40; seed++) run_model(seed, 5000, false, 400);
}

Test(prefix_model, random_runs_with_few_nodes)
{
    for (uint64_t seed = 100; seed < 140; seed++) run_model(seed, 40, false, 400);
}

Test(prefix_model, random_runs_that_refuse_decoded_pages)
{
    for (uint64_t seed = 200; seed < 240; seed++) run_model(seed, seed % 2 ? 5000 : 60, true, 400);
}
