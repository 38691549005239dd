/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/token_memory_impl.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Answers to one context: the choices of a request, and those of its repetitions. */
enum { MAX_PER_CONTEXT = 32, BYTES_PER_BUCKET = 1024, MIN_BUCKETS = 16 };

/* ---- the memory ---- */

/* The texts of the vocabulary's end tokens. */
static bool find_ends(TokenMemory *memory, Error *error)
{
    const Tokenizer *tokenizer = memory->params.tokenizer;
    size_t first[TOKEN_MEMORY_MAX_ENDS + 1] = {0};
    for (uint32_t id = 0; id < tok_n_vocab(tokenizer) && memory->n_ends < TOKEN_MEMORY_MAX_ENDS; id++) {
        if (!tok_is_end(tokenizer, id)) continue;
        if (!tok_piece(tokenizer, id, true, &memory->end_texts, error)) return false;
        first[++memory->n_ends] = memory->end_texts.n;
    }
    for (uint32_t i = 0; i < memory->n_ends; i++) {
        memory->ends[i].text = memory->end_texts.data + first[i];
        memory->ends[i].n = first[i + 1] - first[i];
    }
    return true;
}

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
    buffer_init(&memory->end_texts, SIZE_MAX);
    if (!find_ends(memory, error)) {
        buffer_done(&memory->end_texts);
        free(memory);
        free(buckets);
        return false;
    }
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
    buffer_done(&memory->end_texts);
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

uint64_t token_memory_mix_word(uint64_t hash, uint32_t word)
{
    hash = (hash ^ word) * 0x9fb21c651e98df25;
    return hash ^ hash >> 29;
}

uint64_t token_memory_mix_ids(uint64_t hash, const uint32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) hash = token_memory_mix_word(hash, ids[i]);
    return hash;
}

static uint64_t mix_salt(const TokenMemory *memory, const TokenContext *context)
{
    uint64_t hash = token_memory_mix_word(memory->seed, (uint32_t)context->n_salt);
    for (size_t i = 0; i < context->n_salt; i++) hash = token_memory_mix_word(hash, (uint8_t)context->salt[i]);
    return hash;
}

uint64_t token_memory_hash(const TokenMemory *memory, const TokenContext *context, const uint32_t *ids, size_t n)
{
    return token_memory_mix_ids(mix_salt(memory, context), ids, n);
}

uint64_t token_memory_mix(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) hash = token_memory_mix_word(hash, ((const uint8_t *)bytes)[i]);
    return hash;
}

uint64_t token_memory_begin(const TokenMemory *memory, const TokenContext *context)
{
    return mix_salt(memory, context);
}

uint64_t token_memory_text_hash(const TokenMemory *memory, const TokenContext *context, const char *text, size_t n)
{
    return token_memory_mix(mix_salt(memory, context), text, n);
}

/* ---- entries; under the lock ---- */

const char *token_entry_text(const Entry *entry)
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

void token_entry_used(TokenMemory *memory, Entry *entry)
{
    unlink_use(memory, entry);
    link_use(memory, entry);
}

static void forget(TokenMemory *memory, Entry *entry)
{
    Entry **link = &memory->buckets[entry->hash & memory->mask];
    while (*link != entry) link = &(*link)->next;
    *link = entry->next;
    unlink_use(memory, entry);
    memory->n_turns -= entry->kind == ENTRY_TURN;
    memory->stats.n_entries--;
    memory->stats.n_bytes -= entry_bytes(entry->n_ids, entry->n_text);
    free(entry);
}

static bool is_same(const Entry *a, const Entry *b)
{
    return a->context_hash == b->context_hash && a->answer_hash == b->answer_hash && a->n_ids == b->n_ids &&
           a->n_text == b->n_text && memcmp(a->ids, b->ids, a->n_ids * sizeof *a->ids) == 0 &&
           memcmp(token_entry_text(a), token_entry_text(b), a->n_text) == 0;
}

/* Takes the entry, in place of an equal one and of one too many. */
static void put(TokenMemory *memory, Entry *made)
{
    uint32_t n = 0;
    Entry **bucket = &memory->buckets[made->hash & memory->mask];
    for (Entry *entry = *bucket, *next; entry; entry = next) {
        next = entry->next;
        if (entry->hash != made->hash || entry->kind != made->kind) continue;
        if (is_same(entry, made) || ++n == MAX_PER_CONTEXT) forget(memory, entry);
    }
    made->next = *bucket;
    *bucket = made;
    link_use(memory, made);
    memory->n_turns += made->kind == ENTRY_TURN;
    memory->stats.n_entries++;
    memory->stats.n_bytes += entry_bytes(made->n_ids, made->n_text);
    while (memory->stats.n_bytes > memory->params.max_bytes) forget(memory, memory->oldest);
}

