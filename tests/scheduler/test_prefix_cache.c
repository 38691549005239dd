/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/prefix_cache.h"
#include "tests/scheduler/prefix_rig.h"

#include <criterion/criterion.h>
#include <string.h>

static uint32_t tokens[FAKE_CONTEXT], others[FAKE_CONTEXT];

static void two_lines(uint32_t n_common)
{
    rig_count_up(tokens, FAKE_CONTEXT, 1000);
    rig_count_up(others, FAKE_CONTEXT, 1000);
    rig_count_up(others + n_common, FAKE_CONTEXT - n_common, 20000);
}

Test(prefix_cache, what_was_run_before_is_found_to_its_last_token)
{
    for (PolicyId policy = 0; policy < N_POLICIES; policy++) {
        two_lines(0);
        PrefixRig rig = prefix_rig_new(100, false);
        PrefixEnd end;
        cr_assert_eq(rig_look(&rig, policy, 0, tokens, 900, &end), 0);
        cr_assert_eq(end, PREFIX_NEW);
        cr_assert_eq(rig_serve(&rig, policy, tokens, 500, 610), 0);
        cr_assert_eq(rig_look(&rig, policy, 0, tokens, 610, &end), 610, "policy %u", policy);
        cr_assert_eq(end, PREFIX_WHOLE);
        cr_assert_eq(rig_look(&rig, policy, 0, tokens, 900, &end), 610);
        cr_assert_eq(end, PREFIX_NEW);
        cr_assert_eq(rig_serve(&rig, policy, tokens, 900, 1200), 610);
        cr_assert_eq(rig_look(&rig, policy, 0, tokens, 2000, &end), 1200);
        prefix_rig_free(&rig);
    }
}

Test(prefix_cache, a_page_is_taken_in_part_only_unquantised_or_open)
{
    PrefixEnd end;
    two_lines(300);
    PrefixRig rig = prefix_rig_new(100, false);
    rig_serve(&rig, FULL, tokens, 500, 600);
    rig_serve(&rig, QUANTISED, tokens, 500, 600);
    cr_assert_eq(rig_look(&rig, FULL, 0, others, 590, &end), 300);
    cr_assert_eq(end, PREFIX_DIFFERS);
    cr_assert_eq(rig_look(&rig, FULL, 0, tokens, 250, &end), 250);
    cr_assert_eq(end, PREFIX_WHOLE);
    RigRun run = rig_open(&rig, QUANTISED, 0, others, 590);
    cr_assert_eq(run.n_cached, 256);
    cr_assert_eq(run.end, PREFIX_DIFFERS);
    cr_assert_eq(run.cursor.n_known, 300);
    rig_close(&rig, &run);
    cr_assert_eq(rig_look(&rig, QUANTISED, 0, tokens, 250, &end), 192);
    cr_assert_eq(end, PREFIX_WHOLE); /* all that may match */
    rig_count_up(others, 590, 1000);
    cr_assert_eq(rig_look(&rig, QUANTISED, 0, others, 590, &end), 590); /* of 600, the last page is open */
    others[580] = 7;
    cr_assert_eq(rig_look(&rig, QUANTISED, 0, others, 590, &end), 580);
    cr_assert_eq(end, PREFIX_DIFFERS);
    prefix_rig_free(&rig);
}

Test(prefix_cache, policies_and_salts_do_not_meet)
{
    two_lines(0);
    PrefixRig rig = prefix_rig_new(100, false);
    RigRun run = rig_open(&rig, FULL, 7, tokens, 200);
    rig_run_to(&rig, &run, tokens, 200, 64);
    rig_finish(&rig, &run);
    cr_assert_eq(rig_look(&rig, FULL, 0, tokens, 200, NULL), 0);
    cr_assert_eq(rig_look(&rig, FULL, 8, tokens, 200, NULL), 0);
    cr_assert_eq(rig_look(&rig, STREAM, 7, tokens, 200, NULL), 0);
    cr_assert_eq(rig_look(&rig, FULL, 7, tokens, 200, NULL), 200);
    prefix_rig_free(&rig);
}

