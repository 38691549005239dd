/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/cache.h"
#include "engine/sample/grammar/grammar_impl.h"
#include "engine/sample/grammar/matcher.h"
#include "tests/engine/token_rig.h"

#include <criterion/criterion.h>
#include <string.h>

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

static bool build_words(const GrammarSource *source, GrammarBuilder *builder, GrammarNode *ret_root, Error *error)
{
    GrammarNode letters = grammar_class(builder, &(CodeRange){'a', 'z'}, 1, false);
    *ret_root =
        grammar_seq(builder, grammar_repeat(builder, letters, 0, 500), grammar_bytes(builder, source->text, source->n));
    return grammar_is_sound(builder, error);
}

/* A matcher goes through the words, and masks fill tables of its grammar. */
static void use(Grammar *grammar)
{
    GrammarMatcher *matcher;
    const uint64_t *words;
    uint32_t n;
    Error error;
    cr_assert(matcher_new(grammar, &matcher, &error), "%s", error.text);
    for (int i = 0; i < 400; i++)
        cr_assert(matcher_mask(matcher, &words, &n, &error) &&
                  matcher_push_bytes(matcher, (const uint8_t *)"q", 1, &error));
    matcher_free(matcher);
}

/* It remembers more long after it was put in the cache: others make room when it is asked for again. */
Test(grammar_cache, what_matchers_remember_is_counted)
{
    TokenRig rig = token_rig_new(1 << 20, 1 << 20);
    const GrammarSource sources[] = {{.kind = "words", .text = "1", .n = 1, .build = build_words},
                                     {.kind = "words", .text = "2", .n = 1, .build = build_words}};
    Error error;
    GrammarCache *cache;
    Grammar *used, *other, *again;
    GrammarCacheParams params = {.tokenizer = rig.tokenizer, .max_bytes = 1 << 30};
    cr_assert(grammar_cache_new(&params, &cache, &error) && grammar_cache_get(cache, &sources[0], &used, &error));
    size_t fresh = grammar_size_bytes(used);
    use(used);
    size_t full = grammar_size_bytes(used);
    cr_expect_gt(full, fresh + 1000);
    grammar_release(used);
    grammar_cache_free(cache);

    params.max_bytes = fresh + full - 1;
    cr_assert(grammar_cache_new(&params, &cache, &error) && grammar_cache_get(cache, &sources[0], &used, &error));
    cr_assert(grammar_cache_get(cache, &sources[1], &other, &error));
    cr_assert(grammar_cache_get(cache, &sources[1], &again, &error));
    cr_expect_eq(again, other, "both fit");
    grammar_release(again);
    use(used);
    cr_assert(grammar_cache_get(cache, &sources[0], &again, &error));
    cr_expect_eq(again, used, "what is asked for stays");
    grammar_release(again);
    cr_assert(grammar_cache_get(cache, &sources[1], &again, &error));
    cr_expect_neq(again, other, "the other one had to go");
    grammar_release(again);
    grammar_release(other);
    grammar_release(used);
    grammar_cache_free(cache);
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
    check_failures(ERR_UNSUPPORTED, 60000000, true);
    check_failures(ERR_INVALID, 60000000, true);
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

/* The builder's time is over at once: whoever tries something in it has no time of his own, and a try says so. */
Test(grammar_cache, time_is_shared_and_a_try_may_be_too_short)
{
    GrammarBuilder *whole, *part;
    Error error;
    cr_assert(grammar_builder_new(&whole, &error));
    whole->deadline_cpu_usec = 0;
    cr_assert(grammar_builder_new_within(whole, &part, &error));
    cr_expect_not(grammar_in_time(part, &error));
    cr_expect_eq(error.code, ERR_TOO_LARGE);
    cr_expect(strstr(error.text, "more than 3 s") != NULL, "%s", error.text);
    grammar_builder_free(part);
    grammar_builder_try(whole);
    cr_expect_gt(whole->deadline_cpu_usec, 0);
    whole->deadline_cpu_usec = 0;
    cr_assert(grammar_builder_new_within(whole, &part, &error));
    cr_expect_not(grammar_in_time(part, &error));
    cr_expect_eq(error.code, ERR_BUSY);
    grammar_builder_free(part);
    grammar_builder_free(whole);
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
