/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions on real engines: what is saved comes back bit for bit, and what is damaged does not come back at all. */
#include "tests/scheduler/session_rig.h"
#include "tests/support/sanitized.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The logits of tokens text [n_cached, n) behind what the cache has of text [n - 1]; free() them. */
static float *go_on(SessionRig *rig, PolicyId policy, const uint32_t *text, uint32_t n, uint32_t *ret_cached)
{
    PrefixCursor cursor;
    const PageSet *sets;
    PrefixEnd end;
    prefix_cache_open(rig->cache, &(PrefixKey){.policy = policy}, text, n - 1, &cursor, &sets, ret_cached, &end);
    SeqId seq = engine_rig_seq(rig->engine, policy);
    if (*ret_cached)
        cr_assert(engine_seq_adopt(rig->engine, seq, sets, *ret_cached, &session_rig_error), "%s",
                  session_rig_error.text);
    float *logits = engine_rig_logits(rig->engine, n - *ret_cached);
    engine_rig_feed(rig->engine, seq, ROWS_DECODE, text + *ret_cached, n - *ret_cached, 20, logits);
    prefix_cache_close(rig->cache, &cursor);
    engine_seq_close(rig->engine, seq);
    return logits;
}

/* So many steps, after which the disk may be busy; true: it is over. */
static bool run_some(SessionRig *rig, SessionCall *call, uint32_t n_steps)
{
    session_begin(rig->store, call);
    SessionState state = SESSION_MORE;
    for (uint32_t i = 0; i < n_steps && state != SESSION_OVER; i++) state = session_rig_step(rig);
    return state == SESSION_OVER;
}

/* ---- what comes back ---- */

static void expect_round_trip(Engine *saves, Engine *restores, PolicyId policy, uint32_t n_saved)
{
    char folder[64];
    session_folder_new(folder);
    SessionRig from = session_rig_on(saves, folder), to = session_rig_on(restores, folder);
    uint32_t n, n_cached;
    session_rig_compute(&from, policy, from.text, 200, n_saved);
    cr_assert_eq(session_rig_save(&from, policy, "one", n_saved, &n), ERR_NONE, "%s", session_rig_error.text);
    cr_expect_eq(n, n_saved);
    cr_assert_eq(session_rig_restore(&to, "one", &n), ERR_NONE, "%s", session_rig_error.text);
    cr_expect_eq(n, n_saved);
    float *got = go_on(&to, policy, to.text, n_saved + 50, &n_cached);
    cr_expect_eq(n_cached, n_saved);
    float *wanted = go_on(&from, policy, from.text, n_saved + 50, &n_cached);
    cr_expect_eq(n_cached, n_saved);
    cr_expect_arr_eq(got, wanted, 50u * engine_shape(saves)->n_vocab * sizeof *got);
    free(got);
    free(wanted);
    session_rig_free(&from);
    session_rig_free(&to);
    cr_expect_eq(session_folder_remove(folder), 1);
}

Test(session, a_restored_prefix_goes_on_bit_for_bit)
{
    for (KvType type = 0; type < KV_N_TYPES; type++)
        for (uint32_t n = 256; n <= 276; n += 20) {
            EngineParams params = engine_rig_params(kv_types_all(type), 4, 64);
            expect_round_trip(ENGINE_RIG(params, NULL), ENGINE_RIG(params, NULL), 0, n);
        }
}

/* The file of the first n tokens when the cache has 'longer' tokens, or has had those of somebody else. */
static char *save_beginning(KvType type, uint32_t n, uint32_t longer, bool after_another, size_t *ret_n)
{
    char folder[64];
    session_folder_new(folder);
    SessionRig rig = session_rig_new(type, folder);
    uint32_t another[SESSION_RIG_TEXT];
    engine_rig_text(rig.engine, 2, another, SESSION_RIG_TEXT);
    if (after_another) session_rig_compute(&rig, 0, another, SESSION_RIG_TEXT - 1, SESSION_RIG_TEXT - 1);
    while (prefix_cache_evict(rig.cache)) {
    }
    session_rig_compute(&rig, 0, rig.text, longer, longer);
    cr_assert_eq(session_rig_save(&rig, 0, "one", n, NULL), ERR_NONE, "%s", session_rig_error.text);
    char *file = session_read_file(folder, "one.session", ret_n);
    session_rig_free(&rig);
    session_folder_remove(folder);
    return file;
}