static uint32_t look_salted(PrefixRig *rig, const char *salt, uint32_t n_salt, bool publish)
{
    PrefixCursor cursor;
    const PageSet *sets;
    uint32_t n;
    PrefixEnd end;
    prefix_cache_open(rig->cache, &(PrefixKey){.salt = salt, .n_salt = n_salt}, tokens, 100, &cursor, &sets, &n, &end);
    SeqId seq = fake_seq_new(rig->engine, FULL, 0);
    fake_seq_append(rig->engine, seq, tokens, 100, false, 0);
    const PrefixRun run = {.seq = seq, .tokens = tokens, .n_tokens = 100, .n_prefilled = 100};
    if (publish)
        prefix_cache_finish(rig->cache, &cursor, &run);
    else
        prefix_cache_close(rig->cache, &cursor);
    fake_seq_close(rig->engine, seq);
    return n;
}

/* Salts are bytes: what they begin with, a NUL among them and their length count. */
Test(prefix_cache, every_byte_of_a_salt_counts)
{
    static const char *const salts[] = {"a", "a\0", "a\0b", "ab", "b"};
    static const uint32_t n_salts[] = {1, 2, 3, 2, 1};
    char longest[PREFIX_MAX_SALT_BYTES + 1];
    PrefixRig rig = prefix_rig_new(100, false);
    two_lines(0);
    memset(longest, 'x', sizeof longest);
    for (int i = 0; i < 5; i++) cr_assert_eq(look_salted(&rig, salts[i], n_salts[i], true), 0);
    for (int i = 0; i < 5; i++) cr_assert_eq(look_salted(&rig, salts[i], n_salts[i], false), 100);
    cr_assert_eq(look_salted(&rig, longest, PREFIX_MAX_SALT_BYTES, true), 0);
    cr_assert_eq(look_salted(&rig, longest, PREFIX_MAX_SALT_BYTES, false), 100);
    longest[PREFIX_MAX_SALT_BYTES - 1] = 'y';
    cr_assert_eq(look_salted(&rig, longest, PREFIX_MAX_SALT_BYTES, false), 0);
    cr_assert_eq(look_salted(&rig, longest, PREFIX_MAX_SALT_BYTES + 1, true), 0);
    cr_assert_eq(look_salted(&rig, longest, PREFIX_MAX_SALT_BYTES + 1, false), 0);
    prefix_rig_free(&rig);
}

Test(prefix_cache, exact_refuses_what_was_decoded)
{
    PrefixEnd end;
    two_lines(0);
    PrefixRig rig = prefix_rig_new(100, true);
    cr_assert_eq(rig_serve(&rig, STREAM, tokens, 300, 600), 0);
    cr_assert_eq(rig_look(&rig, STREAM, 0, tokens, 700, &end), 256);
    cr_assert_eq(end, PREFIX_NEW);
    rig_serve(&rig, FULL, tokens, 300, 600); /* decodes as it prefills */
    cr_assert_eq(rig_look(&rig, FULL, 0, tokens, 700, NULL), 600);
    rig_serve(&rig, ALL_WINDOWED, tokens, 300, 600);
    cr_assert_eq(rig_look(&rig, ALL_WINDOWED, 0, tokens, 700, NULL), 600);
    /* Prefilled pages take the place of decoded ones. */
    cr_assert_eq(rig_serve(&rig, STREAM, tokens, 600, 600), 256);
    cr_assert_eq(rig_look(&rig, STREAM, 0, tokens, 700, NULL), 600);
    prefix_rig_free(&rig);
}

/* What follows decoded tokens is not what a cold run would have, however it was computed. */
Test(prefix_cache, decoded_pages_taint_what_follows)
{
    two_lines(0);
    PrefixRig rig = prefix_rig_new(100, false);
    rig_serve(&rig, STREAM, tokens, 300, 600);
    RigRun run = rig_open(&rig, STREAM, 0, tokens, 900);
    cr_assert_eq(run.n_cached, 600);
    cr_assert_eq(run.cursor.n_prefilled, 256);
    rig_run_to(&rig, &run, tokens, 1000, 64);
    rig_finish(&rig, &run);
    run = rig_open(&rig, STREAM, 0, tokens, 1000);
    cr_assert_eq(run.n_cached, 1000);
    cr_assert_eq(run.cursor.n_prefilled, 256);
    rig_close(&rig, &run);
    prefix_rig_free(&rig);
}

