/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/regex.h"
#include "tests/support/grammar_rig.h"
#include "tests/support/sanitized.h"

#include <criterion/criterion.h>
#include <string.h>

enum { MAX_TEXTS = 6 };

static const struct {
    const char *pattern;
    const char *takes[MAX_TEXTS], *refuses[MAX_TEXTS];
} cases[] = {
    {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
    {"^abc$", {"abc"}, {"abcd"}},
    {"^a|b$", {"a", "b"}, {"ab", ""}},
    {"(\\d{3}-)?\\d{2,4}", {"12", "1234", "123-45"}, {"1", "12345", "12-34"}},
    {"[a-c]+?x*?", {"abc", "ax"}, {"x", ""}},
    {"[^a\\d]", {"b", "\xC3\xA9", "\n"}, {"a", "5", ""}},
    {"\\w+\\s\\S\\W\\D", {"a_1 x-y", "Z\t\xC3\xA9 ."}, {"a- x-y", "ab x-1"}},
    {".", {"a", "\xE2\x82\xAC"}, {"\n", "\r", "", "\xE2\x80\xA8"}},
    {"a.{2}b", {"axxb", "a\xC3\xA9zb"}, {"axb", "a\n\nb"}},
    {"\\x41\\u00e9\\u{1F600}\\uD83D\\uDE01", {"A\xC3\xA9\xF0\x9F\x98\x80\xF0\x9F\x98\x81"}, {"A"}},
    {"\\.\\*\\[\\]\\(\\)\\{\\}\\|\\^\\$\\/\\-", {".*[](){}|^$/-"}, {"."}},
    {"(?:ab|c(?<name>d)?)(?P<x>e){0,1}", {"ab", "cd", "ce", "abe"}, {"d", "abee"}},
    {"a{,2}b{x}", {"a{,2}b{x}"}, {"aab"}},
    {"()|a", {"", "a"}, {"b"}},
    {"[\\w.-]+@[a-z-]+", {"a.b-c@x-y"}, {"@x", "a@"}},
    {"[a\\-z]", {"a", "-", "z"}, {"b"}},
    {"[\\b]", {"\b"}, {"b"}},
    {"\xC3\xA9+", {"\xC3\xA9\xC3\xA9"}, {"\xC3", "e"}},
};

Test(regex, texts_are_taken_or_refused)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GrammarRig rig;
        grammar_rig_regex(&rig, cases[i].pattern, NULL);
        for (size_t j = 0; j < MAX_TEXTS && cases[i].takes[j]; j++)
            cr_expect(grammar_rig_takes(&rig, cases[i].takes[j]), "%s: '%s'", cases[i].pattern, cases[i].takes[j]);
        for (size_t j = 0; j < MAX_TEXTS && cases[i].refuses[j]; j++)
            cr_expect_not(grammar_rig_takes(&rig, cases[i].refuses[j]), "%s: '%s'", cases[i].pattern,
                          cases[i].refuses[j]);
        grammar_rig_done(&rig);
    }
}

static GrammarNode quote(GrammarBuilder *builder, const CodeRange *ranges, size_t n, void *arg)
{
    size_t *n_calls = arg;
    (*n_calls)++;
    return grammar_seq(builder, grammar_text(builder, "<"), grammar_class(builder, ranges, n, false),
                       grammar_text(builder, ">"));
}

static GrammarRig searching(const char *pattern, RegexDialect dialect)
{
    GrammarRig rig = {0};
    Error error;
    dialect.searches = true;
    cr_assert(grammar_builder_new(&rig.builder, &error));
    cr_assert(regex_parse(rig.builder, pattern, strlen(pattern), &dialect, &rig.root, &error), "%s", error.text);
    cr_assert(grammar_compile(rig.builder, rig.root, NULL, &rig.grammar, &error), "%s", error.text);
    return rig;
}

Test(regex, a_search_may_begin_and_end_anywhere)
{
    GrammarRig rig = searching("a|^b|c$|^d$", (RegexDialect){0});
    cr_expect(grammar_rig_takes(&rig, "xay") && grammar_rig_takes(&rig, "by") && grammar_rig_takes(&rig, "\nc"));
    cr_expect(grammar_rig_takes(&rig, "d"));
    cr_expect_not(grammar_rig_takes(&rig, "xb") || grammar_rig_takes(&rig, "cx") || grammar_rig_takes(&rig, "dd"));
    grammar_rig_done(&rig);
}

