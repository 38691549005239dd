/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spsc_queue.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { CACHE_LINE = 64 };

/* Each side writes one line only and keeps a stale copy of the other's index there, to read it as rarely as it can. */
struct SpscQueue {
    alignas(CACHE_LINE) _Atomic size_t tail; /* next to write; producer's */
    size_t head_seen;
    alignas(CACHE_LINE) _Atomic size_t head; /* next to read; consumer's */
    size_t tail_seen;
    alignas(CACHE_LINE) size_t item_bytes;
    size_t mask;
    unsigned char *items; /* [mask + 1, item_bytes] */
};

bool spsc_new(size_t item_bytes, size_t capacity, SpscQueue **ret_queue, Error *error)
{
    if (item_bytes == 0 || capacity == 0 || capacity > SIZE_MAX / 4)
        return error_set(error, ERR_INVALID, "a queue of %zu items of %zu bytes", capacity, item_bytes);
    size_t rounded = 1;
    while (rounded < capacity) rounded *= 2;
    SpscQueue *queue = aligned_alloc(CACHE_LINE, sizeof *queue);
    unsigned char *items = NULL;
    if (item_bytes <= SIZE_MAX / 2 / rounded)
        items = aligned_alloc(CACHE_LINE, (rounded * item_bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (!queue || !items) {
        free(queue);
        free(items);
        return error_set(error, ERR_NO_MEMORY, "no memory for a queue of %zu items", rounded);
    }
    memset(queue, 0, sizeof *queue);
    /* All of it comes into use in turn, however few wait at once: taken now, it does not come page by page later. */
    memset(items, 0, rounded * item_bytes);
    queue->item_bytes = item_bytes;
    queue->mask = rounded - 1;
    queue->items = items;
    *ret_queue = queue;
    return true;
}

void spsc_free(SpscQueue *queue)
{
    if (!queue) return;
    free(queue->items);
    free(queue);
}

bool spsc_push(SpscQueue *queue, const void *item)
{
    size_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    if (tail - queue->head_seen > queue->mask) {
        queue->head_seen = atomic_load_explicit(&queue->head, memory_order_acquire);
        if (tail - queue->head_seen > queue->mask) return false;
    }
    memcpy(queue->items + (tail & queue->mask) * queue->item_bytes, item, queue->item_bytes);
    atomic_store_explicit(&queue->tail, tail + 1, memory_order_release);
    return true;
}

bool spsc_pop(SpscQueue *queue, void *ret_item)
{
    size_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    if (head == queue->tail_seen) {
        queue->tail_seen = atomic_load_explicit(&queue->tail, memory_order_acquire);
        if (head == queue->tail_seen) return false;
    }
    memcpy(ret_item, queue->items + (head & queue->mask) * queue->item_bytes, queue->item_bytes);
    atomic_store_explicit(&queue->head, head + 1, memory_order_release);
    return true;
}
