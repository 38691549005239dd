/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/token_memory.h"
#include "base/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Answers to one context: the choices of a request, and those of its repetitions. */
enum { MAX_PER_CONTEXT = 32, BYTES_PER_BUCKET = 1024, MIN_BUCKETS = 16 };

typedef struct Entry Entry;
struct Entry {
    Entry *next;          /* in its bucket, newest first */
    Entry *older, *newer; /* by use */
    uint64_t hash;
    uint32_t n_ids;
    size_t n_text;
    uint32_t ids[]; /* [n_ids], then the text */
};

struct TokenMemory {
    TokenMemoryParams params;
    uint64_t seed;
    pthread_mutex_t lock; /* of all that follows */
    Entry **buckets;      /* [mask + 1] */
    size_t mask;
    Entry *oldest, *newest;
    TokenMemoryStats stats;
};

/* ---- the memory ---- */

bool token_memory_new(const TokenMemoryParams *params, TokenMemory **ret_memory, Error *error)
{
    size_t n_buckets = MIN_BUCKETS;
    while (n_buckets < params->max_bytes / BYTES_PER_BUCKET) n_buckets *= 2;
    TokenMemory *memory = calloc(1, sizeof *memory);
    Entry **buckets = calloc(n_buckets, sizeof *buckets);
    if (!memory || !buckets) {
        free(memory);
        free(buckets);
        return error_set(error, ERR_NO_MEMORY, "no memory to remember the tokens of answers");
    }
    memory->params = *params;
    memory->buckets = buckets;
    memory->mask = n_buckets - 1;
    /* Nobody outside may be able to choose what meets in a bucket. */
    if (getrandom(&memory->seed, sizeof memory->seed, GRND_NONBLOCK) != sizeof memory->seed)
        memory->seed = clock_now_usec();
    pthread_mutex_init(&memory->lock, NULL);
    *ret_memory = memory;
    return true;
}

void token_memory_free(TokenMemory *memory)
{
    if (!memory) return;
    for (Entry *entry = memory->oldest, *next; entry; entry = next) {
        next = entry->newer;
        free(entry);
    }
    pthread_mutex_destroy(&memory->lock);
    free(memory->buckets);
    free(memory);
}

TokenMemoryStats token_memory_stats(TokenMemory *memory)
{
    pthread_mutex_lock(&memory->lock);
    TokenMemoryStats stats = memory->stats;
    pthread_mutex_unlock(&memory->lock);
    return stats;
}

static uint64_t mix(uint64_t hash, uint32_t word)
{
    hash = (hash ^ word) * 0x9fb21c651e98df25;
    return hash ^ hash >> 29;
}

static uint64_t mix_ids(uint64_t hash, const uint32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) hash = mix(hash, ids[i]);
    return hash;
}

static uint64_t mix_salt(const TokenMemory *memory, const TokenContext *context)
{
    uint64_t hash = mix(memory->seed, (uint32_t)context->n_salt);
    for (size_t i = 0; i < context->n_salt; i++) hash = mix(hash, (uint8_t)context->salt[i]);
    return hash;
}

uint64_t token_memory_hash(const TokenMemory *memory, const TokenContext *context, const uint32_t *ids, size_t n)
{
    return mix_ids(mix_salt(memory, context), ids, n);
}

/* ---- entries; under the lock ---- */

static const char *text_of(const Entry *entry)
{
    return (const char *)(entry->ids + entry->n_ids);
}

static size_t entry_bytes(size_t n_ids, size_t n_text)
{
    return sizeof(Entry) + n_ids * sizeof(uint32_t) + n_text;
}

static void unlink_use(TokenMemory *memory, Entry *entry)
{
    *(entry->older ? &entry->older->newer : &memory->oldest) = entry->newer;
    *(entry->newer ? &entry->newer->older : &memory->newest) = entry->older;
}