/* Neither what followed in the cache nor what was in its pages before is in a file. */
Test(session, a_file_holds_no_more_than_its_tokens)
{
    for (KvType type = 0; type < KV_N_TYPES; type++)
        for (uint32_t n = 70; n <= 130; n += 30) {
            size_t n_alone, n_other;
            char *alone = save_beginning(type, n, n, false, &n_alone);
            for (int after_another = 0; after_another < 2; after_another++) {
                uint32_t longer = kv_type_info(type)->is_quantised ? n : n + 60;
                char *other = save_beginning(type, n, longer, after_another, &n_other);
                cr_assert_eq(n_alone, n_other);
                cr_expect_eq(memcmp(alone, other, n_alone), 0, "%s, %u tokens", kv_type_info(type)->name, n);
                free(other);
            }
            free(alone);
        }
}

static const uint8_t streams[] = {1, 0, 0, 1};
static const HeadRoles roles = {.name = "half", .streams = streams};
static const AttnPolicy policies[] = {
    {.name = "dense"},
    {.name = "half", .roles = &roles, .sink = 64, .recent_prefill = 128, .recent_decode = 64},
};

Test(session, windows_and_streaming_heads_come_back_too)
{
    for (KvType type = KV_F16; type <= KV_INT8; type += KV_INT8 - KV_F16) {
        EngineParams params = engine_rig_params(kv_types_all(type), 4, 64);
        params.policies = policies;
        params.n_policies = 2;
        expect_round_trip(ENGINE_RIG(params, NULL), ENGINE_RIG(params, NULL), 1, 330);
        params.n_policies = 0;
        params.policies = NULL;
        expect_round_trip(ENGINE_RIG(params, "arch=gemma2", "window=100"),
                          ENGINE_RIG(params, "arch=gemma2", "window=100"), 0, 330);
    }
}

Test(session, the_longest_cached_prefix_is_saved)
{
    char folder[64];
    uint32_t n;
    session_folder_new(folder);
    SessionRig rig = session_rig_new(KV_F16, folder);
    cr_expect_eq(session_rig_save(&rig, 0, "one", 300, NULL), ERR_NOT_FOUND);
    session_rig_compute(&rig, 0, rig.text, 200, 200);
    cr_expect_eq(session_rig_save(&rig, 0, "one", 300, &n), ERR_NONE);
    cr_expect_eq(n, 200);
    cr_expect_eq(session_rig_save(&rig, 0, "one", 130, &n), ERR_NONE); /* takes the place of the first */
    cr_expect_eq(n, 130);
    cr_expect_eq(session_rig_save(&rig, 0, "other", 0, &n), ERR_NOT_FOUND);
    cr_expect_eq(session_rig_restore(&rig, "one", &n), ERR_NONE); /* of what is there already */
    cr_expect_eq(n, 130);
    while (prefix_cache_evict(rig.cache)) {
    }
    cr_expect_eq(engine_kv_usage(rig.engine).used_bytes, 0);
    cr_expect_eq(session_rig_restore(&rig, "one", &n), ERR_NONE);
    free(go_on(&rig, 0, rig.text, 300, &n));
    cr_expect_eq(n, 130);
    cr_expect_eq(session_rig_delete(&rig, "one"), ERR_NONE);
    cr_expect_eq(session_rig_delete(&rig, "one"), ERR_NOT_FOUND);
    cr_expect_eq(session_rig_restore(&rig, "one", &n), ERR_NOT_FOUND);
    session_rig_free(&rig);
    cr_expect_eq(session_folder_remove(folder), 0);
}

Test(session, salts_stay_apart)
{
    char folder[64];
    const char salt[] = "a\0b";
    uint32_t n;
    PrefixEnd end;
    PrefixCursor cursor;
    const PageSet *sets;
    session_folder_new(folder);
    SessionRig rig = session_rig_new(KV_F16, folder);
    const PrefixKey key = {.salt = salt, .n_salt = 3};
    prefix_cache_open(rig.cache, &key, rig.text, 0, &cursor, &sets, &n, &end);
    SeqId seq = engine_rig_seq(rig.engine, 0);
    engine_rig_feed(rig.engine, seq, ROWS_PREFILL, rig.text, 100, 50, NULL);
    const PrefixRun run_of_it = {.seq = seq, .tokens = rig.text, .n_tokens = 100, .n_prefilled = 100};
    prefix_cache_finish(rig.cache, &cursor, &run_of_it);
    engine_seq_close(rig.engine, seq);
    cr_expect_eq(session_rig_save(&rig, 0, "one", 100, NULL), ERR_NOT_FOUND);
    SessionCall *call = session_rig_call(SESSION_SAVE, "one");
    cr_assert(session_call_set_tokens(call, rig.text, 100, salt, 3, &session_rig_error));
    session_rig_run(&rig, call);
    cr_expect_eq(call->n_moved_tokens, 100);
    session_call_free(call);
    while (prefix_cache_evict(rig.cache)) {
    }
    cr_expect_eq(session_rig_restore(&rig, "one", NULL), ERR_NONE);
    prefix_cache_open(rig.cache, &(PrefixKey){0}, rig.text, 100, &cursor, &sets, &n, &end);
    cr_expect_eq(n, 0);
    prefix_cache_close(rig.cache, &cursor);
    prefix_cache_open(rig.cache, &key, rig.text, 100, &cursor, &sets, &n, &end);
    cr_expect_eq(n, 100);
    prefix_cache_close(rig.cache, &cursor);
    session_rig_free(&rig);
    session_folder_remove(folder);
}

