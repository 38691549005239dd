/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/cache.h"
#include "tests/engine/token_rig.h"

#include <criterion/criterion.h>

typedef struct Meanwhile {
    GrammarCache *cache;
    const GrammarSource *other;
    Grammar **ret_got;
} Meanwhile;

static bool build_text(const GrammarSource *source, GrammarBuilder *builder, GrammarNode *ret_root, Error *error)
{
    *ret_root = grammar_bytes(builder, source->text, source->n);
    return grammar_is_sound(builder, error);
}

/* As if another thread asked for the same and were faster. */
static bool build_late(const GrammarSource *source, GrammarBuilder *builder, GrammarNode *ret_root, Error *error)
{
    const Meanwhile *meanwhile = source->arg;
    return grammar_cache_get(meanwhile->cache, meanwhile->other, meanwhile->ret_got, error) &&
           build_text(source, builder, ret_root, error);
}

static void check_shared(size_t max_bytes, bool expected)
{
    TokenRig rig = token_rig_new(1 << 20, 1 << 20);
    Error error;
    GrammarCache *cache;
    Grammar *late, *again, *got = NULL;
    const GrammarCacheParams params = {.tokenizer = rig.tokenizer, .max_bytes = max_bytes};
    cr_assert(grammar_cache_new(&params, &cache, &error), "%s", error.text);
    const GrammarSource fast = {.kind = "text", .text = "abc", .n = 3, .build = build_text};
    const Meanwhile meanwhile = {.cache = cache, .other = &fast, .ret_got = &got};
    const GrammarSource slow = {.kind = "text", .text = "abc", .n = 3, .build = build_late, .arg = &meanwhile};
    cr_assert(grammar_cache_get(cache, &slow, &late, &error), "%s", error.text);
    cr_assert(grammar_cache_get(cache, &fast, &again, &error), "%s", error.text);
    cr_expect_eq(late == got, expected);
    cr_expect_eq(late == again, expected);
    grammar_release(late);
    grammar_release(again);
    grammar_release(got);
    grammar_cache_free(cache);
    token_rig_free(&rig);
}

Test(grammar_cache, what_two_build_at_once_is_one_grammar)
{
    check_shared(64 << 20, true);
}

Test(grammar_cache, what_is_larger_than_the_cache_is_not_kept)
{
    check_shared(100, false);
}

/* A matcher fills tables of its grammar long after it was put in the cache. */
Test(grammar_cache, what_matchers_may_remember_is_counted)
{
    TokenRig rig = token_rig_new(1 << 20, 1 << 20);
    Error error;
    GrammarCache *cache;
    Grammar *first, *second, *again;
    const GrammarSource sources[] = {{.kind = "text", .text = "abc", .n = 3, .build = build_text},
                                     {.kind = "text", .text = "def", .n = 3, .build = build_text}};
    for (size_t n_fit = 1; n_fit <= 2; n_fit++) {
        const GrammarCacheParams params = {.tokenizer = rig.tokenizer, .max_bytes = n_fit * (30 << 20)};
        cr_assert(grammar_cache_new(&params, &cache, &error), "%s", error.text);
        cr_assert(grammar_cache_get(cache, &sources[0], &first, &error), "%s", error.text);
        cr_expect(grammar_size_bytes(first) > 20 << 20 && grammar_size_bytes(first) < 30 << 20);
        cr_assert(grammar_cache_get(cache, &sources[1], &second, &error), "%s", error.text);
        cr_assert(grammar_cache_get(cache, &sources[0], &again, &error), "%s", error.text);
        cr_expect_eq(again == first, n_fit == 2);
        grammar_release(first);
        grammar_release(second);
        grammar_release(again);
        grammar_cache_free(cache);
    }
    token_rig_free(&rig);
}

/* ---- failures ---- */

static int n_built;

static bool build_badly(const GrammarSource *source, GrammarBuilder *builder, GrammarNode *ret_root, Error *error)
{
    n_built++;
    *ret_root = grammar_empty(builder);
    return error_set_param(error, *(const ErrorCode *)source->arg, "tools[3]", "attempt %d", n_built);
}

