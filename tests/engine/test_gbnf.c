/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/gbnf.h"
#include "tests/support/grammar_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXTS = 6 };

static const struct {
    const char *grammar;
    const char *takes[MAX_TEXTS], *refuses[MAX_TEXTS];
} cases[] = {
    {"root ::= \"a\" \"b\" | \"cd\"", {"ab", "cd"}, {"", "a", "abcd", "acd"}},
    {"root ::= (\"a\" | \"b\")+ \"c\"? [d-f]*", {"a", "bac", "abdef", "bff"}, {"", "c", "ca", "acc"}},
    {"root ::= \"a\"{2} \"b\"{1,3} \"c\"{2,} \"d\"{,1}",
     {"aabcc", "aabbbccccd"},
     {"abcc", "aabc", "aabbbbcc", "aaccd"}},
    {"root ::= [^a-c\\n]", {"d", "\xC3\xA9", "\xF0\x9F\x98\x80"}, {"a", "\n", "", "dd", "\xC3", "\xED\xA0\x80"}},
    {"root ::= [\\x41\\u00e9\\U0001F600-\\U0001F602\\]\\-]",
     {"A", "\xC3\xA9", "\xF0\x9F\x98\x81", "]", "-"},
     {"B", "\xF0\x9F\x98\x83", "u"}},
    {"root ::= [a-]", {"a", "-"}, {"b", "a-"}},
    {"root ::= \"\\\"\\\\\\n\\t\\r\\x41\"", {"\"\\\n\t\rA"}, {"\"\\\n\t\ra"}},
    {"root ::= . \"x\"", {"ax", "\nx", "\xE2\x82\xACx"}, {"x", "\xE2\x82x"}},
    {"# first\nroot ::= a # behind\n\n  | b\na ::= \"1\"\r\nb ::=\n  \"2\"   |\n  \"3\"\n",
     {"1", "2", "3"},
     {"", "12"}},
    {"root ::= (\n \"a\"\n # within\n |\n \"b\"\n) \"c\"", {"ac", "bc"}, {"c"}},
    {"root ::= \"(\" root? \")\"", {"()", "((()))"}, {"", "(", "(()", "())"}},
    {"root ::= list\nlist ::= item (\",\" list)?\nitem ::= \"x\"", {"x", "x,x,x"}, {"", "x,", ",x"}},
    {"root ::= a*\na ::= b?\nb ::= \"x\" | \"\"", {"", "xxx"}, {"y"}},
    {"root ::= \"a\" \"\" | ", {"a", ""}, {"b"}},
    {"root ::= e\ne ::= t (\"+\" t)*\nt ::= [0-9] | \"(\" e \")\"", {"1", "1+(2+3)+4"}, {"1+", "(1", "+1"}},
    {"root ::= x_1-a\nx_1-a ::= \"ok\"", {"ok"}, {"o"}},
};

Test(gbnf, texts_are_taken_or_refused)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GrammarRig rig;
        grammar_rig_gbnf(&rig, cases[i].grammar, NULL);
        for (size_t j = 0; j < MAX_TEXTS && cases[i].takes[j]; j++)
            cr_expect(grammar_rig_takes(&rig, cases[i].takes[j]), "%s: '%s'", cases[i].grammar, cases[i].takes[j]);
        for (size_t j = 0; j < MAX_TEXTS && cases[i].refuses[j]; j++)
            cr_expect_not(grammar_rig_takes(&rig, cases[i].refuses[j]), "%s: '%s'", cases[i].grammar,
                          cases[i].refuses[j]);
        grammar_rig_done(&rig);
    }
}

static void expect_error(const char *grammar, size_t n, ErrorCode code, const char *text)
{
    GrammarBuilder *builder;
    GrammarNode root;
    Grammar *compiled = NULL;
    Error error = {0};
    cr_assert(grammar_builder_new(&builder, &error));
    bool ok = gbnf_parse(builder, grammar, n, &root, &error) && grammar_compile(builder, root, NULL, &compiled, &error);
    cr_assert_not(ok, "%s", grammar);
    cr_expect_eq(error.code, code, "%s", error.text);
    cr_expect(strstr(error.text, text), "'%s' does not say '%s'", error.text, text);
    grammar_builder_free(builder);
}

