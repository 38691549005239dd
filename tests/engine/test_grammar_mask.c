/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties on random grammars and random walks: an automaton takes exactly the bytes that the twin takes, and a mask
 * has exactly the tokens that can be pushed.
 */
#include "engine/sample/grammar/compiled.h"
#include "engine/sample/grammar/gbnf.h"
#include "engine/sample/grammar/matcher.h"
#include "engine/sample/grammar/vocab.h"
#include "tests/support/grammar_rig.h"
#include "tests/support/grammar_twin.h"
#include "tests/support/sanitized.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that random grammars know, and some that they do not. */
static const uint8_t letters[] = {'a',  'b',  'c',  '"',  '{',  0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0,
                                  'z',  0,    '\n', 'd',  '}',  0x7F, 0x80, 0xBF, 0xC2, 0xDF, 0xE0,
                                  0x9F, 0xA0, 0xED, 0xEE, 0x90, 0x98, 0x8F, 0xF4, 0xF5, 0xFF};
enum { N_LETTERS = sizeof letters, N_COMMON = 12, MAX_WALK = 24 };

static void check_bytes(GrammarRig *rig, uint64_t *random)
{
    GrammarTwin *twin = grammar_twin_new(rig->builder, rig->root);
    GrammarMatcher *matcher = grammar_rig_matcher(rig), *ahead = grammar_rig_matcher(rig);
    uint8_t text[MAX_WALK];
    Error error;
    for (size_t n = 0; n < MAX_WALK; n++) {
        size_t taken[N_LETTERS], n_taken = 0;
        bool whole;
        for (size_t i = 0; i < N_LETTERS; i++) {
            uint8_t byte = letters[i];
            text[n] = byte;
            bool expected = grammar_twin_takes(twin, text, n + 1, &whole);
            matcher_copy(ahead, matcher);
            bool got = matcher_push_bytes(ahead, &text[n], 1, &error);
            cr_assert_eq(got, expected, "byte %02X behind %zu bytes", byte, n);
            if (got) cr_assert_eq(matcher_may_end(ahead), whole, "the end behind byte %02X at %zu", byte, n);
            if (got) taken[n_taken++] = byte;
        }
        if (matcher_is_over(matcher)) cr_assert_eq(n_taken, 0);
        if (n_taken == 0) break;
        text[n] = (uint8_t)taken[rig_random(random) % n_taken];
        cr_assert(matcher_push_bytes(matcher, &text[n], 1, &error), "%s", error.text);
    }
    matcher_free(ahead);
    matcher_free(matcher);
    grammar_twin_free(twin);
}

Test(grammar_mask, random_grammars_take_what_their_nodes_take)
{
    uint32_t n_compiled = 0;
    for (uint64_t seed = 0; seed < 400 / SANITIZED_SHARE; seed++) {
        uint64_t random = seed;
        GrammarRig rig;
        if (!grammar_rig_random(&rig, &random, NULL)) continue;
        n_compiled++;
        for (uint32_t walk = 0; walk < 3; walk++) check_bytes(&rig, &random);
        grammar_rig_done(&rig);
    }
    cr_assert_gt(n_compiled, 200 / SANITIZED_SHARE);
}

/* Tokens of one to five letters, some of them twice, every byte alone, and some without any. */
static GrammarVocab *random_vocab(uint64_t *random, uint32_t n)
{
    uint8_t bytes[4096 * 52];
    size_t first[4097], n_bytes = 0;
    cr_assert_leq(n, 4096);
    for (uint32_t id = 0; id < n; id++) {
        first[id] = n_bytes;
        if (id < 256) {
            bytes[n_bytes++] = (uint8_t)id;
            continue;
        }
        uint64_t left = rig_random(random) % 6, run = rig_random(random) % 40 ? 0 : rig_random(random) % 45;
        for (; run > 0; run--) bytes[n_bytes++] = (uint8_t)('a' + run % 2); /* longer than states are alike */
        for (; left > 0; left--) bytes[n_bytes++] = letters[rig_random(random) % N_COMMON];
    }
    first[n] = n_bytes;
    GrammarVocab *vocab;
    Error error;
    cr_assert(grammar_vocab_new(&(GrammarPieces){n, bytes, first}, &vocab, &error), "%s", error.text);
    return vocab;
}

