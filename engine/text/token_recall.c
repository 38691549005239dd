/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/token_memory_impl.h"

#include <stdlib.h>
#include <string.h>

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
    const uint64_t *turns; /* [n_turns] */
    size_t n_turns;
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
    if (n > entry->n_text || memcmp(token_entry_text(entry), text, n) != 0) return false;
    for (size_t i = n; i < entry->n_text; i++)
        if (!is_blank(token_entry_text(entry)[i])) return false;
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
    while (common < n && common < entry->n_text && text[common] == token_entry_text(entry)[common]) common++;
    return common;
}

/* Where the turn ends that begins here: before the next end token of the template's. */
static size_t end_of_turn(const Recall *recall, size_t start)
{
    const TokEncode *in = recall->in;
    const TokenMemory *memory = recall->memory;
    for (size_t range = 0; range < in->n_trusted; range++) {
        size_t at = in->trusted[range].start > start ? in->trusted[range].start : start;
        for (; at < in->trusted[range].end; at++)
            for (uint32_t i = 0; i < memory->n_ends; i++) {
                size_t n = memory->ends[i].n;
                if (n && n <= in->trusted[range].end - at && !memcmp(in->text + at, memory->ends[i].text, n)) return at;
            }
    }
    return in->n;
}

static bool differs_in_blanks(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t i = 0, k = 0;
    for (;;) {
        while (i < n_a && is_blank(a[i])) i++;
        while (k < n_b && is_blank(b[k])) k++;
        if (i == n_a || k == n_b) return i == n_a && k == n_b;
        if (a[i++] != b[k++]) return false;
    }
}

/*
 * A turn that the conversation has as it was given is what it was, if the template writes the same but for blanks: it
 * puts line breaks around reasoning, and JSON in its own way.
 */
static bool is_whole(const Recall *recall, const Place *place, const Entry *entry, size_t *ret_bytes)
{
    bool is_given = false;
    for (size_t i = 0; i < recall->n_turns && !is_given; i++) is_given = recall->turns[i] == entry->answer_hash;
    if (!is_given) return false;
    size_t start = place->range.start, n = end_of_turn(recall, start) - start;
    *ret_bytes = n;
    return differs_in_blanks(recall->in->text + start, n, token_entry_text(entry), entry->n_text);
}

/* What is known of a place. */
typedef struct Known {
    uint32_t *ids; /* [n_ids], for free() */
    size_t n_ids;
    size_t n_whole; /* bytes of the text that all of them stand for; 0: compare */
} Known;

/* The turn in this place that the text shows whole, else the one that it shows most of. */
static Entry *find_turn(const Recall *recall, const Place *place, uint64_t context_hash, size_t *ret_whole)
{
    const TokenMemory *memory = recall->memory;
    const char *text = recall->in->text + place->range.start;
    Entry *found = NULL;
    size_t most = 0, n_whole;
    for (Entry *entry = memory->buckets[place->text_hash & memory->mask]; entry; entry = entry->next) {
        if (entry->kind != ENTRY_TURN || entry->hash != place->text_hash || entry->context_hash != context_hash)
            continue;
        if (is_whole(recall, place, entry, &n_whole)) {
            *ret_whole = n_whole;
            return entry;
        }
        size_t common = count_common(entry, text, place->range.end - place->range.start);
        if (common <= most) continue;
        most = common;
        found = entry;
    }
    return found;
}

/* n_ids 0: nothing is known. */
static bool know(Recall *recall, const Place *place, uint64_t hash, Known *ret_known, Error *error)
{
    bool ok = true;
    TokenMemory *memory = recall->memory;
    const char *text = recall->in->text + place->range.start;
    Known known = {0};
    pthread_mutex_lock(&memory->lock);
    Entry *entry = place->kind == ENTRY_TURN ? find_turn(recall, place, hash, &known.n_whole)
                                             : find(memory, hash, text, place->range.end - place->range.start);
    if (entry) known.ids = malloc(entry->n_ids * sizeof *known.ids);
    if (known.ids) {
        known.n_ids = entry->n_ids;
        memcpy(known.ids, entry->ids, entry->n_ids * sizeof *known.ids);
        token_entry_used(memory, entry);
        memory->stats.recalled_tokens += entry->n_ids;
    } else if (entry) {
        ok = error_set(error, ERR_NO_MEMORY, "no memory for %u tokens", entry->n_ids);
    }
    pthread_mutex_unlock(&memory->lock);
    *ret_known = known;
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
    if (!token_memory_follow(recall->memory, text, n, ids, n_ids, is_turn, ret_shown, error)) return false;
    size_t end = place->range.start + ret_shown->n_bytes;
    if (!is_turn || ret_shown->n_ids == 0 || end == recall->in->n || is_trusted(recall->in, end)) return true;
    return token_memory_follow(recall->memory, text, n, ids, ret_shown->n_ids - 1, is_turn, ret_shown, error);
}

static bool recall_place(void *arg, const TextRange *range, size_t n_final, TokenList *list, size_t *ret_bytes,
                         Error *error)
{
    Recall *recall = arg;
    const Place *place = &recall->places[range - recall->ranges];
    Known known;
    recall->hash = token_memory_mix_ids(recall->hash, list->ids + recall->n_hashed, n_final - recall->n_hashed);
    recall->n_hashed = n_final;
    uint64_t hash = token_memory_mix_ids(recall->hash, list->ids + n_final, list->n - n_final);
    *ret_bytes = 0;
    if (!know(recall, place, hash, &known, error)) return false;
    Shown shown = {known.n_ids, known.n_whole};
    bool ok = known.n_whole || follow_place(recall, place, known.ids, known.n_ids, &shown, error);
    for (size_t i = 0; ok && i < shown.n_ids; i++) ok = token_list_push(list, known.ids[i], error);
    *ret_bytes = shown.n_bytes;
    free(known.ids);
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
    uint64_t hash = token_memory_begin(memory, context);
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
            hash = token_memory_mix_word(hash, (uint8_t)in->text[at]);
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
    Recall run = {.memory = memory,
                  .in = &encode,
                  .turns = recall->turns,
                  .n_turns = recall->n_turns,
                  .hash = token_memory_begin(memory, &recall->context)};
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
