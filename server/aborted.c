/* SPDX-License-Identifier: Apache-2.0 */
#include "server/aborted.h"

#include <stdio.h>
#include <string.h>

void aborted_add(AbortedIds *ids, const char *id, const char *owner, uint64_t now_usec)
{
    size_t n = strlen(id);
    if (!n || n >= ABORTED_ID_BYTES) return;
    memcpy(ids->row[ids->next].id, id, n + 1);
    snprintf(ids->row[ids->next].owner, sizeof ids->row[0].owner, "%s", owner ? owner : "");
    ids->row[ids->next].is_of_all = !owner;
    ids->row[ids->next].usec = now_usec;
    ids->next = (ids->next + 1) % ABORTED_MAX;
}

bool aborted_has(const AbortedIds *ids, const char *id, const char *owner, uint64_t arrival_usec)
{
    for (uint32_t i = 0; *id && i < ABORTED_MAX; i++) {
        if (ids->row[i].usec < arrival_usec || strcmp(ids->row[i].id, id) != 0) continue;
        if (ids->row[i].is_of_all || !strcmp(ids->row[i].owner, owner)) return true;
    }
    return false;
}