/* The same where the decoded pages themselves have given way to prefilled ones. */
Test(prefix_cache, what_followed_decoded_pages_stays_tainted_without_them)
{
    two_lines(0);
    PrefixRig rig = prefix_rig_new(100, false);
    RigRun cold = rig_open(&rig, STREAM, 0, tokens, 900);
    rig_serve(&rig, STREAM, tokens, 300, 600);
    rig_serve(&rig, STREAM, tokens, 900, 900);
    rig_run_to(&rig, &cold, tokens, 704, 64);
    rig_close(&rig, &cold);
    RigRun run = rig_open(&rig, STREAM, 0, tokens, 900);
    cr_assert_eq(run.n_cached, 900);
    cr_assert_eq(run.cursor.n_prefilled, 704);
    rig_close(&rig, &run);
    prefix_rig_free(&rig);
}

Test(prefix_cache, two_that_publish_the_same_share_it)
{
    two_lines(0);
    PrefixRig rig = prefix_rig_new(100, false);
    RigRun a = rig_open(&rig, FULL, 0, tokens, 640), b = rig_open(&rig, FULL, 0, tokens, 640);
    rig_run_to(&rig, &a, tokens, 640, 128);
    rig_run_to(&rig, &b, tokens, 640, 64);
    cr_assert_eq(prefix_cache_stats(rig.cache).n_pages, 10);
    cr_assert_eq(a.cursor.node, b.cursor.node);
    rig_close(&rig, &a);
    cr_assert_not(prefix_cache_evict(rig.cache)); /* b stands on it */
    rig_close(&rig, &b);
    for (int i = 0; i < 10; i++) cr_assert(prefix_cache_evict(rig.cache));
    cr_assert_not(prefix_cache_evict(rig.cache));
    prefix_rig_free(&rig);
}

Test(prefix_cache, a_fork_keeps_the_path_too)
{
    two_lines(0);
    PrefixRig rig = prefix_rig_new(100, false);
    RigRun a = rig_open(&rig, FULL, 0, tokens, 640);
    rig_run_to(&rig, &a, tokens, 640, 128);
    RigRun b = a;
    b.cursor = prefix_cache_fork(rig.cache, &a.cursor);
    b.seq = fake_seq_fork(rig.engine, a.seq);
    rig_close(&rig, &a);
    cr_assert_not(prefix_cache_evict(rig.cache));
    rig_run_to(&rig, &b, tokens, 700, 60);
    rig_finish(&rig, &b);
    cr_assert_eq(rig_look(&rig, FULL, 0, tokens, 700, NULL), 700);
    prefix_rig_free(&rig);
}

Test(prefix_cache, the_open_page_of_a_turn_gives_way_to_the_next_turn)
{
    two_lines(0);
    PrefixRig rig = prefix_rig_new(100, false);
    uint32_t n = 100;
    for (int turn = 0; turn < 20; turn++) {
        uint32_t cached = rig_serve(&rig, FULL, tokens, n + 40, n + 50);
        cr_assert_eq(cached, turn ? n : 0);
        n += 50;
        cr_assert_eq(prefix_cache_stats(rig.cache).n_pages, (n + 63) / 64);
    }
    prefix_rig_free(&rig);
}

/* ---- eviction ---- */

Test(prefix_cache, the_least_used_goes_first_and_its_end_before_its_start)
{
    PrefixEnd end;
    two_lines(64);
    PrefixRig rig = prefix_rig_new(100, false);
    rig_serve(&rig, FULL, tokens, 320, 320);
    rig_usec += 1000;
    rig_serve(&rig, FULL, others, 320, 320);
    for (int i = 0; i < 3; i++) cr_assert(prefix_cache_evict(rig.cache));
    cr_assert_eq(rig_look(&rig, FULL, 0, tokens, 320, &end), 128);
    cr_assert_eq(end, PREFIX_EVICTED);
    cr_assert_eq(rig_look(&rig, FULL, 0, others, 320, &end), 320);
    cr_assert_eq(prefix_cache_stats(rig.cache).evicted_pages, 3);
    while (prefix_cache_evict(rig.cache)) {
    }
    cr_assert_eq(rig_look(&rig, FULL, 0, others, 320, &end), 0);
    cr_assert_eq(end, PREFIX_EVICTED);
    cr_assert_eq(rig_serve(&rig, FULL, others, 320, 320), 0);
    cr_assert_eq(rig_look(&rig, FULL, 0, others, 320, &end), 320);
    prefix_rig_free(&rig);
}

