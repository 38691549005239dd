/* SPDX-License-Identifier: Apache-2.0 */
/* A binary heap of numbers, the smallest on top, in an array of the caller's that is large enough. */
#pragma once
#include <stddef.h>
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
