/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pairing heap (Fredman et al., Algorithmica 1986) of links that stand in its members: the first is known at once,
 * any member is added in O(1) and taken out in O(log n) on average. Takes no memory. One thread.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* {0}: in no heap. */
typedef struct HeapLink {
    struct HeapLink *child, *next, *before; /* before: the sibling, or of the first child the parent */
} HeapLink;

typedef struct Heap {
    HeapLink *top; /* NULL: empty */
    bool (*comes_before)(const HeapLink *a, const HeapLink *b);
} Heap;

#define HEAP_OWNER(link, type, member) ((type *)((char *)(link)-offsetof(type, member)))
#define HEAP_CONST_OWNER(link, type, member) ((const type *)((const char *)(link)-offsetof(type, member)))

/* What it is compared by stays as it is until it is removed. */
void heap_push(Heap *heap, HeapLink *link);
/* false: it was not there. */
bool heap_remove(Heap *heap, HeapLink *link);