/* ---- what does not ---- */

static void write_file(const char *folder, const char *name, const char *bytes, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
}

static void expect_refused(SessionRig *rig, ErrorCode code, const char *what, size_t at)
{
    uint32_t n = 1;
    PrefixStats stats = prefix_cache_stats(rig->cache);
    cr_assert_eq(session_rig_restore(rig, "bad", &n), code, "%s %zu: %s", what, at, session_rig_error.text);
    cr_assert_eq(n, 0);
    cr_assert_eq(prefix_cache_stats(rig->cache).n_pages, stats.n_pages, "%s %zu", what, at);
    cr_assert_eq(prefix_cache_stats(rig->cache).evicted_pages, stats.evicted_pages, "%s %zu", what, at);
    cr_assert_eq(engine_kv_usage(rig->engine).used_bytes, 0);
}

/* A small file of which each bit is turned, and each beginning stands alone. */
Test(session, every_flipped_bit_and_every_truncation_is_noticed, .timeout = 120)
{
    char folder[64];
    size_t n;
    session_folder_new(folder);
    SessionRig rig = session_rig_new(KV_INT4, folder);
    session_rig_compute(&rig, 0, rig.text, 64, 64);
    cr_assert_eq(session_rig_save(&rig, 0, "good", 64, NULL), ERR_NONE, "%s", session_rig_error.text);
    while (prefix_cache_evict(rig.cache)) {
    }
    char *bytes = session_read_file(folder, "good.session", &n);
    cr_expect(n < 8000, "%zu bytes: this takes long", n);
    write_file(folder, "bad.session", bytes, n);
    char path[128];
    snprintf(path, sizeof path, "%s/bad.session", folder);
    int fd = open(path, O_WRONLY);
    for (size_t bit = 0; bit < 8 * n; bit += SANITIZED_SHARE) {
        char flipped = (char)(bytes[bit / 8] ^ 1 << bit % 8);
        cr_assert(pwrite(fd, &flipped, 1, (off_t)(bit / 8)) == 1);
        uint32_t got = 1;
        ErrorCode code = session_rig_restore(&rig, "bad", &got);
        cr_assert((code == ERR_INVALID || code == ERR_UNSUPPORTED) && got == 0, "bit %zu: %s", bit,
                  session_rig_error.text);
        cr_assert_eq(engine_kv_usage(rig.engine).used_bytes, 0, "bit %zu", bit);
        cr_assert(pwrite(fd, &bytes[bit / 8], 1, (off_t)(bit / 8)) == 1);
    }
    cr_assert_eq(session_rig_restore(&rig, "bad", NULL), ERR_NONE, "%s", session_rig_error.text);
    while (prefix_cache_evict(rig.cache)) {
    }
    for (size_t cut = 1; cut <= n; cut += SANITIZED_SHARE) {
        size_t left = n - cut;
        cr_assert_eq(ftruncate(fd, (off_t)left), 0);
        expect_refused(&rig, ERR_INVALID, "bytes", left);
    }
    write_file(folder, "bad.session", bytes, n);
    fd = open(path, O_WRONLY | O_APPEND);
    cr_assert(write(fd, "", 1) == 1);
    expect_refused(&rig, ERR_INVALID, "bytes", n + 1);
    close(fd);
    free(bytes);
    session_rig_free(&rig);
    session_folder_remove(folder);
}

