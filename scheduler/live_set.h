/* SPDX-License-Identifier: Apache-2.0 */
/* The requests whose last event was not polled yet, by id: none of it looks through the others. Loop thread. */
#pragma once
#include "base/error.h"
#include "scheduler/messages.h"

typedef struct Live {
    RequestId id;
    bool is_cancelled; /* a cancel is on its way */
    uint32_t next;     /* place of the next one of its chain, or of the next free place */
} Live;

typedef struct LiveSet {
    Live *places;     /* [max] */
    uint32_t *chains; /* [mask + 1] first places */
    uint32_t n, max, free, mask;
} LiveSet;

LW_CHECK bool live_set_init(LiveSet *set, uint32_t max, Error *error);
void live_set_done(LiveSet *set); /* {0} is fine */
/* There is room: n < max. */
void live_set_add(LiveSet *set, RequestId id);
Live *live_set_find(const LiveSet *set, RequestId id); /* NULL: it is not there */
void live_set_remove(LiveSet *set, RequestId id);      /* if it is there */