Test(regex, a_dialect_writes_its_own_characters)
{
    size_t n_calls = 0;
    GrammarRig rig = searching("a[bc]+$", (RegexDialect){.write = quote, .arg = &n_calls});
    cr_expect_eq(n_calls, 3);
    cr_expect(grammar_rig_takes(&rig, "<x><a><b><c>"));
    cr_expect_not(grammar_rig_takes(&rig, "ab") || grammar_rig_takes(&rig, "<a>"));
    grammar_rig_done(&rig);
}

static void expect_error(const char *pattern, ErrorCode code, const char *text)
{
    GrammarBuilder *builder;
    GrammarNode node;
    Error error = {0};
    cr_assert(grammar_builder_new(&builder, &error));
    cr_assert_not(regex_parse(builder, pattern, strlen(pattern), NULL, &node, &error), "%s", pattern);
    cr_expect_eq(error.code, code, "%s: %s", pattern, error.text);
    cr_expect(strstr(error.text, text), "%s: '%s' does not say '%s'", pattern, error.text, text);
    grammar_builder_free(builder);
}

Test(regex, errors_name_the_offset)
{
    static const struct {
        const char *pattern, *text;
    } faults[] = {
        {"a(?=b)", "offset 1: lookahead"},
        {"a(?!b)", "offset 1: lookahead"},
        {"(?<=b)", "offset 0: lookbehind"},
        {"(?<!b)", "offset 0: lookbehind"},
        {"(?>b)", "offset 0: atomic"},
        {"(?i)b", "offset 0: flags"},
        {"(?P=n)", "offset 0: a back reference"},
        {"(a)\\1", "offset 4: a back reference"},
        {"\\bx", "offset 1: a word boundary"},
        {"\\p{L}", "offset 1: a Unicode property"},
        {"\\Ax\\z", "offset 1: '\\A'"},
        {"\\y", "an unknown escape"},
        {"\\xZZ", "without the digits"},
        {"\\uD800", "without the digits"},
        {"\\", "offset 1: the pattern ends behind a backslash"},
        {"\\0", "U+0000"},
        {"((((", "a group is not closed"},
        {"a)", "offset 1: a ')' without its '('"},
        {"^+[a-z]$", "offset 1: a quantifier with nothing"},
        {"a**", "offset 2: a quantifier behind"},
        {"a++", "offset 2: possessive"},
        {"*a", "offset 0: a quantifier with nothing"},
        {"a^b", "offset 1: '^'"},
        {"a$b", "offset 1: '$'"},
        {"(a$)", "offset 2: '$'"},
        {"(^a)", "offset 1: '^'"},
        {"[a", "a class is not closed"},
        {"[]", "an empty class"},
        {"[z-a]", "a range that ends before"},
        {"[a-\\d]", "a range that ends before"},
        {"[[:alpha:]]", "POSIX"},
        {"(?<name", "the name of a group"},
        {"\xFF", "not UTF-8"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        expect_error(faults[i].pattern, ERR_SCHEMA, faults[i].text);
    expect_error("a{10001}", ERR_TOO_LARGE, "offset 1");
    expect_error("a{3,2}", ERR_SCHEMA, "offset 1");
}

/* Few letters, and more states than there are ways to hold them: counts end it, before a clock would. */
Test(regex, what_has_no_small_automaton_is_refused)
{
    static const struct {
        const char *pattern, *why;
    } large[] = {
        {"(a|b)*a(a|b){16}", "more than 8000000 steps"},
        {"(?:r[^\"]{0,20}/)*", "more than 131072 states"},
        {"r]+?(?:x|y{2,}|\\u81F600r[^\"\\s]{0,40}/}.)*$", "more than 8000000 steps"}, /* found by fuzzing */
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        GrammarBuilder *builder;
        GrammarNode root;
        Grammar *grammar;
        Error error = {0};
        cr_assert(grammar_builder_new(&builder, &error));
        cr_assert(regex_parse(builder, large[i].pattern, strlen(large[i].pattern), NULL, &root, &error));
        cr_assert_not(grammar_compile(builder, root, NULL, &grammar, &error), "%s", large[i].pattern);
        cr_expect_eq(error.code, ERR_TOO_LARGE);
        /* under sanitizers the clock may come first */
        bool is_late = SANITIZED_SHARE > 1 && strstr(error.text, "more than 3 s");
        cr_expect(is_late || strstr(error.text, large[i].why), "%s", error.text);
        grammar_builder_free(builder);
    }
}
