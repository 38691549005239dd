/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/grammar_impl.h"

#include <stdlib.h>

enum { FIRST_SLOTS = 64 };

uint32_t hash_bytes(uint32_t hash, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < n; i++) hash = (hash ^ at[i]) * 0x01000193u;
    return hash ^ hash >> 15;
}

void id_table_done(IdTable *table)
{
    free(table->ids);
    *table = (IdTable){0};
}

bool id_table_reserve(IdTable *table, uint32_t (*hash_of)(const void *owner, uint32_t id), const void *owner)
{
    if (table->n_used < table->n_slots / 2) return true;
    uint32_t n_slots = table->n_slots ? table->n_slots * 2 : FIRST_SLOTS;
    uint32_t *ids = calloc(n_slots, sizeof *ids);
    if (!ids) return false;
    for (uint32_t i = 0; i < table->n_slots; i++) {
        if (!table->ids[i]) continue;
        uint32_t at = hash_of(owner, table->ids[i] - 1) & (n_slots - 1);
        while (ids[at]) at = (at + 1) & (n_slots - 1);
        ids[at] = table->ids[i];
    }
    free(table->ids);
    table->ids = ids;
    table->n_slots = n_slots;
    return true;
}

uint32_t *id_table_find(IdTable *table, uint32_t hash, bool (*is_same)(const void *owner, uint32_t id, const void *key),
                        const void *owner, const void *key)
{
    uint32_t at = hash & (table->n_slots - 1);
    while (table->ids[at] && !is_same(owner, table->ids[at] - 1, key)) at = (at + 1) & (table->n_slots - 1);
    return &table->ids[at];
}

void id_table_fill(IdTable *table, uint32_t *slot, uint32_t id)
{
    *slot = id + 1;
    table->n_used++;
}
