/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the merging tokenizers share: a binary heap of numbers, the smallest on top, in an array that is large enough;
 * and the memory for one piece of text, its symbols and the queue of its merges. One thread at a time.
 */
#pragma once
#include "base/error.h"
#include <stdint.h>

typedef struct TokQueue {
    uint64_t *entries; /* [n] */
    size_t n;
} TokQueue;

static inline void tok_queue_push(TokQueue *queue, uint64_t entry)
{
    size_t i = queue->n++;
    while (i > 0 && queue->entries[(i - 1) / 2] > entry) {
        queue->entries[i] = queue->entries[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    queue->entries[i] = entry;
}

static inline uint64_t tok_queue_pop(TokQueue *queue)
{
    uint64_t top = queue->entries[0], last = queue->entries[--queue->n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < queue->n; i = child) {
        if (child + 1 < queue->n && queue->entries[child + 1] < queue->entries[child]) child++;
        if (queue->entries[child] >= last) break;
        queue->entries[i] = queue->entries[child];
    }
    queue->entries[i] = last;
    return top;
}

typedef struct TokWork {
    void *symbols;  /* [capacity], of the tokenizer's own type */
    TokQueue queue; /* [2 * capacity]: each merge takes one entry and adds two at most */
    size_t capacity;
} TokWork;

/* Room for a piece of n bytes; what was in it is lost. ERR_TOO_LARGE beyond TOK_MAX_WORD_BYTES. */
LW_CHECK bool tok_work_reserve(TokWork *work, size_t n, size_t symbol_bytes, Error *error);
void tok_work_done(TokWork *work);