/* ---- keeping ---- */

static bool is_mark(const TokenMemory *memory, uint32_t id)
{
    for (uint32_t i = 0; i < memory->params.n_marks; i++)
        if (memory->params.marks[i] == id) return true;
    return false;
}

bool token_memory_follow(const TokenMemory *memory, const char *text, size_t n_bytes, const uint32_t *ids, size_t n_ids,
                         bool marks, Shown *ret_shown, Error *error)
{
    const Tokenizer *tokenizer = memory->params.tokenizer;
    Buffer piece;
    TokStream stream = {0};
    Shown shown = {0};
    size_t at = 0;
    bool ok = true, is_over = false;
    buffer_init(&piece, SIZE_MAX);
    for (size_t i = 0; !is_over && shown.n_bytes < n_bytes; i++) {
        uint8_t before = stream.n_pending;
        buffer_clear(&piece);
        bool shows = marks && i < n_ids && is_mark(memory, ids[i]);
        ok = i == n_ids || tok_stream_push(&stream, tokenizer, ids[i], shows, &piece, error);
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

static void keep(TokenMemory *memory, const Entry *like, const char *text, size_t n_text, const uint32_t *ids,
                 size_t n_ids)
{
    if (n_ids > UINT32_MAX || entry_bytes(n_ids, n_text) > memory->params.max_entry_bytes) return;
    Entry *made = malloc(entry_bytes(n_ids, n_text));
    if (!made) return;
    *made = *like;
    made->n_ids = (uint32_t)n_ids;
    made->n_text = n_text;
    if (n_ids) memcpy(made->ids, ids, n_ids * sizeof *ids);
    memcpy(made->ids + n_ids, text, n_text);
    pthread_mutex_lock(&memory->lock);
    put(memory, made);
    pthread_mutex_unlock(&memory->lock);
}

void token_memory_keep(TokenMemory *memory, uint64_t context_hash, const char *text, size_t n_bytes,
                       const uint32_t *ids, size_t n_ids)
{
    Error ignored;
    Shown shown;
    if (!token_memory_follow(memory, text, n_bytes, ids, n_ids, false, &shown, &ignored)) return;
    if (shown.n_ids == 0 || shown.n_bytes < n_bytes) return;
    const Entry like = {.kind = ENTRY_ANSWER, .hash = context_hash};
    keep(memory, &like, text, n_bytes, ids, shown.n_ids);
}

/* The text of the leading ids, up to one that stands for none. */
static bool show_turn(const TokenMemory *memory, const uint32_t *ids, size_t *n_ids, Buffer *text, Error *error)
{
    TokStream stream = {0};
    for (size_t i = 0; i < *n_ids; i++) {
        size_t n = text->n;
        uint8_t before = stream.n_pending;
        bool marks = is_mark(memory, ids[i]);
        if (marks && !tok_stream_flush(&stream, text, error)) return false;
        if (!tok_stream_push(&stream, memory->params.tokenizer, ids[i], marks, text, error)) return false;
        bool ends = text->n == n && stream.n_pending == before;
        if (ends || tok_is_end(memory->params.tokenizer, ids[i])) *n_ids = i;
    }
    return tok_stream_flush(&stream, text, error);
}

void token_memory_keep_turn(TokenMemory *memory, const TokenTurn *turn, const uint32_t *ids, size_t n_ids)
{
    Error ignored;
    Buffer text;
    const Entry like = {.kind = ENTRY_TURN,
                        .hash = turn->text_hash,
                        .context_hash = turn->context_hash,
                        .answer_hash = turn->answer_hash};
    buffer_init(&text, memory->params.max_entry_bytes);
    if (show_turn(memory, ids, &n_ids, &text, &ignored) && text.n) keep(memory, &like, text.data, text.n, ids, n_ids);
    buffer_done(&text);
}

void token_memory_keep_note(TokenMemory *memory, uint64_t hash, const char *text, size_t n_bytes)
{
    const Entry like = {.kind = ENTRY_NOTE, .hash = hash};
    keep(memory, &like, text, n_bytes, NULL, 0);
}

bool token_memory_note(TokenMemory *memory, uint64_t hash, Buffer *out, bool *ret_found, Error *error)
{
    bool ok = true;
    pthread_mutex_lock(&memory->lock);
    Entry *entry = memory->buckets[hash & memory->mask];
    while (entry && (entry->kind != ENTRY_NOTE || entry->hash != hash)) entry = entry->next;
    if (entry) {
        ok = buffer_append(out, token_entry_text(entry), entry->n_text, error);
        token_entry_used(memory, entry);
    }
    pthread_mutex_unlock(&memory->lock);
    *ret_found = entry != NULL;
    return ok;
}
