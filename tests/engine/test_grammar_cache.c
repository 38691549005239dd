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
    cr_assert(grammar_cache_new(rig.tokenizer, max_bytes, &cache, &error), "%s", error.text);
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
        cr_assert(grammar_cache_new(rig.tokenizer, n_fit * (30 << 20), &cache, &error), "%s", error.text);
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
