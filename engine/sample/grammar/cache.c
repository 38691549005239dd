/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct Entry {
    char *key; /* [n_key] kind, NUL, text */
    size_t n_key, n_bytes;
    Grammar *grammar; /* NULL: the place is free */
    uint64_t used;
} Entry;

struct GrammarCache {
    const Tokenizer *tokenizer;
    size_t max_bytes;
    pthread_mutex_t lock; /* of all that follows */
    GrammarVocab *vocab;
    Entry entries[GRAMMAR_CACHE_MAX_GRAMMARS];
    size_t n_bytes;
    uint64_t clock;
};

bool grammar_cache_new(const Tokenizer *tokenizer, size_t max_bytes, GrammarCache **ret_cache, Error *error)
{
    GrammarCache *cache = calloc(1, sizeof *cache);
    if (!cache) return error_set(error, ERR_NO_MEMORY, "no memory for grammars");
    cache->tokenizer = tokenizer;
    cache->max_bytes = max_bytes;
    pthread_mutex_init(&cache->lock, NULL);
    *ret_cache = cache;
    return true;
}

static void drop(GrammarCache *cache, Entry *entry)
{
    if (!entry->grammar) return;
    cache->n_bytes -= entry->n_bytes;
    grammar_release(entry->grammar);
    free(entry->key);
    *entry = (Entry){0};
}

void grammar_cache_free(GrammarCache *cache)
{
    if (!cache) return;
    for (size_t i = 0; i < GRAMMAR_CACHE_MAX_GRAMMARS; i++) drop(cache, &cache->entries[i]);
    grammar_vocab_free(cache->vocab);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

/* ---- under the lock ---- */

static Entry *find(GrammarCache *cache, const char *key, size_t n_key)
{
    for (size_t i = 0; i < GRAMMAR_CACHE_MAX_GRAMMARS; i++) {
        Entry *entry = &cache->entries[i];
        if (!entry->grammar || entry->n_key != n_key || memcmp(entry->key, key, n_key)) continue;
        entry->used = ++cache->clock;
        return entry;
    }
    return NULL;
}

/* The one used least, or a free one. */
static Entry *oldest(GrammarCache *cache)
{
    Entry *found = &cache->entries[0];
    for (size_t i = 1; i < GRAMMAR_CACHE_MAX_GRAMMARS; i++)
        if (cache->entries[i].used < found->used) found = &cache->entries[i];
    return found;
}

static Entry *oldest_taken(GrammarCache *cache)
{
    Entry *found = NULL;
    for (size_t i = 0; i < GRAMMAR_CACHE_MAX_GRAMMARS; i++) {
        Entry *entry = &cache->entries[i];
        if (entry->grammar && (!found || entry->used < found->used)) found = entry;
    }
    return found;
}

/* Takes the key if it is kept. What another thread has kept meanwhile takes the place of *grammar. */
static bool keep(GrammarCache *cache, char *key, size_t n_key, Grammar **grammar)
{
    size_t n_bytes = n_key + grammar_size_bytes(*grammar);
    const Entry *same = find(cache, key, n_key);
    if (same) {
        grammar_release(*grammar);
        *grammar = grammar_take(same->grammar);
        return false;
    }
    if (n_bytes > cache->max_bytes) return false;
    while (cache->n_bytes > cache->max_bytes - n_bytes) drop(cache, oldest_taken(cache));
    Entry *entry = oldest(cache);
    drop(cache, entry);
    *entry = (Entry){key, n_key, n_bytes, grammar_take(*grammar), ++cache->clock};
    cache->n_bytes += n_bytes;
    return true;
}

/* ---- from outside ---- */

/* What is there already; true with NULL: nothing. */
static bool look_up(GrammarCache *cache, const char *key, size_t n_key, Grammar **ret_grammar, Error *error)
{
    bool ok = true;
    *ret_grammar = NULL;
    pthread_mutex_lock(&cache->lock);
    Entry *entry = find(cache, key, n_key);
    if (entry) *ret_grammar = grammar_take(entry->grammar);
    if (!cache->vocab) ok = grammar_vocab_of(cache->tokenizer, &cache->vocab, error);
    pthread_mutex_unlock(&cache->lock);
    return ok;
}

static bool build(const GrammarCache *cache, const GrammarSource *source, Grammar **ret_grammar, Error *error)
{
    GrammarBuilder *builder;
    GrammarNode root;
    if (source->ret_unknown) {
        *source->ret_unknown = true;
        return error_set(error, ERR_BUSY, "this grammar is not compiled yet");
    }
    if (!grammar_builder_new(&builder, error)) return false;
    bool ok = source->build(source, builder, &root, error) &&
              grammar_compile(builder, root, cache->vocab, ret_grammar, error);
    grammar_builder_free(builder);
    return ok;
}

bool grammar_cache_get(GrammarCache *cache, const GrammarSource *source, Grammar **ret_grammar, Error *error)
{
    size_t n_kind = strlen(source->kind) + 1, n_key = n_kind + source->n;
    char *key = malloc(n_key);
    Grammar *grammar = NULL;
    if (!key) return error_set(error, ERR_NO_MEMORY, "no memory for a grammar");
    memcpy(key, source->kind, n_kind);
    if (source->n) memcpy(key + n_kind, source->text, source->n);
    bool ok = look_up(cache, key, n_key, &grammar, error), is_kept = false;
    if (ok && !grammar) {
        ok = build(cache, source, &grammar, error);
        if (ok) {
            pthread_mutex_lock(&cache->lock);
            is_kept = keep(cache, key, n_key, &grammar);
            pthread_mutex_unlock(&cache->lock);
        }
    }
    if (!is_kept) free(key);
    if (ok) *ret_grammar = grammar;
    return ok;
}