static void expect_refused_by(Engine *saves, Engine *restores, PolicyId policy, const char *needle)
{
    char folder[64];
    session_folder_new(folder);
    SessionRig from = session_rig_on(saves, folder), to = session_rig_on(restores, folder);
    session_rig_compute(&from, policy, from.text, 100, 100);
    cr_assert_eq(session_rig_save(&from, policy, "bad", 100, NULL), ERR_NONE, "%s", session_rig_error.text);
    expect_refused(&to, ERR_INVALID, needle, 0);
    cr_expect_not_null(strstr(session_rig_error.text, needle), "%s", session_rig_error.text);
    session_rig_free(&from);
    session_rig_free(&to);
    session_folder_remove(folder);
}

Test(session, another_model_type_or_policy_is_refused)
{
    EngineParams f16 = engine_rig_params(kv_types_all(KV_F16), 4, 64);
    EngineParams bf16 = engine_rig_params(kv_types_all(KV_BF16), 4, 64), many = f16, other = f16;
    static const AttnPolicy longer[] = {
        {.name = "dense"},
        {.name = "half", .roles = &roles, .sink = 64, .recent_prefill = 64, .recent_decode = 128},
    };
    many.policies = policies;
    other.policies = longer;
    many.n_policies = other.n_policies = 2;
    expect_refused_by(ENGINE_RIG(f16, NULL), ENGINE_RIG(f16, "seed=9"), 0, "another model");
    expect_refused_by(ENGINE_RIG(f16, NULL), ENGINE_RIG(f16, "layers=1"), 0, "another model");
    expect_refused_by(ENGINE_RIG(f16, NULL), ENGINE_RIG(bf16, NULL), 0, "another kv_type");
    expect_refused_by(ENGINE_RIG(many, NULL), ENGINE_RIG(f16, NULL), 1, "attention 'half'");
    expect_refused_by(ENGINE_RIG(many, NULL), ENGINE_RIG(other, NULL), 1, "attention 'half'");
}

Test(session, a_longer_context_takes_it_a_shorter_one_does_not)
{
    char folder[64];
    session_folder_new(folder);
    EngineParams params = engine_rig_params(kv_types_all(KV_F16), 4, 64);
    SessionRig from = session_rig_on(ENGINE_RIG(params, NULL), folder);
    params.context = 99;
    SessionRig shorter = session_rig_on(ENGINE_RIG(params, NULL), folder);
    params.context = 300;
    SessionRig longer = session_rig_on(ENGINE_RIG(params, NULL), folder);
    session_rig_compute(&from, 0, from.text, 100, 100);
    cr_assert_eq(session_rig_save(&from, 0, "bad", 100, NULL), ERR_NONE);
    expect_refused(&shorter, ERR_TOO_LARGE, "ctx", 0);
    cr_expect_eq(session_rig_restore(&longer, "bad", NULL), ERR_NONE, "%s", session_rig_error.text);
    session_rig_free(&from);
    session_rig_free(&shorter);
    session_rig_free(&longer);
    session_folder_remove(folder);
}

/* ---- pages ---- */

static EngineParams small_memory(uint32_t n_pages)
{
    EngineParams params = engine_rig_params(kv_types_all(KV_F16), 2, 64);
    Engine *engine = ENGINE_RIG(params, NULL);
    uint32_t n;
    params.kv_bytes = engine_policy_classes(engine, 0, &n)->page_bytes * n_pages;
    params.context = 256;
    engine_close(engine);
    return params;
}

Test(session, cached_pages_give_way_to_a_restore_and_used_ones_do_not)
{
    char folder[64];
    uint32_t n;
    session_folder_new(folder);
    SessionRig rig = session_rig_on(ENGINE_RIG(small_memory(6), NULL), folder);
    session_rig_compute(&rig, 0, rig.text, 200, 200);
    cr_assert_eq(session_rig_save(&rig, 0, "one", 200, NULL), ERR_NONE);
    while (prefix_cache_evict(rig.cache)) {
    }
    session_rig_compute(&rig, 0, rig.text + 100, 250, 250);
    cr_expect_eq(session_rig_restore(&rig, "one", &n), ERR_NONE, "%s", session_rig_error.text);
    cr_expect_eq(session_rig_look(&rig, rig.text, 201), 200);
    while (prefix_cache_evict(rig.cache)) {
    }
    SeqId seq = engine_rig_seq(rig.engine, 0);
    engine_rig_feed(rig.engine, seq, ROWS_PREFILL, rig.text, 190, 50, NULL);
    session_rig_compute(&rig, 0, rig.text + 100, 60, 60);
    uint64_t used = engine_kv_usage(rig.engine).used_bytes;
    cr_expect_eq(session_rig_restore(&rig, "one", NULL), ERR_BUSY);
    cr_expect_eq(engine_kv_usage(rig.engine).used_bytes, used);
    cr_expect_eq(session_rig_look(&rig, rig.text + 100, 61), 60, "cached pages go only if that helps");
    engine_seq_close(rig.engine, seq);
    session_rig_free(&rig);
    session_folder_remove(folder);
}