/* Every bit of the mask; goes on with a token that is allowed. false: there is none, or the mask was refused. */
static bool check_mask(GrammarRig *rig, GrammarMatcher *matcher, const GrammarVocab *vocab, uint64_t *random,
                       uint32_t *n_too_large)
{
    GrammarMatcher *ahead = grammar_rig_matcher(rig);
    uint32_t n_vocab = grammar_vocab_size(vocab), n, n_bits = 0;
    const uint64_t *words;
    Error error;
    if (!matcher_mask(matcher, &words, &n, &error)) {
        cr_assert_eq(error.code, ERR_TOO_LARGE, "%s", error.text);
        (*n_too_large)++;
        matcher_free(ahead);
        return false;
    }
    size_t n_words = (n_vocab + 63) / 64;
    uint64_t *kept = malloc(n_words * sizeof *kept);
    cr_assert_not_null(kept);
    memcpy(kept, words, n_words * sizeof *kept);
    uint32_t *allowed = calloc((size_t)n + 1, sizeof *allowed);
    cr_assert_not_null(allowed);
    for (uint32_t id = 0; id < n_vocab; id++) {
        matcher_copy(ahead, matcher);
        bool expected = matcher_push_token(ahead, id, &error), got = kept[id / 64] >> id % 64 & 1;
        if (!expected && error.code == ERR_TOO_LARGE) {
            n -= got; /* too many ways to read it: it may not be chosen, whatever the mask says of it */
            continue;
        }
        cr_assert_eq(got, expected, "token %u: mask %d, push %d", id, got, expected);
        if (got) allowed[n_bits++] = id;
    }
    cr_assert_eq(n_bits, n);
    if (n) cr_assert(matcher_push_token(matcher, allowed[rig_random(random) % n], &error), "%s", error.text);
    free(allowed);
    free(kept);
    matcher_free(ahead);
    return n > 0;
}

Test(grammar_mask, masks_of_random_grammars_have_the_tokens_that_can_be_pushed)
{
    uint64_t random = 7;
    uint32_t n_too_large = 0, n_walks = 0;
    GrammarVocab *vocab = random_vocab(&random, 3000);
    for (uint64_t seed = 1000; seed < 1000 + 120 / SANITIZED_SHARE; seed++) {
        GrammarRig rig;
        random = seed;
        if (!grammar_rig_random(&rig, &random, vocab)) continue;
        for (uint32_t walk = 0; walk < 2; walk++, n_walks++) {
            GrammarMatcher *matcher = grammar_rig_matcher(&rig);
            for (uint32_t i = 0; i < 8 && check_mask(&rig, matcher, vocab, &random, &n_too_large); i++) continue;
            matcher_free(matcher);
        }
        grammar_rig_done(&rig);
    }
    cr_assert_lt(n_too_large, n_walks / 20);
    grammar_vocab_free(vocab);
}

/* Strings whose states are heavy, called from two places, with tokens that leave them. */
static const char json[] = "root ::= value\n"
                           "value ::= object | array | string | [0-9]+ | <[2]>\n"
                           "object ::= \"{\" (string \":\" value (\",\" string \":\" value)*)? \"}\"\n"
                           "array ::= \"[\" (value (\",\" value)*)? \"]\"\n"
                           "string ::= \"\\\"\" char* \"\\\"\"\n"
                           "char ::= [^\"\\\\\\x00-\\x1F] | \"\\\\\" [\"\\\\bfnrt]\n";

Test(grammar_mask, masks_of_json_have_the_tokens_that_can_be_pushed)
{
    uint64_t random = 3;
    uint32_t n_too_large = 0;
    GrammarVocab *vocab = random_vocab(&random, 4000);
    GrammarRig rig;
    grammar_rig_gbnf(&rig, json, vocab);
    for (uint32_t walk = 0; walk < 10; walk++) {
        GrammarMatcher *matcher = grammar_rig_matcher(&rig);
        for (uint32_t i = 0; i < 12 && check_mask(&rig, matcher, vocab, &random, &n_too_large); i++) continue;
        matcher_free(matcher);
    }
    grammar_rig_done(&rig);
    cr_assert_eq(n_too_large, 0);
    grammar_vocab_free(vocab);
}

