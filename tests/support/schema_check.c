/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles schemas and tells what their grammars do. usage: schema_check [MODEL.gguf]
 * Each line of the input is {"schema", "instances": [text...], "samples": n, "seed", "draft7": bool, "order": bool},
 * each line of the output {"error" | "empty" | "states", "usec", "accepts": [bool...], "samples": [text...]}. Samples
 * are random walks over the model's vocabulary (without one: over bytes) that came to an end.
 */
#include "base/clock.h"
#include "engine/sample/grammar/matcher.h"
#include "engine/sample/grammar/vocab.h"
#include "engine/sample/schema/schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From HURRY_TOKENS on what closes is likely, and what is required: texts may go on for ever. */
enum { MAX_TOKENS = 400, HURRY_TOKENS = 40, MAX_TRIES = 200, MAX_TEXT_BYTES = 1 << 16 };

typedef struct Walker {
    const GrammarVocab *vocab;
    uint64_t seed;
    float *weights, *hurry; /* [n_vocab]; hurry: a factor */
    const cJSON *likely;    /* an array of words, or NULL */
    GrammarMatcher *ahead;  /* for trying */
} Walker;

static uint64_t next_random(Walker *walker)
{
    uint64_t x = (walker->seed += 0x9E3779B97F4A7C15u);
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static double unit(Walker *walker)
{
    return (double)(next_random(walker) >> 11) * 0x1p-53;
}

/* Some tokens are likely and most are not, as a model has it. */
static void draw_weights(Walker *walker)
{
    for (uint32_t id = 0; id < grammar_vocab_size(walker->vocab); id++)
        walker->weights[id] = (float)exp(6 * unit(walker));
}

/* Quotes end strings, and brackets all else. */
static void find_hurry(Walker *walker)
{
    for (uint32_t id = 0; id < grammar_vocab_size(walker->vocab); id++) {
        size_t n;
        const uint8_t *piece = grammar_vocab_piece(walker->vocab, id, &n);
        walker->hurry[id] = n && *piece == '"' ? 1e7f : n && (*piece == '}' || *piece == ']') ? 1e4f : 1;
    }
}

static double weight_of(const Walker *walker, uint32_t id, bool hurries)
{
    return (double)walker->weights[id] * (hurries ? walker->hurry[id] : 1);
}

static uint32_t pick(Walker *walker, const uint64_t *words, bool hurries)
{
    double total = 0, at;
    uint32_t last = 0, n_words = (grammar_vocab_size(walker->vocab) + 63) / 64;
    for (uint32_t w = 0; w < n_words; w++)
        for (uint64_t bits = words[w]; bits; bits &= bits - 1)
            total += weight_of(walker, w * 64 + (uint32_t)__builtin_ctzll(bits), hurries);
    at = unit(walker) * total;
    for (uint32_t w = 0; w < n_words; w++)
        for (uint64_t bits = words[w]; bits; bits &= bits - 1) {
            last = w * 64 + (uint32_t)__builtin_ctzll(bits);
            if ((at -= weight_of(walker, last, hurries)) < 0) return last;
        }
    return last;
}

/* A likely word that may come next, in its quotes, or NULL. */
static const char *find_word(Walker *walker, GrammarMatcher *matcher)
{
    uint32_t n = walker->likely ? (uint32_t)cJSON_GetArraySize(walker->likely) : 0;
    for (uint32_t i = 0, first = n ? (uint32_t)(next_random(walker) % n) : 0; i < n; i++) {
        Error error = {0};
        const char *word = cJSON_GetArrayItem(walker->likely, (int)((first + i) % n))->valuestring;
        matcher_copy(walker->ahead, matcher);
        if (matcher_push_bytes(walker->ahead, (const uint8_t *)word, strlen(word), &error)) return word;
    }
    return NULL;
}

/* The longest allowed token that the word begins with. */
static uint32_t pick_for(const Walker *walker, const uint64_t *words, const char *word, size_t *ret_bytes)
{
    uint32_t best = 0;
    *ret_bytes = 0;
    for (uint32_t id = 0; id < grammar_vocab_size(walker->vocab); id++) {
        size_t n;
        const uint8_t *piece = grammar_vocab_piece(walker->vocab, id, &n);
        if (!(words[id / 64] >> (id % 64) & 1) || n <= *ret_bytes || strncmp((const char *)piece, word, n)) continue;
        best = id;
        *ret_bytes = n;
    }
    return best;
}

static void fail(const char *what, const Error *error)
{
    fprintf(stderr, "schema_check: %s: %s\n", what, error->text);
    exit(1);
}

/* false: it did not come to its end in time. */
static bool walk(Walker *walker, GrammarMatcher *matcher, char *out)
{
    Error error = {0};
    size_t n = 0, bytes = 0;
    const char *word = NULL;
    if (!matcher_reset(matcher, &error)) fail("no way back", &error);
    for (int i = 0; i < MAX_TOKENS; i++) {
        const uint64_t *words;
        uint32_t n_allowed, id;
        bool hurries = i >= HURRY_TOKENS;
        if (matcher_may_end(matcher) && (matcher_is_over(matcher) || unit(walker) < 0.3)) {
            out[n] = 0;
            return true;
        }
        if (hurries && !(word && *word)) word = find_word(walker, matcher);
        if (!matcher_mask(matcher, &words, &n_allowed, &error) || !n_allowed) fail("no token may follow", &error);
        id = word && *word ? pick_for(walker, words, word, &bytes) : pick(walker, words, hurries);
        if (word && *word) word += bytes;
        const uint8_t *piece = grammar_vocab_piece(walker->vocab, id, &bytes);
        if (!matcher_push_token(matcher, id, &error)) fail("an allowed token was refused", &error);
        if (n + bytes >= MAX_TEXT_BYTES) return false;
        memcpy(out + n, piece, bytes);
        n += bytes;
    }
    return false;
}

static void add_samples(Walker *walker, GrammarMatcher *matcher, int wanted, cJSON *answer)
{
    static char text[MAX_TEXT_BYTES];
    cJSON *samples = cJSON_AddArrayToObject(answer, "samples");
    for (int tries = 0; tries < MAX_TRIES && cJSON_GetArraySize(samples) < wanted; tries++) {
        draw_weights(walker);
        if (walk(walker, matcher, text)) cJSON_AddItemToArray(samples, cJSON_CreateString(text));
    }
}

static void add_accepts(GrammarMatcher *matcher, const cJSON *instances, cJSON *answer)
{
    cJSON *accepts = cJSON_AddArrayToObject(answer, "accepts");
    for (const cJSON *item = instances ? instances->child : NULL; item; item = item->next) {
        Error error = {0};
        bool ok = matcher_reset(matcher, &error) &&
                  matcher_push_bytes(matcher, (const uint8_t *)item->valuestring, strlen(item->valuestring), &error) &&
                  matcher_may_end(matcher);
        cJSON_AddItemToArray(accepts, cJSON_CreateBool(ok));
    }
}

static bool use(Walker *walker, Grammar *grammar, const cJSON *request, cJSON *answer, Error *error)
{
    GrammarMatcher *matcher = NULL;
    const cJSON *samples = cJSON_GetObjectItem(request, "samples"), *seed = cJSON_GetObjectItem(request, "seed");
    walker->ahead = NULL;
    bool ok = matcher_new(grammar, &matcher, error) && matcher_new(grammar, &walker->ahead, error);
    walker->seed = seed ? (uint64_t)seed->valuedouble : 0;
    walker->likely = cJSON_GetObjectItem(request, "likely");
    cJSON_AddNumberToObject(answer, "states", grammar_n_states(grammar));
    if (ok) add_accepts(matcher, cJSON_GetObjectItem(request, "instances"), answer);
    if (ok && samples) add_samples(walker, matcher, samples->valueint, answer);
    matcher_free(walker->ahead);
    matcher_free(matcher);
    return ok;
}

static bool check(Walker *walker, const cJSON *request, cJSON *answer, Error *error)
{
    SchemaOptions options = {.keeps_order = cJSON_IsTrue(cJSON_GetObjectItem(request, "order")),
                             .ref_stands_alone = cJSON_IsTrue(cJSON_GetObjectItem(request, "draft7"))};
    GrammarBuilder *builder;
    GrammarNode root;
    Grammar *grammar;
    bool is_empty = false;
    if (!grammar_builder_new(&builder, error)) return false;
    uint64_t began = clock_now_usec();
    bool ok = schema_compile(cJSON_GetObjectItem(request, "schema"), &options, builder, &root, &is_empty, error);
    uint64_t built = clock_now_usec();
    ok = ok && grammar_compile(builder, root, walker->vocab, &grammar, error);
    cJSON_AddNumberToObject(answer, "schema_usec", (double)(built - began));
    cJSON_AddNumberToObject(answer, "usec", (double)(clock_now_usec() - began));
    if (is_empty) cJSON_AddBoolToObject(answer, "empty", true);
    if (ok) {
        ok = use(walker, grammar, request, answer, error);
        grammar_release(grammar);
    }
    grammar_builder_free(builder);
    return ok;
}

static bool answer_line(Walker *walker, const char *line)
{
    cJSON *request = cJSON_Parse(line), *answer = cJSON_CreateObject();
    Error error = {0};
    if (!request || !answer) return false;
    if (!check(walker, request, answer, &error)) cJSON_AddStringToObject(answer, "error", error.text);
    char *text = cJSON_PrintUnformatted(answer);
    bool ok = text && puts(text) >= 0 && fflush(stdout) == 0;
    free(text);
    cJSON_Delete(answer);
    cJSON_Delete(request);
    return ok;
}

static bool bytes_vocab(GrammarVocab **ret_vocab, Error *error)
{
    uint8_t bytes[255];
    size_t first[257] = {0};
    for (uint32_t i = 0; i < 256; i++) {
        if (i) bytes[i - 1] = (uint8_t)i;
        first[i + 1] = i;
    }
    return grammar_vocab_new(&(GrammarPieces){256, bytes, first}, ret_vocab, error);
}

int main(int argc, char **argv)
{
    Error error = {0};
    Gguf *gguf = NULL;
    Tokenizer *tokenizer = NULL;
    GrammarVocab *vocab = NULL;
    bool ok = argc > 1 ? gguf_open(argv[1], &gguf, &error) && tok_new(gguf, &tokenizer, &error) &&
                             grammar_vocab_of(tokenizer, &vocab, &error)
                       : bytes_vocab(&vocab, &error);
    Walker walker = {.vocab = vocab};
    walker.weights = ok ? calloc(grammar_vocab_size(vocab), sizeof(float)) : NULL;
    walker.hurry = ok ? calloc(grammar_vocab_size(vocab), sizeof(float)) : NULL;
    if (walker.hurry) find_hurry(&walker);
    char *line = NULL;
    size_t capacity = 0;
    while (ok && walker.weights && walker.hurry && getline(&line, &capacity, stdin) > 0)
        ok = answer_line(&walker, line);
    if (!ok) fprintf(stderr, "schema_check: %s\n", error.text);
    free(line);
    free(walker.weights);
    free(walker.hurry);
    grammar_vocab_free(vocab);
    tok_free(tokenizer);
    gguf_close(gguf);
    return ok ? 0 : 1;
}
