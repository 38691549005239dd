/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/grammar_walk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* From HURRY_TOKENS on what closes is likely: texts may go on for ever. */
enum { MAX_TOKENS = 400, HURRY_TOKENS = 40 };

bool grammar_walk_bytes(GrammarVocab **ret_vocab, Error *error)
{
    uint8_t bytes[255];
    size_t first[257] = {0};
    for (uint32_t i = 0; i < 256; i++) {
        if (i) bytes[i - 1] = (uint8_t)i;
        first[i + 1] = i;
    }
    return grammar_vocab_new(&(GrammarPieces){256, bytes, first}, ret_vocab, error);
}

/* Quotes end strings, and brackets all else. */
static void find_hurry(GrammarWalk *walk)
{
    for (uint32_t id = 0; id < grammar_vocab_size(walk->vocab); id++) {
        size_t n;
        const uint8_t *piece = grammar_vocab_piece(walk->vocab, id, &n);
        walk->hurry[id] = n && *piece == '"' ? 1e7f : n && strchr("}])", *piece) ? 1e4f : 1;
    }
}

bool grammar_walk_init(GrammarWalk *walk, const GrammarVocab *vocab, Error *error)
{
    size_t n = grammar_vocab_size(vocab);
    *walk = (GrammarWalk){.vocab = vocab, .weights = calloc(n, sizeof(float)), .hurry = calloc(n, sizeof(float))};
    if (!walk->weights || !walk->hurry) {
        grammar_walk_done(walk);
        return error_set(error, ERR_NO_MEMORY, "no memory for a walk");
    }
    find_hurry(walk);
    return true;
}

void grammar_walk_done(GrammarWalk *walk)
{
    free(walk->weights);
    free(walk->hurry);
}

uint64_t grammar_walk_random(GrammarWalk *walk)
{
    uint64_t x = (walk->seed += 0x9E3779B97F4A7C15u);
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static double unit(GrammarWalk *walk)
{
    return (double)(grammar_walk_random(walk) >> 11) * 0x1p-53;
}

static double weight_of(const GrammarWalk *walk, uint32_t id, bool hurries)
{
    return (double)walk->weights[id] * (hurries ? walk->hurry[id] : 1);
}

static uint32_t pick(GrammarWalk *walk, const uint64_t *words, bool hurries)
{
    double total = 0, at;
    uint32_t last = 0, n_words = (grammar_vocab_size(walk->vocab) + 63) / 64;
    for (uint32_t w = 0; w < n_words; w++)
        for (uint64_t bits = words[w]; bits; bits &= bits - 1)
            total += weight_of(walk, w * 64 + (uint32_t)__builtin_ctzll(bits), hurries);
    at = unit(walk) * total;
    for (uint32_t w = 0; w < n_words; w++)
        for (uint64_t bits = words[w]; bits; bits &= bits - 1) {
            last = w * 64 + (uint32_t)__builtin_ctzll(bits);
            if ((at -= weight_of(walk, last, hurries)) < 0) return last;
        }
    return last;
}

/* A likely text that may come next, or NULL. */
static const char *find_likely(GrammarWalk *walk, const GrammarMatcher *matcher, GrammarMatcher *ahead)
{
    size_t first = walk->n_likely ? grammar_walk_random(walk) % walk->n_likely : 0;
    for (size_t i = 0; i < walk->n_likely; i++) {
        Error ignored = {0};
        const char *word = walk->likely[(first + i) % walk->n_likely];
        matcher_copy(ahead, matcher);
        if (matcher_push_bytes(ahead, (const uint8_t *)word, strlen(word), &ignored)) return word;
    }
    return NULL;
}

/* The longest allowed token that the word begins with. */
static uint32_t pick_for(const GrammarWalk *walk, const uint64_t *words, const char *word, size_t *ret_bytes)
{
    uint32_t best = 0;
    *ret_bytes = 0;
    for (uint32_t id = 0; id < grammar_vocab_size(walk->vocab); id++) {
        size_t n;
        const uint8_t *piece = grammar_vocab_piece(walk->vocab, id, &n);
        if (!(words[id / 64] >> (id % 64) & 1) || n <= *ret_bytes || strncmp((const char *)piece, word, n)) continue;
        best = id;
        *ret_bytes = n;
    }
    return best;
}

static bool step(GrammarWalk *walk, GrammarMatcher *matcher, const char **word, bool hurries, Buffer *text,
                 Error *error)
{
    const uint64_t *words;
    uint32_t n_allowed, id;
    size_t bytes = 0;
    if (!matcher_mask(matcher, &words, &n_allowed, error)) return false;
    if (!n_allowed) return error_set(error, ERR_INTERNAL, "no token may follow");
    id = *word && **word ? pick_for(walk, words, *word, &bytes) : pick(walk, words, hurries);
    if (*word && **word) *word += bytes;
    const uint8_t *piece = grammar_vocab_piece(walk->vocab, id, &bytes);
    return matcher_push_token(matcher, id, error) && buffer_append(text, piece, bytes, error);
}

static bool walk_on(GrammarWalk *walk, GrammarMatcher *matcher, GrammarMatcher *ahead, Buffer *text, bool *ret_ended,
                    Error *error)
{
    const char *word = NULL;
    *ret_ended = false;
    for (int i = 0; i < MAX_TOKENS; i++) {
        bool hurries = i >= HURRY_TOKENS;
        *ret_ended = matcher_may_end(matcher) && (matcher_is_over(matcher) || unit(walk) < 0.3);
        if (*ret_ended) return true;
        if (hurries && !(word && *word)) word = find_likely(walk, matcher, ahead);
        if (!step(walk, matcher, &word, hurries, text, error)) return false;
    }
    return true;
}

bool grammar_walk(GrammarWalk *walk, Grammar *grammar, Buffer *text, bool *ret_ended, Error *error)
{
    GrammarMatcher *matcher = NULL, *ahead = NULL;
    buffer_clear(text);
    for (uint32_t id = 0; id < grammar_vocab_size(walk->vocab); id++) walk->weights[id] = (float)exp(6 * unit(walk));
    bool ok = matcher_new(grammar, &matcher, error) && matcher_new(grammar, &ahead, error) &&
              walk_on(walk, matcher, ahead, text, ret_ended, error);
    matcher_free(matcher);
    matcher_free(ahead);
    return ok;
}
