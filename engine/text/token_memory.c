/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/token_memory.h"
#include "base/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Answers to one context: the choices of a request, and those of its repetitions. */
enum { MAX_PER_CONTEXT = 32, BYTES_PER_BUCKET = 1024, MIN_BUCKETS = 16 };

typedef enum EntryKind { ENTRY_ANSWER, ENTRY_TURN, ENTRY_NOTE } EntryKind;

typedef struct Entry Entry;
struct Entry {
    Entry *next;          /* in its bucket, newest first */
    Entry *older, *newer; /* by use */
    EntryKind kind;
    uint64_t hash;         /* of the ids before an answer, the text before a turn */
    uint64_t context_hash; /* of the ids before a turn */
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
    size_t n_turns;
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

uint64_t token_memory_mix(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) hash = mix(hash, ((const uint8_t *)bytes)[i]);
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
    memory->n_turns -= entry->kind == ENTRY_TURN;
    memory->stats.n_entries--;
    memory->stats.n_bytes -= entry_bytes(entry->n_ids, entry->n_text);
    free(entry);
}

static bool is_same(const Entry *a, const Entry *b)
{
    return a->context_hash == b->context_hash && a->n_ids == b->n_ids && a->n_text == b->n_text &&
           memcmp(a->ids, b->ids, a->n_ids * sizeof *a->ids) == 0 && memcmp(text_of(a), text_of(b), a->n_text) == 0;
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

/* Leading ids, and the part of a text that they show. */
typedef struct Shown {
    size_t n_ids, n_bytes;
} Shown;

static bool is_mark(const TokenMemory *memory, uint32_t id)
{
    for (uint32_t i = 0; i < memory->params.n_marks; i++)
        if (memory->params.marks[i] == id) return true;
    return false;
}

/*
 * The leading ids that show, as an answer shows them (dead bytes are U+FFFD), the beginning of the text: up to its end,
 * to what differs or to an id that stands for no text.
 */
static bool follow_text(const TokenMemory *memory, const char *text, size_t n_bytes, const uint32_t *ids, size_t n_ids,
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
    if (!follow_text(memory, text, n_bytes, ids, n_ids, false, &shown, &ignored)) return;
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

void token_memory_keep_turn(TokenMemory *memory, uint64_t context_hash, uint64_t text_hash, const uint32_t *ids,
                            size_t n_ids)
{
    Error ignored;
    Buffer text;
    const Entry like = {.kind = ENTRY_TURN, .hash = text_hash, .context_hash = context_hash};
    buffer_init(&text, memory->params.max_entry_bytes);
    if (show_turn(memory, ids, &n_ids, &text, &ignored) && text.n) keep(memory, &like, text.data, text.n, ids, n_ids);
    buffer_done(&text);
}

void token_memory_keep_note(TokenMemory *memory, uint64_t hash, const char *text, size_t n_bytes)
{
    const Entry like = {.kind = ENTRY_NOTE, .hash = hash};
    keep(memory, &like, text, n_bytes, NULL, 0);
}

/* ---- recalling ---- */

/* A place where something may be known. */
typedef struct Place {
    TextRange range;
    EntryKind kind;
    uint64_t text_hash; /* of a turn */
} Place;

/* One token_memory_encode. */
typedef struct Recall {
    TokenMemory *memory;
    const TokEncode *in;
    Place *places;     /* [n_places] sorted */
    TextRange *ranges; /* [n_places] the same */
    size_t n_places, capacity;
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
        if (entry->hash != hash || entry->kind != ENTRY_ANSWER || !fits(entry, text, n)) continue;
        if (entry->n_text == n) return entry;
        if (!found) found = entry;
    }
    return found;
}

static size_t count_common(const Entry *entry, const char *text, size_t n)
{
    size_t common = 0;
    while (common < n && common < entry->n_text && text[common] == text_of(entry)[common]) common++;
    return common;
}

/* The turn in this place that the text shows most of. */
static Entry *find_turn(TokenMemory *memory, const Place *place, uint64_t context_hash, const char *text, size_t n)
{
    Entry *found = NULL;
    size_t most = 0;
    for (Entry *entry = memory->buckets[place->text_hash & memory->mask]; entry; entry = entry->next) {
        if (entry->kind != ENTRY_TURN || entry->hash != place->text_hash || entry->context_hash != context_hash)
            continue;
        size_t common = count_common(entry, text, n);
        if (common <= most) continue;
        most = common;
        found = entry;
    }
    return found;
}

/* A copy of the entry's ids, for free(). *ret_n 0: nothing is known. */
static bool copy_ids(TokenMemory *memory, const Place *place, uint64_t hash, const char *text, uint32_t **ret_ids,
                     size_t *ret_n, Error *error)
{
    bool ok = true;
    size_t n = place->range.end - place->range.start;
    pthread_mutex_lock(&memory->lock);
    Entry *entry = place->kind == ENTRY_TURN ? find_turn(memory, place, hash, text, n) : find(memory, hash, text, n);
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

bool token_memory_note(TokenMemory *memory, uint64_t hash, Buffer *out, bool *ret_found, Error *error)
{
    bool ok = true;
    pthread_mutex_lock(&memory->lock);
    Entry *entry = memory->buckets[hash & memory->mask];
    while (entry && (entry->kind != ENTRY_NOTE || entry->hash != hash)) entry = entry->next;
    if (entry) {
        ok = buffer_append(out, text_of(entry), entry->n_text, error);
        unlink_use(memory, entry);
        link_use(memory, entry);
    }
    pthread_mutex_unlock(&memory->lock);
    *ret_found = entry != NULL;
    return ok;
}

static bool is_trusted(const TokEncode *in, size_t at)
{
    for (size_t i = 0; i < in->n_trusted && in->trusted[i].start <= at; i++)
        if (at < in->trusted[i].end) return true;
    return false;
}

/* A turn that goes on otherwise than it did: its last token might be another one then. */
static bool follow_place(const Recall *recall, const Place *place, const uint32_t *ids, size_t n_ids, Shown *ret_shown,
                         Error *error)
{
    const char *text = recall->in->text + place->range.start;
    size_t n = place->range.end - place->range.start;
    bool is_turn = place->kind == ENTRY_TURN;
    if (!follow_text(recall->memory, text, n, ids, n_ids, is_turn, ret_shown, error)) return false;
    size_t end = place->range.start + ret_shown->n_bytes;
    if (!is_turn || ret_shown->n_ids == 0 || end == recall->in->n || is_trusted(recall->in, end)) return true;
    return follow_text(recall->memory, text, n, ids, ret_shown->n_ids - 1, is_turn, ret_shown, error);
}

static bool recall_place(void *arg, const TextRange *range, size_t n_final, TokenList *list, size_t *ret_bytes,
                         Error *error)
{
    Recall *recall = arg;
    const Place *place = &recall->places[range - recall->ranges];
    size_t n_ids;
    uint32_t *ids;
    recall->hash = mix_ids(recall->hash, list->ids + recall->n_hashed, n_final - recall->n_hashed);
    recall->n_hashed = n_final;
    uint64_t hash = mix_ids(recall->hash, list->ids + n_final, list->n - n_final);
    *ret_bytes = 0;
    if (!copy_ids(recall->memory, place, hash, recall->in->text + range->start, &ids, &n_ids, error)) return false;
    Shown shown = {0};
    bool ok = follow_place(recall, place, ids, n_ids, &shown, error);
    for (size_t i = 0; ok && i < shown.n_ids; i++) ok = token_list_push(list, ids[i], error);
    *ret_bytes = shown.n_bytes;
    free(ids);
    return ok;
}

/* ---- where something may be known ---- */

static bool add_place(Recall *recall, const Place *place, Error *error)
{
    if (recall->n_places == recall->capacity) {
        size_t capacity = recall->capacity ? recall->capacity * 2 : 16;
        Place *more = realloc(recall->places, capacity * sizeof *more);
        if (!more) return error_set(error, ERR_NO_MEMORY, "no memory for the answers in a prompt");
        recall->places = more;
        recall->capacity = capacity;
    }
    recall->places[recall->n_places++] = *place;
    return true;
}

static bool has_turn(TokenMemory *memory, uint64_t hash)
{
    Entry *entry = memory->buckets[hash & memory->mask];
    while (entry && (entry->kind != ENTRY_TURN || entry->hash != hash)) entry = entry->next;
    return entry;
}

/* Turns begin behind text of the template. The lock is taken for a piece of the text at a time. */
static bool add_turns(Recall *recall, const TokenContext *context, Error *error)
{
    enum { PIECE = 4096 };
    const TokEncode *in = recall->in;
    TokenMemory *memory = recall->memory;
    uint64_t hash = mix_salt(memory, context);
    size_t range = 0;
    bool ok = true;
    for (size_t at = 0; ok && at < in->n;) {
        size_t end = in->n - at > PIECE ? at + PIECE : in->n;
        pthread_mutex_lock(&memory->lock);
        bool any = memory->n_turns;
        for (; ok && any && at < end; at++) {
            while (range < in->n_trusted && in->trusted[range].end < at) range++;
            bool follows = at && range < in->n_trusted && in->trusted[range].start < at && at <= in->trusted[range].end;
            Place place = {.range = {at, in->n}, .kind = ENTRY_TURN, .text_hash = hash};
            if (follows && has_turn(memory, hash)) ok = add_place(recall, &place, error);
            hash = mix(hash, (uint8_t)in->text[at]);
        }
        pthread_mutex_unlock(&memory->lock);
        if (!any) break;
    }
    return ok;
}

static int compare_places(const void *a, const void *b)
{
    const Place *left = a, *right = b;
    if (left->range.start != right->range.start) return left->range.start < right->range.start ? -1 : 1;
    return (int)right->kind - (int)left->kind; /* a turn before its content */
}

static bool list_places(Recall *recall, const TokenRecall *in, Error *error)
{
    if (!add_turns(recall, &in->context, error)) return false;
    for (size_t i = 0; i < in->n_answers; i++)
        if (!add_place(recall, &(Place){.range = in->answers[i], .kind = ENTRY_ANSWER}, error)) return false;
    if (recall->n_places) qsort(recall->places, recall->n_places, sizeof *recall->places, compare_places);
    recall->ranges = calloc(recall->n_places + 1, sizeof *recall->ranges);
    if (!recall->ranges) return error_set(error, ERR_NO_MEMORY, "no memory for the answers in a prompt");
    for (size_t i = 0; i < recall->n_places; i++) recall->ranges[i] = recall->places[i].range;
    return true;
}

bool token_memory_encode(TokenMemory *memory, const TokenRecall *recall, TokenList *list, Error *error)
{
    if (list->n) return error_set(error, ERR_INTERNAL, "a prompt begins a list of tokens");
    TokEncode encode = recall->encode;
    Recall run = {.memory = memory, .in = &encode, .hash = mix_salt(memory, &recall->context)};
    bool ok = list_places(&run, recall, error);
    if (ok) {
        TokKnown known = {.ranges = run.ranges, .n_ranges = run.n_places, .find = recall_place, .arg = &run};
        encode.known = &known;
        ok = tok_encode(memory->params.tokenizer, &encode, list, error);
        encode.known = NULL;
    }
    free(run.places);
    free(run.ranges);
    return ok;
}