Test(grammar_mask, states_that_are_alike_share_their_masks)
{
    uint64_t random = 5;
    uint32_t n_too_large = 0;
    GrammarVocab *vocab = random_vocab(&random, 4000);
    static const char *const grammars[] = {
        "root ::= \"\\\"\" [a-c{\\u00e9]{2,90} \"\\\"\" (\"a\" | \"{{\")",
        "root ::= char{0,75} \"\\\"\" char{40,80} \"\\\"\"\nchar ::= [^\"{] | \"{\" [a-c]",
        "root ::= (e? [ab]){0,70}\ne ::= \"{\" [abc]{0,40} \"\\\"\" | \"\"",
    };
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
        GrammarRig rig;
        grammar_rig_gbnf(&rig, grammars[i], vocab);
        for (uint32_t walk = 0; walk < 6; walk++) {
            GrammarMatcher *matcher = grammar_rig_matcher(&rig);
            for (uint32_t j = 0; j < 12 && check_mask(&rig, matcher, vocab, &random, &n_too_large); j++) continue;
            matcher_free(matcher);
        }
        grammar_rig_done(&rig);
    }
    cr_assert_eq(n_too_large, 0);
    grammar_vocab_free(vocab);
}

Test(grammar_mask, what_was_found_out_is_forgotten_and_nobody_notices)
{
    GrammarRig rig;
    Error error;
    grammar_rig_gbnf(&rig, "root ::= ([a-z] [0-9] [a-z] [0-9]){0,9000} \".\"\n", NULL);
    GrammarMatcher *first = grammar_rig_matcher(&rig), *second = grammar_rig_matcher(&rig);
    cr_assert(matcher_push_bytes(first, (const uint8_t *)"x", 1, &error), "%s", error.text);
    for (uint32_t i = 0; i < 9000; i++) /* more spots than the tables hold */
        cr_assert(matcher_push_bytes(second, (const uint8_t *)"a7b8", 4, &error), "%u: %s", i, error.text);
    cr_assert_not(matcher_push_bytes(second, (const uint8_t *)"a", 1, &error));
    cr_assert(matcher_push_bytes(second, (const uint8_t *)".", 1, &error), "%s", error.text);
    cr_assert(matcher_is_over(second) && matcher_may_end(second));
    cr_assert_not(matcher_push_bytes(first, (const uint8_t *)"x", 1, &error));
    cr_assert(matcher_push_bytes(first, (const uint8_t *)"0y1.", 4, &error), "%s", error.text);
    matcher_free(first);
    matcher_free(second);
    grammar_rig_done(&rig);
}

/* The single bytes, then words of so many letters of the alphabet, all different. */
static GrammarVocab *word_vocab(const char *alphabet, uint32_t n_words, uint32_t n_letters)
{
    uint32_t n_vocab = 256 + n_words;
    uint64_t random = 11;
    uint8_t *bytes = malloc(256 + (size_t)n_words * n_letters);
    size_t *first = malloc((n_vocab + 1) * sizeof *first), n = 0, n_alphabet = strlen(alphabet);
    cr_assert(bytes && first);
    for (uint32_t id = 0; id < n_vocab; id++) {
        first[id] = n;
        if (id < 256) bytes[n++] = (uint8_t)id;
        uint64_t number = id - 256; /* its digits make words differ, the rest is random */
        for (uint32_t i = 0; id >= 256 && i < n_letters; i++, number /= n_alphabet)
            bytes[n++] = (uint8_t)alphabet[i < 3 ? number % n_alphabet : rig_random(&random) % n_alphabet];
    }
    first[n_vocab] = n;
    GrammarVocab *vocab;
    Error error;
    cr_assert(grammar_vocab_new(&(GrammarPieces){n_vocab, bytes, first}, &vocab, &error), "%s", error.text);
    free(bytes);
    free(first);
    return vocab;
}

