/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bounded ring between exactly one producer thread and one consumer thread; lock-free, never blocks. Items are copied
 * in and out. A full queue is an answer, not an error: the caller decides (HTTP 429, or try again next step).
 */
#pragma once
#include "base/error.h"
#include <stdint.h>

typedef struct SpscQueue SpscQueue;

/* Capacity is rounded up to a power of two. */
LW_CHECK bool spsc_new(size_t item_bytes, size_t capacity, SpscQueue **ret_queue, Error *error);
void spsc_free(SpscQueue *queue); /* NULL is fine; no thread may use it any more */

LW_CHECK bool spsc_push(SpscQueue *queue, const void *item); /* producer; false: full */
LW_CHECK bool spsc_pop(SpscQueue *queue, void *ret_item);    /* consumer; false: empty */
