/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grammars by the text that they were made of, the last used ones kept, with the vocabulary that they are compiled for.
 * What cannot be compiled is remembered for a while, too. Compiling may take long: pool threads. Any thread, several at
 * once.
 */
#pragma once
#include "base/sha256.h"
#include "engine/sample/grammar/grammar.h"
#include "engine/sample/grammar/vocab.h"

enum { GRAMMAR_CACHE_MAX_GRAMMARS = 32, GRAMMAR_CACHE_MAX_FAILURES = 128 };

/* What a grammar is known by. */
typedef struct GrammarKey {
    uint8_t digest[SHA256_BYTES];
} GrammarKey;

typedef struct GrammarSource GrammarSource;
struct GrammarSource {
    const char *kind; /* "regex", "json_schema", ...: with the text it says all that the grammar depends on */
    const char *text; /* [n] */
    size_t n;
    bool (*build)(const GrammarSource *source, GrammarBuilder *builder, GrammarNode *ret_root, Error *error);
    const void *arg;              /* for build */
    const atomic_bool *cancelled; /* these two end compiling: grammar_builder_watch */
    uint64_t deadline_usec;
    bool is_try;             /* it has GRAMMAR_TRY_CPU_USEC: ERR_BUSY when that is not enough */
    GrammarKey *ret_unknown; /* not NULL: what is not known is not built, but fails with ERR_BUSY and its key */
    bool *ret_is_new;        /* not NULL: set when it was built, well or not */
};

typedef struct GrammarCacheParams {
    const Tokenizer *tokenizer; /* borrowed; its trie is made when it is first needed */
    size_t max_bytes;
    uint64_t failure_usec; /* for how long a failure is remembered */
} GrammarCacheParams;

typedef struct GrammarCache GrammarCache;
LW_CHECK bool grammar_cache_new(const GrammarCacheParams *params, GrammarCache **ret_cache, Error *error);
void grammar_cache_free(GrammarCache *cache); /* NULL is fine; after all references are released */
/* *ret_grammar: a reference for the caller. */
LW_CHECK bool grammar_cache_get(GrammarCache *cache, const GrammarSource *source, Grammar **ret_grammar, Error *error);
