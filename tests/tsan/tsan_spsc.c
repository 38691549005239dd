/* SPDX-License-Identifier: Apache-2.0 */
/* Two threads hammer one queue: every item arrives once, in order, whole. A plain program, for ThreadSanitizer. */
#include "base/spsc_queue.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

enum { N_ITEMS = 300000 };

typedef struct Item {
    uint64_t number, check[3];
} Item;

static void *produce(void *arg)
{
    SpscQueue *queue = arg;
    for (uint64_t i = 0; i < N_ITEMS;) {
        const Item item = {.number = i, .check = {i * 3, i * 5, i * 7}};
        if (spsc_push(queue, &item))
            i++;
        else
            sched_yield();
    }
    return NULL;
}

static bool consume(SpscQueue *queue)
{
    bool ok = true;
    for (uint64_t i = 0; i < N_ITEMS;) {
        Item item;
        if (!spsc_pop(queue, &item)) {
            sched_yield();
            continue;
        }
        ok &= item.number == i && item.check[0] == i * 3 && item.check[1] == i * 5 && item.check[2] == i * 7;
        i++;
    }
    return ok;
}

static bool hammer(size_t capacity)
{
    Error error;
    SpscQueue *queue;
    pthread_t producer;
    if (!spsc_new(sizeof(Item), capacity, &queue, &error)) return false;
    if (pthread_create(&producer, NULL, produce, queue) != 0) return false;
    bool ok = consume(queue);
    pthread_join(producer, NULL);
    spsc_free(queue);
    return ok;
}

int main(void)
{
    const size_t capacities[] = {1, 2, 64, 1024};
    int n_passed = 0, n_failed = 0;
    for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
        bool ok = hammer(capacities[i]);
        printf("%s capacity %zu\n", ok ? "ok  " : "FAIL", capacities[i]);
        *(ok ? &n_passed : &n_failed) += 1;
    }
    printf("tsan_spsc: %d passed, %d failed\n", n_passed, n_failed);
    return n_failed != 0;
}