Test(grammar_mask, a_choice_of_many_words_has_all_of_them)
{
    enum { N_WORDS = 4096 };
    GrammarVocab *vocab = word_vocab("abcdefghijklmnopqrstuvwxyz", N_WORDS, 7);
    GrammarRig rig;
    Error error;
    GrammarNode *nodes = malloc(N_WORDS * sizeof *nodes);
    cr_assert(nodes && grammar_builder_new(&rig.builder, &error));
    for (uint32_t i = 0; i < N_WORDS; i++) {
        size_t n;
        const uint8_t *word = grammar_vocab_piece(vocab, 256 + i, &n);
        nodes[i] = grammar_bytes(rig.builder, (const char *)word, n);
    }
    rig.root = grammar_choice(rig.builder, nodes, N_WORDS);
    free(nodes);
    cr_assert(grammar_compile(rig.builder, rig.root, vocab, &rig.grammar, &error), "%s", error.text);
    GrammarMatcher *matcher = grammar_rig_matcher(&rig);
    const uint64_t *words;
    uint32_t n_allowed, n_words = 0;
    cr_assert(matcher_mask(matcher, &words, &n_allowed, &error), "%s", error.text);
    for (uint32_t i = 256; i < 256 + N_WORDS; i++) n_words += words[i / 64] >> i % 64 & 1;
    cr_expect_eq(n_words, N_WORDS);
    cr_expect_eq(n_allowed, N_WORDS + 26);
    cr_expect(matcher_push_token(matcher, 256 + N_WORDS - 1, &error) && matcher_may_end(matcher), "%s", error.text);
    matcher_free(matcher);
    grammar_rig_done(&rig);
    grammar_vocab_free(vocab);
}

/* The first mask of a text that may go on in so many ways, each of which takes most of the vocabulary. */
static bool has_mask(const GrammarVocab *vocab, uint32_t n_ways, Error *error)
{
    char *text = malloc(32 + n_ways * 64ul), *at = text;
    cr_assert_not_null(text);
    at += sprintf(at, "root ::= r0");
    for (uint32_t i = 1; i < n_ways; i++) at += sprintf(at, " | r%u", i);
    for (uint32_t i = 0; i < n_ways; i++)
        at += sprintf(at, "\nr%u ::= [a-zA-Z]* (\"%03u\" | \"(\" r%u \")\")", i, i, i);
    GrammarRig rig;
    grammar_rig_gbnf(&rig, text, vocab);
    free(text);
    GrammarMatcher *matcher = grammar_rig_matcher(&rig);
    const uint64_t *words;
    uint32_t n;
    bool ok = matcher_mask(matcher, &words, &n, error);
    if (ok) cr_expect_gt(n, 10000);
    cr_expect(matcher_push_bytes(matcher, (const uint8_t *)"ab007", 5, &(Error){0}) && matcher_may_end(matcher));
    matcher_free(matcher);
    grammar_rig_done(&rig);
    return ok;
}

Test(grammar_mask, a_mask_that_would_take_too_long_is_refused)
{
    GrammarVocab *vocab = word_vocab("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", 30000, 5);
    Error error = {0};
    cr_expect(has_mask(vocab, 20, &error), "%s", error.text);
    cr_assert_not(has_mask(vocab, 400, &error));
    cr_expect_eq(error.code, ERR_TOO_LARGE);
    cr_expect(strstr(error.text, "too many ways") != NULL, "%s", error.text);
    grammar_vocab_free(vocab);
}

/* Few nodes of the trie, but hundreds of stacks at each: these are counted, too, and it is given up before tables fill.
 */
Test(grammar_mask, an_ambiguous_text_is_not_followed_for_long)
{
    GrammarVocab *vocab = word_vocab("abcdefghijklmnopqrstuvwxyz ", 30000, 20);
    GrammarRig rig;
    grammar_rig_gbnf(&rig, "root ::= s{3}\ns ::= [a-z ]{1,40} t?\nt ::= [a-m ]{1,40} s? | [k-z ]{1,40} s?", vocab);
    GrammarMatcher *matcher = grammar_rig_matcher(&rig);
    const uint64_t *words;
    uint32_t n;
    Error error = {0};
    const Run *run = &rig.grammar->run;
    uint64_t before = run->masks.work;
    uint32_t n_before = run->n_members;
    for (int i = 0; i < 12; i++) cr_assert(matcher_push_bytes(matcher, (const uint8_t *)"kl", 2, &error));
    cr_expect_gt(run->n_members - n_before, 1000);
    cr_expect_geq(run->masks.work - before, (uint64_t)RUN_STACK_WORK * (run->n_members - n_before));
    bool ok = true;
    for (int i = 0; ok && i < 40; i++)
        ok = matcher_mask(matcher, &words, &n, &error) && matcher_push_bytes(matcher, (const uint8_t *)"kl", 2, &error);
    cr_expect(!ok && error.code == ERR_TOO_LARGE, "%s", error.text);
    matcher_free(matcher);
    grammar_rig_done(&rig);
    grammar_vocab_free(vocab);
}
