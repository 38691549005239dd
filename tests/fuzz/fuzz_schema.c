/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON schemas: any JSON compiles or is refused with a reason, and a random walk through the grammar is never at a loss
 * and ends in text that is JSON.
 */
#include "engine/sample/grammar/matcher.h"
#include "engine/sample/grammar/vocab.h"
#include "engine/sample/schema/schema.h"
#include "server/api_json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MAX_BYTES = 300 };

static GrammarVocab *bytes_vocab(void)
{
    static uint8_t bytes[255];
    static size_t first[257];
    GrammarVocab *vocab;
    Error error;
    for (uint32_t i = 0; i < 256; i++) {
        if (i) bytes[i - 1] = (uint8_t)i;
        first[i + 1] = i;
    }
    if (!grammar_vocab_new(&(GrammarPieces){256, bytes, first}, &vocab, &error)) abort();
    return vocab;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* One of the allowed bytes; those that close come more often, the longer it takes. */
static uint32_t pick(const uint64_t *words, uint32_t n_allowed, size_t at, uint32_t *state)
{
    static const char closing[] = "\"}]";
    uint32_t number = next_random(state) % n_allowed;
    for (const char *c = closing; at > 60 && *c; c++)
        if ((words[*c / 64] >> (*c % 64) & 1) && next_random(state) % 4) return (uint32_t)*c;
    for (uint32_t id = 0;; id++)
        if ((words[id / 64] >> (id % 64) & 1) && !number--) return id;
}

static void walk(Grammar *grammar, uint32_t state)
{
    GrammarMatcher *matcher;
    Error error = {0};
    char text[MAX_BYTES + 1];
    size_t n = 0;
    if (!matcher_new(grammar, &matcher, &error)) abort();
    while (n < MAX_BYTES && !(matcher_may_end(matcher) && (matcher_is_over(matcher) || next_random(&state) % 4 == 0))) {
        const uint64_t *words;
        uint32_t n_allowed;
        if (!matcher_mask(matcher, &words, &n_allowed, &error)) {
            if (error.code != ERR_TOO_LARGE) abort();
            matcher_free(matcher);
            return;
        }
        if (!n_allowed) abort();
        uint32_t id = pick(words, n_allowed, n, &state);
        if (!matcher_push_token(matcher, id, &error)) abort();
        text[n++] = (char)id;
    }
    text[n] = 0;
    if (matcher_may_end(matcher)) {
        cJSON *json = cJSON_ParseWithOpts(text, NULL, 1);
        if (!json) abort();
        cJSON_Delete(json);
    }
    matcher_free(matcher);
}

static void use(const cJSON *schema, const SchemaOptions *options, uint32_t seed)
{
    static GrammarVocab *vocab;
    if (!vocab) vocab = bytes_vocab();
    Error error = {0};
    GrammarBuilder *builder;
    GrammarNode root;
    Grammar *grammar;
    if (!grammar_builder_new(&builder, &error)) abort();
    bool ok = schema_compile(schema, options, builder, &root, NULL, &error);
    /* what has a value has a text, so only limits are left */
    if (!ok && error.code != ERR_SCHEMA && error.code != ERR_TOO_LARGE && error.code != ERR_NO_MEMORY) abort();
    if (ok && grammar_compile(builder, root, vocab, &grammar, &error)) {
        for (uint32_t i = 0; i < 3; i++) walk(grammar, seed + i);
        grammar_release(grammar);
    } else if (ok && error.code != ERR_TOO_LARGE) {
        abort();
    }
    grammar_builder_free(builder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    Error error = {0};
    cJSON *schema;
    if (n > 4096) return 0;
    char *text = malloc(n + 1);
    if (!text) abort();
    if (n) memcpy(text, data, n);
    text[n] = 0;
    if (json_parse(text, n, &schema, &error)) {
        uint32_t seed = 2166136261u;
        for (size_t i = 0; i < n; i++) seed = (seed ^ data[i]) * 16777619u;
        use(schema, NULL, seed);
        use(schema, &(SchemaOptions){.keeps_order = true, .ref_stands_alone = true}, seed);
        if (!schema_check_strict(schema, &error) && error.code != ERR_SCHEMA) abort();
        cJSON_Delete(schema);
    }
    free(text);
    return 0;
}