/* Of that, what a live sequence stands on is none. */
Test(prefix_cache, what_nobody_stands_on_keeps_to_its_limit)
{
    PrefixEnd end;
    two_lines(64);
    PrefixRig rig = prefix_rig_limited(3);
    RigRun run = rig_open(&rig, FULL, 0, tokens, 320);
    rig_run_to(&rig, &run, tokens, 320, 64);
    cr_assert_eq(prefix_cache_stats(rig.cache).n_pages, 5);
    rig_finish(&rig, &run);
    cr_assert_eq(prefix_cache_idle_bytes(rig.cache), 3);
    cr_assert_eq(rig_look(&rig, FULL, 0, tokens, 320, &end), 192);
    cr_assert_eq(end, PREFIX_EVICTED);
    rig_usec += 1000;
    run = rig_open(&rig, FULL, 0, others, 320);
    rig_run_to(&rig, &run, others, 200, 64);
    rig_close(&rig, &run);
    cr_assert_eq(prefix_cache_stats(rig.cache).n_pages, 3);
    cr_assert_eq(rig_look(&rig, FULL, 0, others, 320, &end), 192);
    cr_assert(prefix_cache_make_room(rig.cache, 1, 2));
    cr_assert_eq(prefix_cache_idle_bytes(rig.cache), 1);
    cr_assert_not(prefix_cache_make_room(rig.cache, 1, 4));
    prefix_rig_free(&rig);
}

/* Ten uses are worth more than a later one, for a while. */
Test(prefix_cache, uses_count_and_are_forgotten)
{
    two_lines(0);
    for (int later_minutes = 1; later_minutes <= 61; later_minutes += 60) {
        PrefixRig rig = prefix_rig_new(100, false);
        rig_serve(&rig, FULL, tokens, 64, 64);
        for (int i = 0; i < 10; i++) rig_look(&rig, FULL, 0, tokens, 64, NULL);
        rig_usec += (uint64_t)later_minutes * 60 * 1000000;
        rig_serve(&rig, FULL, others, 64, 64);
        cr_assert(prefix_cache_evict(rig.cache));
        cr_assert_eq(rig_look(&rig, FULL, 0, tokens, 64, NULL), later_minutes == 1 ? 64 : 0);
        cr_assert_eq(rig_look(&rig, FULL, 0, others, 64, NULL), later_minutes == 1 ? 0 : 64);
        prefix_rig_free(&rig);
    }
}

/* A full tree gives up its least used pages for new ones, never those that somebody stands on. */
Test(prefix_cache, few_nodes_are_enough_to_go_on)
{
    two_lines(0);
    PrefixRig rig = prefix_rig_new(8, false);
    RigRun run = rig_open(&rig, FULL, 0, others, 256);
    rig_run_to(&rig, &run, others, 256, 64);
    for (uint32_t i = 0; i < 50; i++) {
        rig_serve(&rig, FULL, tokens + 64 * i, 128, 192);
        cr_assert_leq(prefix_cache_stats(rig.cache).n_nodes, 7);
        cr_assert_eq(rig_look(&rig, FULL, 0, tokens + 64 * i, 192, NULL), 192);
    }
    rig_run_to(&rig, &run, others, 1000, 64);
    cr_assert_eq(run.cursor.n_tokens, 7 * 64); /* there is no place for more */
    rig_finish(&rig, &run);
    cr_assert_eq(rig_look(&rig, FULL, 0, others, 1000, NULL), 7 * 64);
    for (uint32_t salt = 1; salt < 100; salt++) rig_look(&rig, FULL, salt, tokens, 100, NULL);
    prefix_rig_free(&rig);
}

Test(prefix_cache, without_any_place_nothing_is_published)
{
    two_lines(0);
    PrefixRig rig = prefix_rig_new(1, false);
    RigRun a = rig_open(&rig, FULL, 0, tokens, 100), b = rig_open(&rig, FULL, 1, tokens, 100);
    rig_run_to(&rig, &a, tokens, 300, 64);
    rig_run_to(&rig, &b, tokens, 300, 64);
    rig_finish(&rig, &a);
    rig_finish(&rig, &b);
    cr_assert_eq(prefix_cache_stats(rig.cache).n_pages, 0);
    prefix_rig_free(&rig);
}

/* ---- windowed classes ---- */