static void link_use(TokenMemory *memory, Entry *entry)
{
    entry->older = memory->newest;
    entry->newer = NULL;
    *(memory->newest ? &memory->newest->newer : &memory->oldest) = entry;
    memory->newest = entry;
}

static void forget(TokenMemory *memory, Entry *entry)
{
    Entry **link = &memory->buckets[entry->hash & memory->mask];
    while (*link != entry) link = &(*link)->next;
    *link = entry->next;
    unlink_use(memory, entry);
    memory->stats.n_entries--;
    memory->stats.n_bytes -= entry_bytes(entry->n_ids, entry->n_text);
    free(entry);
}

static bool is_same(const Entry *a, const Entry *b)
{
    return a->n_ids == b->n_ids && a->n_text == b->n_text && memcmp(a->ids, b->ids, a->n_ids * sizeof *a->ids) == 0 &&
           memcmp(text_of(a), text_of(b), a->n_text) == 0;
}

/* Takes the entry, in place of an equal one and of one too many. */
static void put(TokenMemory *memory, Entry *made)
{
    uint32_t n = 0;
    Entry **bucket = &memory->buckets[made->hash & memory->mask];
    for (Entry *entry = *bucket, *next; entry; entry = next) {
        next = entry->next;
        if (entry->hash != made->hash) continue;
        if (is_same(entry, made) || ++n == MAX_PER_CONTEXT) forget(memory, entry);
    }
    made->next = *bucket;
    *bucket = made;
    link_use(memory, made);
    memory->stats.n_entries++;
    memory->stats.n_bytes += entry_bytes(made->n_ids, made->n_text);
    while (memory->stats.n_bytes > memory->params.max_bytes) forget(memory, memory->oldest);
}

/* ---- keeping ---- */

/* Leading ids, and the part of a text that they show. */
typedef struct Shown {
    size_t n_ids, n_bytes;
} Shown;

/*
 * The leading ids that show, as an answer shows them (dead bytes are U+FFFD), the beginning of the text: up to its end,
 * to what differs or to an id that stands for no text.
 */
static bool follow_text(const Tokenizer *tokenizer, const char *text, size_t n_bytes, const uint32_t *ids, size_t n_ids,
                        Shown *ret_shown, Error *error)
{
    Buffer piece;
    TokStream stream = {0};
    Shown shown = {0};
    size_t at = 0;
    bool ok = true, is_over = false;
    buffer_init(&piece, SIZE_MAX);
    for (size_t i = 0; !is_over && shown.n_bytes < n_bytes; i++) {
        uint8_t before = stream.n_pending;
        buffer_clear(&piece);
        ok = i == n_ids || tok_stream_push(&stream, tokenizer, ids[i], false, &piece, error);
        is_over = i == n_ids || (piece.n == 0 && stream.n_pending == before);
        ok = ok && (!is_over || tok_stream_flush(&stream, &piece, error));
        if (!ok || piece.n > n_bytes - at || (piece.n && memcmp(piece.data, text + at, piece.n) != 0)) break;
        at += piece.n;
        if (!stream.n_pending) shown = (Shown){is_over ? i : i + 1, at};
    }
    buffer_done(&piece);
    if (ok) *ret_shown = shown;
    return ok;
}

void token_memory_keep(TokenMemory *memory, uint64_t context_hash, const char *text, size_t n_bytes,
                       const uint32_t *ids, size_t n_ids)
{
    Error ignored;
    Shown shown;
    if (!follow_text(memory->params.tokenizer, text, n_bytes, ids, n_ids, &shown, &ignored)) return;
    size_t n = shown.n_ids;
    if (n == 0 || shown.n_bytes < n_bytes || n > UINT32_MAX) return;
    if (entry_bytes(n, n_bytes) > memory->params.max_entry_bytes) return;
    Entry *made = malloc(entry_bytes(n, n_bytes));
    if (!made) return;
    made->hash = context_hash;
    made->n_ids = (uint32_t)n;
    made->n_text = n_bytes;
    memcpy(made->ids, ids, n * sizeof *ids);
    memcpy(made->ids + n, text, n_bytes);
    pthread_mutex_lock(&memory->lock);
    put(memory, made);
    pthread_mutex_unlock(&memory->lock);
}