Test(gbnf, errors_name_the_rule_and_the_offset)
{
    static const struct {
        const char *grammar, *text;
    } faults[] = {
        {"", "no rule 'root'"},
        {"start ::= \"a\"", "no rule 'root'"},
        {"root ::= \"a", "rule 'root', offset 11: the grammar ends"},
        {"root ::= [a", "rule 'root', offset 11: the grammar ends"},
        {"root ::= (\"a\"", "offset 13: the group of offset 9 is not closed"},
        {"root ::= \"a\")", "rule 'root', offset 12: unexpected text"},
        {"root : \"a\"", "rule 'root', offset 5: '::=' is missing"},
        {"::= \"a\"", "offset 0: a rule must begin with its name"},
        {"root ::= *", "offset 9: unexpected text"},
        {"root ::= \"a\"{3,2}", "offset 12: a repetition of at least 3 and at most 2"},
        {"root ::= \"a\"{}", "offset 12: a repetition that is not"},
        {"root ::= \"a\"{,}", "offset 12: a repetition that is not"},
        {"root ::= \"a\"{1 2}", "offset 12: a repetition that is not"},
        {"root ::= [z-a]", "offset 10: a range from U+007A down to U+0061"},
        {"root ::= \"\\q\"", "offset 10: an unknown escape"},
        {"root ::= \"\\x4\"", "offset 10: '\\x' without 2 hexadecimal digits"},
        {"root ::= \"\\U00110000\"", "offset 10: '\\U' without 8 hexadecimal digits"},
        {"root ::= \"\\ud800\"", "offset 10: U+D800"},
        {"root ::= \"a\\x00\"", "offset 11: U+0000"},
        {"root ::= <think>", "offset 9: a token must be written"},
        {"root ::= a\n", "rule 'a' is used but not defined"},
        {"root ::= \"a\"\nroot ::= \"b\"", "rule 'root' is defined twice"},
        {"root ::= root \"a\" | \"a\"", "rule 'root' is left-recursive"},
        {"root ::= \"x\" a\na ::= b* c\nb ::= \"q\"?\nc ::= a \"y\" | \"z\"", "is left-recursive"},
        {"root ::= \"a\" root", "no text ever ends"},
        {"root ::= \"a\" []", "no text ever ends"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        expect_error(faults[i].grammar, strlen(faults[i].grammar), ERR_SCHEMA, faults[i].text);
    expect_error("root ::= \"\xFF\"", 11, ERR_SCHEMA, "not UTF-8");
}

Test(gbnf, what_is_large_is_refused)
{
    size_t n = 60000, at;
    char *text = malloc(3 * n + 64);
    cr_assert_not_null(text);
    at = (size_t)sprintf(text, "root ::= ");
    for (size_t i = 0; i < n; i++) text[at++] = '(';
    expect_error(text, at, ERR_SCHEMA, "groups nested deeper");
    at = (size_t)sprintf(text, "root ::= \"a\"");
    for (size_t i = 0; i < n; i++) text[at++] = "*?"[i % 2];
    expect_error(text, at, ERR_TOO_LARGE, "nested deeper");
    expect_error("root ::= \"a\"{10001}", 19, ERR_TOO_LARGE, "rule 'root', offset 12");
    expect_error("root ::= ([a-z]{1000}){1000}", 28, ERR_TOO_LARGE, "more than");
    expect_error("root ::= (.*a.{20} | .*b.{20} | \"\")*", 36, ERR_SCHEMA, "rule");
    static const char blowup[] = "root ::= [ab]* \"a\" [ab]{24}";
    expect_error(blowup, strlen(blowup), ERR_TOO_LARGE, "");
    free(text);
}
