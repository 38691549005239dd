/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GBNF ('g' in front) and regular expressions: any bytes compile or fail with a reason. Behind a NUL come bytes that
 * choose a way through what compiled: of every mask each token can be pushed and no other can, and so can forced text.
 */
#include "base/clock.h"
#include "engine/sample/grammar/gbnf.h"
#include "engine/sample/grammar/matcher.h"
#include "engine/sample/grammar/regex.h"
#include "engine/sample/grammar/vocab.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Instrumented code is many times slower: a unit that would use up the time that a request has is not worth it. */
enum { N_BYTES = 256, N_VOCAB = 300, MAX_STEPS = 24, MAX_FORCED = 64, MAX_USEC = 1000000 };

/* Every byte, and some texts that grammars are likely to have. */
static GrammarVocab *make_vocab(void)
{
    static const char *const texts[] = {"ab",
                                        "abc",
                                        "\", \"",
                                        "{\"",
                                        "\"}",
                                        "true",
                                        "12",
                                        " a",
                                        "\xC3\xA9",
                                        "\xE2\x82",
                                        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                        "::=",
                                        "root",
                                        "\n\n",
                                        "()",
                                        "]]"};
    uint8_t bytes[4096];
    size_t first[N_VOCAB + 1], at = 0;
    GrammarVocab *vocab;
    Error error;
    for (uint32_t id = 0; id < N_VOCAB; id++) {
        first[id] = at;
        size_t i = id - N_BYTES, n_text = id >= N_BYTES && i < sizeof texts / sizeof *texts ? strlen(texts[i]) : 0;
        if (id < N_BYTES) bytes[at++] = (uint8_t)id;
        if (n_text) memcpy(bytes + at, texts[i], n_text);
        at += n_text;
    }
    first[N_VOCAB] = at;
    if (!grammar_vocab_new(&(GrammarPieces){N_VOCAB, bytes, first}, &vocab, &error)) abort();
    return vocab;
}

static void check_forced(GrammarMatcher *matcher, GrammarMatcher *ahead)
{
    uint8_t text[MAX_FORCED];
    size_t n;
    Error error;
    if (!matcher_forced(matcher, text, sizeof text, &n, &error)) {
        if (error.code != ERR_TOO_LARGE && error.code != ERR_INVALID) abort();
        return;
    }
    matcher_copy(ahead, matcher);
    if (!matcher_push_bytes(ahead, text, n, &error) && error.code != ERR_TOO_LARGE) abort();
}

/* false: nothing can follow. */
static bool step(GrammarMatcher *matcher, GrammarMatcher *ahead, uint8_t choice)
{
    const uint64_t *words;
    uint64_t kept[(N_VOCAB + 63) / 64];
    uint32_t n, allowed[N_VOCAB], n_allowed = 0;
    Error error;
    check_forced(matcher, ahead);
    if (!matcher_mask(matcher, &words, &n, &error)) {
        if (error.code != ERR_TOO_LARGE) abort();
        return false;
    }
    memcpy(kept, words, sizeof kept);
    for (uint32_t id = 0; id < N_VOCAB; id++) {
        matcher_copy(ahead, matcher);
        bool pushes = matcher_push_token(ahead, id, &error), is_allowed = kept[id / 64] >> id % 64 & 1;
        if (!pushes && error.code == ERR_TOO_LARGE) return false;
        if (is_allowed != pushes) abort();
        if (is_allowed) allowed[n_allowed++] = id;
    }
    if (n_allowed != n || (matcher_is_over(matcher) && (n || !matcher_may_end(matcher)))) abort();
    return n && matcher_push_token(matcher, allowed[choice % n], &error);
}

static void walk(Grammar *grammar, const uint8_t *choices, size_t n, uint64_t end_usec)
{
    GrammarMatcher *matcher, *ahead;
    Error error;
    if (!matcher_new(grammar, &matcher, &error)) {
        if (error.code != ERR_TOO_LARGE && error.code != ERR_INVALID) abort();
        return;
    }
    if (!matcher_new(grammar, &ahead, &error)) abort();
    for (size_t i = 0; i < n && i < MAX_STEPS && clock_now_usec() < end_usec; i++)
        if (!step(matcher, ahead, choices[i])) break;
    matcher_free(ahead);
    matcher_free(matcher);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static GrammarVocab *vocab;
    GrammarBuilder *builder;
    GrammarNode root;
    Grammar *grammar;
    Error error = {0};
    if (!vocab) vocab = make_vocab();
    if (n == 0) return 0;
    const char *text = (const char *)data + 1;
    const uint8_t *end = memchr(data + 1, 0, n - 1);
    size_t n_text = end ? (size_t)(end - data) - 1 : n - 1;
    if (!grammar_builder_new(&builder, &error)) abort();
    uint64_t end_usec = clock_now_usec() + MAX_USEC;
    grammar_builder_watch(builder, NULL, end_usec);
    bool ok = *data == 'g' ? gbnf_parse(builder, text, n_text, &root, &error)
                           : regex_parse(builder, text, n_text, NULL, &root, &error);
    if (ok && grammar_compile(builder, root, vocab, &grammar, &error)) {
        if (end) walk(grammar, end + 1, n - n_text - 2, end_usec);
        grammar_release(grammar);
    } else if (error.code != ERR_SCHEMA && error.code != ERR_TOO_LARGE && error.code != ERR_DEADLINE) {
        abort();
    }
    grammar_builder_free(builder);
    return 0;
}
