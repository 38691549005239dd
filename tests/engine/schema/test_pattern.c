/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/format.h"
#include "engine/sample/schema/pattern.h"
#include "tests/engine/schema/arena_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(pattern, .init = init, .fini = done);

typedef struct Row {
    const char *pattern, *yes[5], *no[5];
} Row;

static void check(const char *name, const Dfa *dfa, const char *const *yes, const char *const *no)
{
    for (size_t i = 0; i < 5 && yes[i]; i++) cr_expect(dfa_label(dfa, yes[i]), "%s refuses '%s'", name, yes[i]);
    for (size_t i = 0; i < 5 && no[i]; i++) cr_expect_not(dfa_label(dfa, no[i]), "%s accepts '%s'", name, no[i]);
}

Test(pattern, a_match_anywhere_will_do)
{
    static const Row rows[] = {
        {"a+", {"xxaayy", "a"}, {"", "xyz"}},
        {"^a*$", {"", "aaa"}, {"ab", "ba"}},
        {"^ab|cd$", {"abx", "xcd", "ab", "cd"}, {"xab", "cdx", ""}},
        {"^(ab|c){2,3}$", {"abc", "cc", "ccc", "abab"}, {"c", "cccc", "abcx"}},
        {"^[^a-c\\d]$", {"d", "\xC3\xA9", "-"}, {"a", "5", "", "dd"}},
        {"^.$", {"x", "\xF0\x9F\x98\x80"}, {"\n", "", "xx"}},
        {"^\\u00e9\\x41\\t$",
         {"\xC3\xA9"
          "A\t"},
         {"e"}},
        {"^a{0}b{2}c{1,}$", {"bbc", "bbccc"}, {"abbc", "bb", "bc"}},
        {"", {"", "anything"}, {NULL}},
        {"x*", {"", "abc"}, {NULL}},
        {"^(a?b?c?)*d$", {"d", "abcabd", "cad"}, {"abc"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const Dfa *dfa;
        cr_assert(pattern_compile(rows[i].pattern, &arena, &dfa, &error), "%s: %s", rows[i].pattern, error.text);
        check(rows[i].pattern, dfa, rows[i].yes, rows[i].no);
    }
}

Test(pattern, what_cannot_be_done_is_refused)
{
    static const char *const patterns[] = {"(?=a)", "(?<!a)b", "(a)\\1", "\\bword", "[", "(",
                                           "a**",   "\\p{L}",  "a)",     "[z-a]",   "*"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        const Dfa *dfa;
        cr_expect_not(pattern_compile(patterns[i], &arena, &dfa, &error), "%s", patterns[i]);
        cr_expect_eq(error.code, ERR_SCHEMA);
    }
}

Test(pattern, size_and_steps_are_bounded)
{
    /* the last one wants 2^40 subsets */
    static const char *const patterns[] = {"(abc){9000}", "((a{50}){50}){50}", "^(a|b)*a(a|b){40}$"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        const Dfa *dfa;
        cr_expect_not(pattern_compile(patterns[i], &arena, &dfa, &error), "%s", patterns[i]);
        cr_expect_eq(error.code, ERR_TOO_LARGE, "%s: %s", patterns[i], error.text);
    }
}

Test(pattern, formats_are_what_their_standards_say)
{
    static const Row rows[] = {
        {"date",
         {"2024-02-29", "2000-02-29", "1999-12-31", "0001-01-01"},
         {"2023-02-29", "1900-02-29", "2024-13-01", "2024-04-31", "0000-01-01"}},
        {"time",
         {"08:30:06Z", "23:59:59.123+05:30", "00:00:00z"},
         {"24:00:00Z", "08:30:06", "08:60:00Z", "08:30:60Z", "8:30:06Z"}},
        {"date-time",
         {"1985-04-12T23:20:50.52Z", "1996-12-19t16:39:57-08:00"},
         {"1985-04-12 23:20:50Z", "1985-04-31T00:00:00Z", "1985-04-12"}},
        {"duration", {"P1D", "PT5M", "P3Y6M4DT12H30M5S", "P4W"}, {"P", "PT", "P1H", "1D", "P1Y2D"}},
        {"uuid",
         {"2EB8AA08-aa98-11ea-b4aa-73b441d16380"},
         {"2eb8aa08-aa98-11ea-b4aa-73b441d1638", "2eb8aa08aa9811eab4aa73b441d16380"}},
        {"email",
         {"joe.bloggs@example.com", "a+b@x-y.org"},
         {"2962", ".a@example.com", "a..b@example.com", "a@example", "a@-x.org"}},
        {"hostname",
         {"www.example.com", "localhost", "xn--4gbwdl.xn--wgbh1c"},
         {"-a.com", "a-.com", "a_b", "a..b", ""}},
        {"ipv4", {"192.168.0.1", "255.255.255.255"}, {"256.1.1.1", "1.2.3", "01.2.3.4", "1.2.3.4.5"}},
        {"ipv6",
         {"::", "::1", "1:2:3:4:5:6:7:8", "1::8", "::ffff:192.0.2.1"},
         {":1", "1:2:3:4:5:6:7", "12345::", "1::2::3", "::g"}},
        {"uri",
         {"http://a.b/c?d=e#f", "mailto:a@b.c", "urn:x:y", "ldap://[2001:db8::7]/c=GB?x"},
         {"/abc", "abc", "http:// x", "//a/b", "ht tp:a"}},
        {"json-pointer", {"", "/a~0b/~1", "/"}, {"a", "/~2", "/~"}},
        {"byte", {"", "YQ==", "YWI=", "YWJj"}, {"Y", "YQ=", "YQ==YQ=="}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const Dfa *dfa;
        cr_assert(format_compile(rows[i].pattern, &arena, &dfa, &error), "%s: %s", rows[i].pattern, error.text);
        check(rows[i].pattern, dfa, rows[i].yes, rows[i].no);
    }
    const Dfa *dfa;
    cr_expect(format_compile("password", &arena, &dfa, &error) && !dfa);
    cr_expect_not(format_compile("iri", &arena, &dfa, &error));
}

/* A local part of 64 characters is the longest, and a name stays below 254. */
Test(pattern, formats_have_lengths)
{
    const Dfa *email, *host;
    char text[400];
    cr_assert(format_compile("email", &arena, &email, &error) && format_compile("hostname", &arena, &host, &error));
    snprintf(text, sizeof text, "%064d@example.com", 1);
    cr_expect(dfa_label(email, text));
    snprintf(text, sizeof text, "%065d@example.com", 1);
    cr_expect_not(dfa_label(email, text));
    snprintf(text, sizeof text, "%0300d", 1);
    cr_expect_not(dfa_label(host, text));
}