/* ---- recalling ---- */

/* One token_memory_encode. */
typedef struct Recall {
    TokenMemory *memory;
    const char *text;
    uint64_t hash;   /* of the salt and the first n_hashed ids */
    size_t n_hashed; /* these are final */
} Recall;

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Is this the entry's text, its last blanks aside? */
static bool fits(const Entry *entry, const char *text, size_t n)
{
    if (n > entry->n_text || memcmp(text_of(entry), text, n) != 0) return false;
    for (size_t i = n; i < entry->n_text; i++)
        if (!is_blank(text_of(entry)[i])) return false;
    return true;
}

/* The newest one whose text it is to the end, else with blanks at its end. */
static Entry *find(TokenMemory *memory, uint64_t hash, const char *text, size_t n)
{
    Entry *found = NULL;
    for (Entry *entry = memory->buckets[hash & memory->mask]; entry; entry = entry->next) {
        if (entry->hash != hash || !fits(entry, text, n)) continue;
        if (entry->n_text == n) return entry;
        if (!found) found = entry;
    }
    return found;
}

/* A copy of the entry's ids, for free(). *ret_n 0: nothing is known. */
static bool copy_ids(TokenMemory *memory, uint64_t hash, const char *text, size_t n, uint32_t **ret_ids, size_t *ret_n,
                     Error *error)
{
    bool ok = true;
    pthread_mutex_lock(&memory->lock);
    Entry *entry = find(memory, hash, text, n);
    uint32_t *ids = entry ? malloc(entry->n_ids * sizeof *ids) : NULL;
    *ret_n = entry ? entry->n_ids : 0;
    if (ids) {
        memcpy(ids, entry->ids, entry->n_ids * sizeof *ids);
        unlink_use(memory, entry);
        link_use(memory, entry);
        memory->stats.recalled_tokens += entry->n_ids;
    } else if (entry) {
        ok = error_set(error, ERR_NO_MEMORY, "no memory for %u tokens", entry->n_ids);
    }
    pthread_mutex_unlock(&memory->lock);
    *ret_ids = ids;
    return ok;
}

static bool recall_answer(void *arg, const TextRange *answer, size_t n_final, TokenList *list, size_t *ret_bytes,
                          Error *error)
{
    Recall *recall = arg;
    size_t n = answer->end - answer->start, n_ids;
    uint32_t *ids;
    recall->hash = mix_ids(recall->hash, list->ids + recall->n_hashed, n_final - recall->n_hashed);
    recall->n_hashed = n_final;
    uint64_t hash = mix_ids(recall->hash, list->ids + n_final, list->n - n_final);
    *ret_bytes = 0;
    const char *text = recall->text + answer->start;
    if (!copy_ids(recall->memory, hash, text, n, &ids, &n_ids, error)) return false;
    Shown shown = {0};
    bool ok = follow_text(recall->memory->params.tokenizer, text, n, ids, n_ids, &shown, error);
    for (size_t i = 0; ok && i < shown.n_ids; i++) ok = token_list_push(list, ids[i], error);
    *ret_bytes = shown.n_bytes;
    free(ids);
    return ok;
}

bool token_memory_encode(TokenMemory *memory, const TokenRecall *recall, TokenList *list, Error *error)
{
    if (list->n) return error_set(error, ERR_INTERNAL, "a prompt begins a list of tokens");
    Recall run = {.memory = memory, .text = recall->encode.text, .hash = mix_salt(memory, &recall->context)};
    TokKnown known = {.ranges = recall->answers, .n_ranges = recall->n_answers, .find = recall_answer, .arg = &run};
    TokEncode encode = recall->encode;
    encode.known = &known;
    return tok_encode(memory->params.tokenizer, &encode, list, error);
}
