/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/grammar_rig.h"

#include "engine/sample/grammar/gbnf.h"
#include "engine/sample/grammar/regex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_RULES = 4 };

static void must(bool ok, const Error *error)
{
    if (ok) return;
    fprintf(stderr, "grammar_rig: %s\n", error->text);
    abort();
}

uint64_t rig_random(uint64_t *random)
{
    uint64_t x = *random += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static void compile(GrammarRig *rig, const GrammarVocab *vocab)
{
    Error error;
    must(grammar_compile(rig->builder, rig->root, vocab, &rig->grammar, &error), &error);
}

void grammar_rig_gbnf(GrammarRig *rig, const char *text, const GrammarVocab *vocab)
{
    Error error;
    must(grammar_builder_new(&rig->builder, &error), &error);
    must(gbnf_parse(rig->builder, text, strlen(text), &rig->root, &error), &error);
    compile(rig, vocab);
}

void grammar_rig_regex(GrammarRig *rig, const char *text, const GrammarVocab *vocab)
{
    Error error;
    must(grammar_builder_new(&rig->builder, &error), &error);
    must(regex_parse(rig->builder, text, strlen(text), NULL, &rig->root, &error), &error);
    compile(rig, vocab);
}

void grammar_rig_done(GrammarRig *rig)
{
    grammar_release(rig->grammar);
    grammar_builder_free(rig->builder);
}

GrammarMatcher *grammar_rig_matcher(GrammarRig *rig)
{
    GrammarMatcher *matcher;
    Error error;
    must(matcher_new(rig->grammar, &matcher, &error), &error);
    return matcher;
}

bool grammar_rig_takes(GrammarRig *rig, const char *text)
{
    Error error;
    GrammarMatcher *matcher = grammar_rig_matcher(rig);
    bool ok = matcher_push_bytes(matcher, (const uint8_t *)text, strlen(text), &error) && matcher_may_end(matcher);
    matcher_free(matcher);
    return ok;
}

/* ---- random grammars ---- */

static GrammarNode random_node(GrammarBuilder *builder, const GrammarRule *rules, uint64_t *random, uint32_t depth);

static GrammarNode random_class(GrammarBuilder *builder, uint64_t *random)
{
    static const CodeRange some[] = {{'a', 'b'}, {'"', '"'}, {0x80, 0x7FF}, {0x20AC, 0x20AC}, {0xD000, 0x1F600}};
    CodeRange ranges[3];
    size_t n = rig_random(random) % 3 + 1;
    for (size_t i = 0; i < n; i++) ranges[i] = some[rig_random(random) % (sizeof some / sizeof *some)];
    return grammar_class(builder, ranges, n, rig_random(random) % 3 == 0);
}

static GrammarNode random_free(GrammarBuilder *builder, uint64_t *random)
{
    static const char *const markers[] = {"ab", "a\"", "\xC3\xA9", "baba", "c", "aab"};
    size_t first = rig_random(random) % 4, n = rig_random(random) % 3;
    if (n == 0 || rig_random(random) % 2) return grammar_without(builder, markers + first, n);
    uint32_t only = rig_random(random) % 2 ? GRAMMAR_ANY_MARKER : (uint32_t)(rig_random(random) % n);
    return grammar_until(builder, markers + first, n, only);
}

static GrammarNode random_list(GrammarBuilder *builder, const GrammarRule *rules, uint64_t *random, uint32_t depth,
                               bool is_choice)
{
    GrammarNode nodes[4];
    size_t n = rig_random(random) % 3 + 2;
    for (size_t i = 0; i < n; i++) nodes[i] = random_node(builder, rules, random, depth + 1);
    return is_choice ? grammar_choice(builder, nodes, n) : grammar_sequence(builder, nodes, n);
}

static GrammarNode random_node(GrammarBuilder *builder, const GrammarRule *rules, uint64_t *random, uint32_t depth)
{
    static const char *const texts[] = {"a", "b", "ab", "ba", "\"", "{", "\xC3\xA9", "\xE2\x82\xAC", "cab", ""};
    uint64_t kind = rig_random(random) % (depth < 4 ? 12 : 5);
    if (kind < 2) return grammar_text(builder, texts[rig_random(random) % (sizeof texts / sizeof *texts)]);
    if (kind == 2) return random_class(builder, random);
    if (kind == 3) return grammar_ref(builder, rules[rig_random(random) % N_RULES]);
    if (kind == 4) return random_free(builder, random);
    if (kind < 8) return random_list(builder, rules, random, depth, false);
    if (kind < 10) return random_list(builder, rules, random, depth, true);
    uint32_t min = (uint32_t)(rig_random(random) % 3), more = (uint32_t)(rig_random(random) % 3);
    GrammarNode node = random_node(builder, rules, random, depth + 1);
    return grammar_repeat(builder, node, min, more ? min + more : GRAMMAR_UNBOUNDED);
}

bool grammar_rig_random(GrammarRig *rig, uint64_t *random, const GrammarVocab *vocab)
{
    Error error;
    GrammarRule rules[N_RULES];
    must(grammar_builder_new(&rig->builder, &error), &error);
    for (size_t i = 0; i < N_RULES; i++) rules[i] = grammar_rule_new(rig->builder, "r");
    for (size_t i = 0; i < N_RULES; i++)
        grammar_define(rig->builder, rules[i], random_node(rig->builder, rules, random, 0));
    rig->root = random_node(rig->builder, rules, random, 0);
    if (grammar_compile(rig->builder, rig->root, vocab, &rig->grammar, &error)) return true;
    if (error.code != ERR_SCHEMA && error.code != ERR_TOO_LARGE) must(false, &error);
    grammar_builder_free(rig->builder);
    return false;
}
