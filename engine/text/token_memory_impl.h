/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the token memory. */
#pragma once
#include "engine/text/token_memory.h"

#include <pthread.h>

enum { TOKEN_MEMORY_MAX_ENDS = 16 };

typedef enum EntryKind { ENTRY_ANSWER, ENTRY_TURN, ENTRY_NOTE } EntryKind;

typedef struct Entry Entry;
struct Entry {
    Entry *next;          /* in its bucket, newest first */
    Entry *older, *newer; /* by use */
    EntryKind kind;
    uint64_t hash;         /* of the ids before an answer, the text before a turn */
    uint64_t context_hash; /* of the ids before a turn */
    uint64_t answer_hash;  /* of the conversation up to a turn, as the caller knows it */
    uint32_t n_ids;
    size_t n_text;
    uint32_t ids[]; /* [n_ids], then the text */
};

struct TokenMemory {
    TokenMemoryParams params;
    uint64_t seed;
    struct {
        const char *text;
        size_t n;
    } ends[TOKEN_MEMORY_MAX_ENDS]; /* [n_ends] what ends a turn */
    uint32_t n_ends;
    Buffer end_texts;
    pthread_mutex_t lock; /* of all that follows */
    Entry **buckets;      /* [mask + 1] */
    size_t mask;
    Entry *oldest, *newest;
    size_t n_turns;
    TokenMemoryStats stats;
};

/* Leading ids, and the part of a text that they show. */
typedef struct Shown {
    size_t n_ids, n_bytes;
} Shown;

/* The text behind its ids. */
const char *token_entry_text(const Entry *entry);
/* It is the one used last; under the lock. */
void token_entry_used(TokenMemory *memory, Entry *entry);
uint64_t token_memory_mix_word(uint64_t hash, uint32_t word);
uint64_t token_memory_mix_ids(uint64_t hash, const uint32_t *ids, size_t n);
/*
 * The leading ids that show, as an answer shows them (dead bytes are U+FFFD), the beginning of the text: up to its end,
 * to what differs or to an id that stands for no text. marks: those show too.
 */
LW_CHECK bool token_memory_follow(const TokenMemory *memory, const char *text, size_t n_bytes, const uint32_t *ids,
                                  size_t n_ids, bool marks, Shown *ret_shown, Error *error);