/* However often what is there was used: a restore is whole, or there is none. */
Test(session, a_restore_keeps_to_the_limit_of_the_cache)
{
    char folder[64];
    uint32_t n;
    session_folder_new(folder);
    Engine *engine = ENGINE_RIG(small_memory(12), NULL);
    size_t page_bytes = engine_policy_classes(engine, 0, &n)->page_bytes;
    SessionRig rig = session_rig_limited(engine, folder, 4 * page_bytes);
    session_rig_compute(&rig, 0, rig.text, 200, 200);
    cr_assert_eq(session_rig_save(&rig, 0, "four", 200, NULL), ERR_NONE);
    session_rig_compute(&rig, 0, rig.text + 100, 250, 250);
    for (int i = 0; i < 5; i++) cr_assert_eq(session_rig_look(&rig, rig.text + 100, 251), 250);
    cr_expect_eq(session_rig_restore(&rig, "four", &n), ERR_NONE, "%s", session_rig_error.text);
    cr_expect_eq(session_rig_look(&rig, rig.text, 201), 200);
    cr_expect_eq(prefix_cache_idle_bytes(rig.cache), 4 * page_bytes);
    session_rig_free(&rig);
    engine = ENGINE_RIG(small_memory(12), NULL);
    rig = session_rig_limited(engine, folder, 3 * page_bytes);
    session_rig_compute(&rig, 0, rig.text + 100, 60, 60);
    cr_expect_eq(session_rig_restore(&rig, "four", NULL), ERR_TOO_LARGE);
    cr_expect_str_eq(session_rig_error.param, "cache_memory");
    cr_expect_eq(session_rig_look(&rig, rig.text + 100, 61), 60);
    session_rig_free(&rig);
    session_folder_remove(folder);
}

/* Given up after any number of steps: nothing is left, neither pages nor files. */
Test(session, a_call_may_be_given_up_at_any_time)
{
    char folder[64];
    Error reason;
    session_folder_new(folder);
    SessionRig rig = session_rig_new(KV_F16, folder);
    error_set(&reason, ERR_CANCELLED, "enough");
    for (uint32_t n_steps = 0, over = false; !over; n_steps++) {
        session_rig_compute(&rig, 0, rig.text, 200, 200);
        uint64_t used = engine_kv_usage(rig.engine).used_bytes;
        SessionCall *call = session_rig_call(SESSION_SAVE, "one");
        cr_assert(session_call_set_tokens(call, rig.text, 200, NULL, 0, &session_rig_error));
        over = run_some(&rig, call, n_steps);
        session_give_up(rig.store, &reason);
        cr_expect_eq(engine_kv_usage(rig.engine).used_bytes, used);
        while (!over && session_rig_step(&rig) != SESSION_OVER) {
        }
        bool is_saved = call->error.code == ERR_NONE; /* then all that was given up was to close the file */
        cr_expect_eq(call->n_moved_tokens, is_saved ? 200 : 0);
        cr_expect(over ? is_saved : is_saved || call->error.code == ERR_CANCELLED);
        session_call_free(call);
        while (prefix_cache_evict(rig.cache)) {
        }
        cr_expect_eq(engine_kv_usage(rig.engine).used_bytes, 0);
    }
    for (uint32_t n_steps = 0, over = false; !over; n_steps++) {
        SessionCall *call = session_rig_call(SESSION_RESTORE, "one");
        over = run_some(&rig, call, n_steps);
        session_give_up(rig.store, &reason);
        if (call->error.code) cr_expect_eq(engine_kv_usage(rig.engine).used_bytes, 0);
        cr_expect(!over || !call->error.code);
        while (!over && session_rig_step(&rig) != SESSION_OVER) {
        }
        session_call_free(call);
    }
    /* Freed in the middle. */
    SessionCall *call = session_rig_call(SESSION_SAVE, "two");
    cr_assert(session_call_set_tokens(call, rig.text, 200, NULL, 0, &session_rig_error));
    session_begin(rig.store, call);
    cr_expect_eq(session_rig_step(&rig), SESSION_WAITING);
    session_rig_free(&rig);
    session_call_free(call);
    cr_expect_eq(session_folder_remove(folder), 1);
}