static void check_failures(ErrorCode code, uint64_t failure_usec, bool is_remembered)
{
    TokenRig rig = token_rig_new(1 << 20, 1 << 20);
    const GrammarCacheParams params = {rig.tokenizer, 1 << 20, failure_usec};
    GrammarCache *cache;
    Grammar *grammar;
    Error error;
    GrammarKey key;
    cr_assert(grammar_cache_new(&params, &cache, &error));
    GrammarSource source = {.kind = "text", .text = "abc", .n = 3, .build = build_badly, .arg = &code};
    n_built = 0;
    cr_expect_not(grammar_cache_get(cache, &source, &grammar, &error));
    cr_expect_eq(error.code, code);
    cr_expect_not(grammar_cache_get(cache, &source, &grammar, &error));
    cr_expect(error.code == code && n_built == (is_remembered ? 1 : 2), "%d, built %d times", error.code, n_built);
    cr_expect_str_eq(error.param, "tools[3]");
    cr_expect_str_eq(error.text, is_remembered ? "attempt 1" : "attempt 2");
    source.ret_unknown = &key;
    cr_expect_not(grammar_cache_get(cache, &source, &grammar, &error));
    cr_expect_eq(error.code, is_remembered ? code : ERR_BUSY); /* who may not compile is told, too */
    source.kind = "other";
    source.ret_unknown = NULL;
    cr_expect_not(grammar_cache_get(cache, &source, &grammar, &error));
    cr_expect_eq(n_built, is_remembered ? 2 : 3);
    grammar_cache_free(cache);
    token_rig_free(&rig);
}

Test(grammar_cache, what_a_text_is_to_blame_for_is_remembered_for_a_while)
{
    check_failures(ERR_SCHEMA, 60000000, true);
    check_failures(ERR_TOO_LARGE, 60000000, true);
    check_failures(ERR_TOO_LARGE, 0, false);
    check_failures(ERR_NO_MEMORY, 60000000, false);
    check_failures(ERR_CANCELLED, 60000000, false);
}

/* ---- time ---- */

static atomic_bool is_left;

/* Leaves where compiling begins: it has much to do. */
static bool build_and_leave(const GrammarSource *source, GrammarBuilder *builder, GrammarNode *ret_root, Error *error)
{
    GrammarNode letters = grammar_class(builder, &(CodeRange){'a', 'z'}, 1, false);
    *ret_root = grammar_repeat(builder, letters, 0, 9000);
    if (source->arg) atomic_store(&is_left, true);
    return grammar_is_sound(builder, error);
}

Test(grammar_cache, compiling_ends_when_nobody_waits_for_it)
{
    TokenRig rig = token_rig_new(1 << 20, 1 << 20);
    const GrammarCacheParams params = {rig.tokenizer, 256 << 20, 60000000};
    GrammarCache *cache;
    Grammar *grammar;
    Error error;
    cr_assert(grammar_cache_new(&params, &cache, &error));
    GrammarSource source = {
        .kind = "text", .text = "abc", .n = 3, .build = build_and_leave, .arg = &rig, .cancelled = &is_left};
    cr_expect_not(grammar_cache_get(cache, &source, &grammar, &error));
    cr_expect_eq(error.code, ERR_CANCELLED);
    source.arg = NULL;
    source.cancelled = NULL;
    source.deadline_usec = 1;
    cr_expect_not(grammar_cache_get(cache, &source, &grammar, &error));
    cr_expect_eq(error.code, ERR_DEADLINE);
    source.deadline_usec = 0;
    cr_assert(grammar_cache_get(cache, &source, &grammar, &error), "%s", error.text); /* for the next one it is made */
    grammar_release(grammar);
    grammar_cache_free(cache);
    token_rig_free(&rig);
}

Test(grammar_cache, who_tries_something_has_the_time_that_is_left)
{
    GrammarBuilder *whole, *part;
    Error error;
    cr_assert(grammar_builder_new(&whole, &error));
    grammar_builder_watch(whole, &is_left, 0);
    cr_assert(grammar_builder_new_within(whole, &part, &error));
    cr_expect(grammar_in_time(part, &error));
    atomic_store(&is_left, true);
    cr_expect_not(grammar_in_time(part, &error));
    cr_expect_eq(error.code, ERR_CANCELLED);
    grammar_builder_free(part);
    grammar_builder_free(whole);
}
