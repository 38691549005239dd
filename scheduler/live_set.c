/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/live_set.h"

#include <assert.h>
#include <stdlib.h>

#define NO_PLACE UINT32_MAX

bool live_set_init(LiveSet *set, uint32_t max, Error *error)
{
    uint32_t n_chains = 1;
    while (n_chains < max && n_chains < UINT32_MAX / 2) n_chains *= 2;
    LiveSet made = {.places = calloc(max, sizeof *made.places),
                    .chains = calloc(n_chains, sizeof *made.chains),
                    .max = max,
                    .mask = n_chains - 1};
    if (!made.places || !made.chains) {
        live_set_done(&made);
        return error_set(error, ERR_NO_MEMORY, "no memory for %u requests", max);
    }
    for (uint32_t i = 0; i < n_chains; i++) made.chains[i] = NO_PLACE;
    for (uint32_t i = 0; i < max; i++) made.places[i].next = i + 1 < max ? i + 1 : NO_PLACE;
    *set = made;
    return true;
}

void live_set_done(LiveSet *set)
{
    free(set->places);
    free(set->chains);
    *set = (LiveSet){0};
}

static uint32_t *chain_of(const LiveSet *set, RequestId id)
{
    return &set->chains[(id * 0x9E3779B97F4A7C15u >> 32) & set->mask];
}

void live_set_add(LiveSet *set, RequestId id)
{
    assert(set->n < set->max);
    uint32_t place = set->free, *chain = chain_of(set, id);
    set->free = set->places[place].next;
    set->places[place] = (Live){.id = id, .next = *chain};
    *chain = place;
    set->n++;
}

/* The link that leads to its place, or to none. */
static uint32_t *link_of(const LiveSet *set, RequestId id)
{
    uint32_t *link = chain_of(set, id);
    while (*link != NO_PLACE && set->places[*link].id != id) link = &set->places[*link].next;
    return link;
}

Live *live_set_find(const LiveSet *set, RequestId id)
{
    uint32_t place = *link_of(set, id);
    return place == NO_PLACE ? NULL : &set->places[place];
}

void live_set_remove(LiveSet *set, RequestId id)
{
    uint32_t *link = link_of(set, id), place = *link;
    if (place == NO_PLACE) return;
    *link = set->places[place].next;
    set->places[place].next = set->free;
    set->free = place;
    set->n--;
}