Test(prefix_cache, windows_are_kept_at_checkpoints_alone)
{
    PrefixEnd end;
    two_lines(0);
    PrefixRig rig = prefix_rig_new(200, false);
    RigRun run = rig_open(&rig, STREAM, 0, tokens, 5000);
    static const uint32_t checkpoints[] = {1000, 2048, 2050};
    for (uint32_t n = 64; n <= 5120; n += 64) {
        fake_seq_append(rig.engine, run.seq, tokens + n - 64, 64, false, 64);
        prefix_cache_extend(rig.cache, &run.cursor,
                            &(PrefixRun){.seq = run.seq,
                                         .tokens = tokens,
                                         .n_tokens = n,
                                         .n_prefilled = n,
                                         .checkpoints = checkpoints,
                                         .n_checkpoints = 3});
    }
    rig_close(&rig, &run);
    /* 80 full pages; of the streaming heads the sink, and what these four positions and the end see. */
    cr_assert_eq(prefix_cache_stats(rig.cache).n_pages, 80 + 1 + 4 + 4 + 3 + 3);
    cr_assert_eq(rig_look(&rig, STREAM, 0, tokens, 5120, &end), 5120);
    cr_assert_eq(rig_look(&rig, STREAM, 0, tokens, 5119, &end), 5119); /* sees the same pages */
    cr_assert_eq(rig_look(&rig, STREAM, 0, tokens, 5118, &end), 4096);
    cr_assert_eq(end, PREFIX_WINDOW);
    cr_assert_eq(rig_look(&rig, STREAM, 0, tokens, 4096, &end), 4096);
    cr_assert_eq(rig_look(&rig, STREAM, 0, tokens, 4000, &end), 2112);
    cr_assert_eq(end, PREFIX_WINDOW);
    cr_assert_eq(rig_look(&rig, STREAM, 0, tokens, 2050, &end), 2050);
    cr_assert_eq(rig_look(&rig, STREAM, 0, tokens, 1030, &end), 1024);
    cr_assert_eq(rig_look(&rig, STREAM, 0, tokens, 1000, &end), 1000);
    cr_assert_eq(end, PREFIX_WHOLE);
    cr_assert_eq(rig_look(&rig, STREAM, 0, tokens, 900, &end), 64); /* the sink */
    prefix_rig_free(&rig);
}

/* A turn's end stays usable beside the longer conversation that grew from it. */
Test(prefix_cache, the_ends_of_turns_stay_checkpoints)
{
    for (PolicyId policy = STREAM; policy < N_POLICIES; policy++) {
        two_lines(0);
        PrefixRig rig = prefix_rig_new(200, false);
        uint32_t ends[10], n = 0;
        for (int turn = 0; turn < 10; turn++) {
            cr_assert_eq(rig_serve(&rig, policy, tokens, n + 300, n + 420), n);
            ends[turn] = n += 420;
        }
        for (int turn = 0; turn < 10; turn++)
            cr_assert_eq(rig_look(&rig, policy, 0, tokens, ends[turn], NULL), ends[turn], "policy %u", policy);
        prefix_rig_free(&rig);
    }
}

/* One that runs ahead drops what nobody needs; the one behind brings the pages of its checkpoint itself. */
Test(prefix_cache, one_behind_another_still_gets_its_checkpoint)
{
    two_lines(0);
    PrefixRig rig = prefix_rig_new(200, false);
    RigRun ahead = rig_open(&rig, STREAM, 0, tokens, 2000), behind = rig_open(&rig, STREAM, 0, tokens, 1000);
    rig_run_to(&rig, &behind, tokens, 512, 64);
    rig_run_to(&rig, &ahead, tokens, 2000, 64);
    rig_run_to(&rig, &behind, tokens, 1000, 64);
    rig_finish(&rig, &behind);
    cr_assert_eq(rig_look(&rig, STREAM, 0, tokens, 1000, NULL), 1000);
    rig_finish(&rig, &ahead);
    prefix_rig_free(&rig);
}

Test(prefix_cache, bad_parameters_are_refused)
{
    Engine *engine = fake_pages_new(rig_policies, N_POLICIES);
    PrefixCache *cache;
    Error error;
    cr_assert_not(prefix_cache_new(&(PrefixParams){.engine = engine, .max_nodes = 0}, &cache, &error));
    cr_assert_eq(error.code, ERR_INVALID);
    cr_assert_not(prefix_cache_new(&(PrefixParams){.engine = engine, .max_nodes = UINT32_MAX}, &cache, &error));
    cr_assert_eq(error.code, ERR_INVALID);
    fake_pages_free(engine);
}
