/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/heap.h"

/* Two heaps without siblings, or NULL, become one. */
static HeapLink *meld(const Heap *heap, HeapLink *a, HeapLink *b)
{
    if (!a || !b) return a ? a : b;
    HeapLink *first = heap->comes_before(b, a) ? b : a, *second = first == a ? b : a;
    second->before = first;
    second->next = first->child;
    if (first->child) first->child->before = second;
    first->child = second;
    return first;
}

static HeapLink *cut_first(HeapLink **list)
{
    HeapLink *link = *list;
    if (!link) return NULL;
    *list = link->next;
    link->next = link->before = NULL;
    return link;
}

/* Siblings by pairs from the front, then the pairs from the back: that keeps later removals cheap. */
static HeapLink *meld_all(const Heap *heap, HeapLink *siblings)
{
    HeapLink *pairs = NULL, *all = NULL;
    while (siblings) {
        HeapLink *a = cut_first(&siblings), *pair = meld(heap, a, cut_first(&siblings));
        pair->next = pairs;
        pairs = pair;
    }
    while (pairs) all = meld(heap, all, cut_first(&pairs));
    return all;
}

void heap_push(Heap *heap, HeapLink *link)
{
    *link = (HeapLink){0};
    heap->top = meld(heap, heap->top, link);
}

bool heap_remove(Heap *heap, HeapLink *link)
{
    if (heap->top == link) {
        heap->top = meld_all(heap, link->child);
    } else {
        if (!link->before) return false;
        *(link->before->child == link ? &link->before->child : &link->before->next) = link->next;
        if (link->next) link->next->before = link->before;
        heap->top = meld(heap, heap->top, meld_all(heap, link->child));
    }
    *link = (HeapLink){0};
    return true;
}
