/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/cache.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct Entry {
    GrammarKey key;
    Grammar *grammar; /* NULL: the place is free */
    uint64_t used;
} Entry;

typedef struct Failure {
    GrammarKey key;
    Error error;
    uint64_t until_usec; /* 0: the place is free */
} Failure;

struct GrammarCache {
    GrammarCacheParams params;
    pthread_mutex_t lock; /* of all that follows */
    GrammarVocab *vocab;
    Entry entries[GRAMMAR_CACHE_MAX_GRAMMARS];
    uint64_t clock;
    Failure failures[GRAMMAR_CACHE_MAX_FAILURES];
    uint32_t next_failure;
};

bool grammar_cache_new(const GrammarCacheParams *params, GrammarCache **ret_cache, Error *error)
{
    GrammarCache *cache = calloc(1, sizeof *cache);
    if (!cache) return error_set(error, ERR_NO_MEMORY, "no memory for grammars");
    cache->params = *params;
    pthread_mutex_init(&cache->lock, NULL);
    *ret_cache = cache;
    return true;
}

static void drop(Entry *entry)
{
    if (!entry->grammar) return;
    grammar_release(entry->grammar);
    *entry = (Entry){0};
}

void grammar_cache_free(GrammarCache *cache)
{
    if (!cache) return;
    for (size_t i = 0; i < GRAMMAR_CACHE_MAX_GRAMMARS; i++) drop(&cache->entries[i]);
    grammar_vocab_free(cache->vocab);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

static bool is_same(const GrammarKey *a, const GrammarKey *b)
{
    return !memcmp(a, b, sizeof *a);
}

/* ---- under the lock ---- */

static Entry *find(GrammarCache *cache, const GrammarKey *key)
{
    for (size_t i = 0; i < GRAMMAR_CACHE_MAX_GRAMMARS; i++) {
        Entry *entry = &cache->entries[i];
        if (!entry->grammar || !is_same(&entry->key, key)) continue;
        entry->used = ++cache->clock;
        return entry;
    }
    return NULL;
}

static const Failure *find_failure(const GrammarCache *cache, const GrammarKey *key)
{
    uint64_t now = clock_now_usec();
    for (size_t i = 0; i < GRAMMAR_CACHE_MAX_FAILURES; i++)
        if (cache->failures[i].until_usec > now && is_same(&cache->failures[i].key, key)) return &cache->failures[i];
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

/* The one used least but for that one; NULL: there is no other. */
static Entry *oldest_besides(GrammarCache *cache, const Entry *that)
{
    Entry *found = NULL;
    for (size_t i = 0; i < GRAMMAR_CACHE_MAX_GRAMMARS; i++) {
        Entry *entry = &cache->entries[i];
        if (entry->grammar && entry != that && (!found || entry->used < found->used)) found = entry;
    }
    return found;
}

/* What they take changes as their matchers run. */
static size_t count_bytes(const GrammarCache *cache)
{
    size_t n = 0;
    for (size_t i = 0; i < GRAMMAR_CACHE_MAX_GRAMMARS; i++)
        if (cache->entries[i].grammar) n += grammar_size_bytes(cache->entries[i].grammar);
    return n;
}

/* Others make room for this one. */
static void make_room(GrammarCache *cache, const Entry *entry)
{
    Entry *other;
    while (count_bytes(cache) > cache->params.max_bytes && (other = oldest_besides(cache, entry))) drop(other);
}

/* What another thread has kept meanwhile takes the place of *grammar. */
static void keep(GrammarCache *cache, const GrammarKey *key, Grammar **grammar)
{
    const Entry *same = find(cache, key);
    if (same) {
        grammar_release(*grammar);
        *grammar = grammar_take(same->grammar);
        return;
    }
    if (grammar_size_bytes(*grammar) > cache->params.max_bytes) return;
    Entry *entry = oldest(cache);
    drop(entry);
    *entry = (Entry){*key, grammar_take(*grammar), ++cache->clock};
    make_room(cache, entry);
}

/* What the text is to blame for, in the place of the oldest failure. */
static void keep_failure(GrammarCache *cache, const GrammarKey *key, const Error *error)
{
    static const bool is_of_text[ERR_COUNT] = {
        [ERR_INVALID] = true, [ERR_UNSUPPORTED] = true, [ERR_TOO_LARGE] = true, [ERR_SCHEMA] = true};
    if (!is_of_text[error->code]) return;
    cache->failures[cache->next_failure++ % GRAMMAR_CACHE_MAX_FAILURES] =
        (Failure){*key, *error, clock_now_usec() + cache->params.failure_usec};
}

/* ---- from outside ---- */

static bool make_key(const GrammarSource *source, GrammarKey *ret_key, Error *error)
{
    size_t n_kind = strlen(source->kind) + 1;
    char *text = malloc(n_kind + source->n);
    if (!text) return error_set(error, ERR_NO_MEMORY, "no memory for a grammar");
    memcpy(text, source->kind, n_kind);
    if (source->n) memcpy(text + n_kind, source->text, source->n);
    sha256(text, n_kind + source->n, ret_key->digest);
    free(text);
    return true;
}

/* What is known already; true with NULL: nothing. */
static bool look_up(GrammarCache *cache, const GrammarKey *key, Grammar **ret_grammar, Error *error)
{
    bool ok = true;
    *ret_grammar = NULL;
    pthread_mutex_lock(&cache->lock);
    Entry *entry = find(cache, key);
    const Failure *failure = entry ? NULL : find_failure(cache, key);
    if (entry) *ret_grammar = grammar_take(entry->grammar);
    if (entry) make_room(cache, entry);
    if (failure) {
        *error = failure->error;
        ok = false;
    } else if (!cache->vocab) {
        ok = grammar_vocab_of(cache->params.tokenizer, &cache->vocab, error);
    }
    pthread_mutex_unlock(&cache->lock);
    return ok;
}

static bool build(const GrammarCache *cache, const GrammarSource *source, Grammar **ret_grammar, Error *error)
{
    GrammarBuilder *builder;
    GrammarNode root;
    if (!grammar_builder_new(&builder, error)) return false;
    grammar_builder_watch(builder, source->cancelled, source->deadline_usec);
    if (source->is_try) grammar_builder_try(builder);
    bool ok = source->build(source, builder, &root, error) &&
              grammar_compile(builder, root, cache->vocab, ret_grammar, error);
    grammar_builder_free(builder);
    return ok;
}

bool grammar_cache_get(GrammarCache *cache, const GrammarSource *source, Grammar **ret_grammar, Error *error)
{
    GrammarKey key;
    Grammar *grammar;
    if (!make_key(source, &key, error) || !look_up(cache, &key, &grammar, error)) return false;
    if (!grammar && source->ret_unknown) {
        *source->ret_unknown = key;
        return error_set(error, ERR_BUSY, "this grammar is not compiled yet");
    }
    if (!grammar) {
        bool ok = build(cache, source, &grammar, error);
        if (source->ret_is_new) *source->ret_is_new = true;
        pthread_mutex_lock(&cache->lock);
        if (ok)
            keep(cache, &key, &grammar);
        else
            keep_failure(cache, &key, error);
        pthread_mutex_unlock(&cache->lock);
        if (!ok) return false;
    }
    *ret_grammar = grammar;
    return true;
}
