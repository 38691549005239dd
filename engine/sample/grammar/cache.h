/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grammars by the text that they were made of, the last used ones kept, with the vocabulary that they are compiled for.
 * Compiling may take a while: pool threads. Any thread, several at once.
 */
#pragma once
#include "engine/sample/grammar/vocab.h"
#include "engine/sample/grammar/grammar.h"

enum { GRAMMAR_CACHE_MAX_GRAMMARS = 32 };

typedef struct GrammarSource GrammarSource;
struct GrammarSource {
    const char *kind; /* "regex", "json_schema", ...: with the text it says all that the grammar depends on */
    const char *text; /* [n] */
    size_t n;
    bool (*build)(const GrammarSource *source, GrammarBuilder *builder, GrammarNode *ret_root, Error *error);
    const void *arg; /* for build */
    bool *ret_unknown; /* not NULL: what is not kept is not built, but fails with true here */
};

typedef struct GrammarCache GrammarCache;
/* The tokenizer is borrowed; its trie is made when it is first needed. */
LW_CHECK bool grammar_cache_new(const Tokenizer *tokenizer, size_t max_bytes, GrammarCache **ret_cache, Error *error);
void grammar_cache_free(GrammarCache *cache); /* NULL is fine; after all references are released */
/* *ret_grammar: a reference for the caller. */
LW_CHECK bool grammar_cache_get(GrammarCache *cache, const GrammarSource *source, Grammar **ret_grammar, Error *error);
