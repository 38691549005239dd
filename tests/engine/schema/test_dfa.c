/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/dfa.h"
#include "tests/engine/schema/arena_rig.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(dfa, .init = init, .fini = done);

static const char *const samples[] = {"", "a", "b", "ab", "abc", "abcd", "\xC3\xA9", "\xF0\x9F\x98\x80z", "ba", "aaaa"};
enum { N_SAMPLES = sizeof samples / sizeof *samples };

static const Dfa *words(const char *const *list, uint32_t n)
{
    const Dfa *dfa;
    cr_assert(dfa_words(list, n, &arena, &dfa, &error), "%s", error.text);
    return dfa;
}

static const Dfa *combine(const Dfa *a, const Dfa *b, DfaOp op)
{
    const Dfa *dfa;
    cr_assert(dfa_combine(a, b, op, &arena, &dfa, &error), "%s", error.text);
    return dfa;
}

Test(dfa, words_are_these_and_no_others)
{
    static const char *const list[] = {"ab", "abc", "\xC3\xA9", "ab", ""};
    const Dfa *dfa = words(list, 5);
    for (size_t i = 0; i < N_SAMPLES; i++) {
        bool is_in = false;
        for (size_t j = 0; j < 5; j++) is_in |= !strcmp(samples[i], list[j]);
        cr_expect_eq(dfa_label(dfa, samples[i]) != 0, is_in, "%s", samples[i]);
    }
    cr_expect(dfa_is_empty(words(NULL, 0)));
    cr_expect_eq(dfa_label(words(NULL, 0), ""), 0);
}

Test(dfa, lengths_count_code_points)
{
    static const struct {
        uint32_t min, max;
    } ranges[] = {{0, 0}, {0, UINT32_MAX}, {2, 2}, {1, 3}, {3, UINT32_MAX}, {2, 1}};
    static const uint32_t lengths[] = {0, 1, 1, 2, 3, 4, 1, 2, 2, 4};
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
        const Dfa *dfa;
        cr_assert(dfa_lengths(ranges[r].min, ranges[r].max, &arena, &dfa, &error));
        for (size_t i = 0; i < N_SAMPLES; i++)
            cr_expect_eq(dfa_label(dfa, samples[i]) != 0, lengths[i] >= ranges[r].min && lengths[i] <= ranges[r].max);
    }
}

Test(dfa, operations_are_those_of_sets)
{
    static const char *const left[] = {"a", "ab", "\xC3\xA9", ""}, *const right[] = {"ab", "b", "\xF0\x9F\x98\x80z",
                                                                                     ""};
    const Dfa *any, *a = words(left, 4), *b = words(right, 4), *low;
    cr_assert(dfa_any(&arena, &any, &error));
    const Dfa *sets[][2] = {{a, b}, {a, any}, {any, b}, {a, words(NULL, 0)}, {words(NULL, 0), b}};
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++)
        for (size_t i = 0; i < N_SAMPLES; i++) {
            bool x = dfa_label(sets[s][0], samples[i]), y = dfa_label(sets[s][1], samples[i]);
            const char *text = samples[i];
            cr_expect_eq(dfa_label(combine(sets[s][0], sets[s][1], DFA_AND), text) != 0, x && y, "and %s", text);
            cr_expect_eq(dfa_label(combine(sets[s][0], sets[s][1], DFA_OR), text) != 0, x || y, "or %s", text);
            cr_expect_eq(dfa_label(combine(sets[s][0], sets[s][1], DFA_MINUS), text) != 0, x && !y, "minus %s", text);
        }
    cr_assert(dfa_relabel(a, 1, &arena, &a, &error) && dfa_relabel(b, 4, &arena, &b, &error));
    const Dfa *both = combine(a, b, DFA_LABELS);
    cr_expect_eq(dfa_label(both, "ab"), 5);
    cr_expect_eq(dfa_label(both, "a"), 1);
    cr_expect_eq(dfa_label(both, "b"), 4);
    cr_assert(dfa_with_label(both, 5, 5, &arena, &low, &error));
    cr_expect(dfa_label(low, "ab") && dfa_label(low, "") && !dfa_label(low, "a"));
}

Test(dfa, results_have_no_state_in_vain)
{
    static const char *const left[] = {"abcdef"}, *const right[] = {"abcxyz"};
    cr_expect(dfa_is_empty(combine(words(left, 1), words(right, 1), DFA_AND)));
    cr_expect_eq(combine(words(left, 1), words(left, 1), DFA_AND)->n_states, 7);
}

Test(dfa, a_minimal_one_says_the_same_with_fewer_states)
{
    static const char *const list[] = {"xab", "yab", "zab", "xb", "yb", "zb"};
    const Dfa *dfa = words(list, 6), *least;
    cr_assert(dfa_minimize(dfa, &arena, &least, &error));
    cr_expect_eq(least->n_states, 4);
    for (size_t i = 0; i < 6; i++) cr_expect(dfa_label(least, list[i]));
    cr_expect_not(dfa_label(least, "xa") || dfa_label(least, "ab") || dfa_label(least, "xabb"));
    cr_assert(dfa_minimize(words(NULL, 0), &arena, &least, &error));
    cr_expect(dfa_is_empty(least));
}

Test(dfa, size_is_bounded)
{
    const Dfa *dfa, *other;
    cr_expect_not(dfa_lengths(DFA_MAX_STATES, UINT32_MAX, &arena, &dfa, &error));
    cr_expect_eq(error.code, ERR_TOO_LARGE);
    cr_assert(dfa_lengths(0, 3000, &arena, &dfa, &error) && dfa_lengths(7, UINT32_MAX, &arena, &other, &error));
    cr_expect_eq(combine(dfa, other, DFA_AND)->n_states, 3001);
}
