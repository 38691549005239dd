/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids that /v1/abort named a short while ago, for requests that were being prepared then: their ids are known only
 * once that is done. The oldest one makes room for the next. Loop thread.
 */
#pragma once
#include "server/account.h"
#include <stdbool.h>

enum { ABORTED_ID_BYTES = 130, ABORTED_MAX = 64 };

typedef struct AbortedIds {
    struct {
        char id[ABORTED_ID_BYTES];
        char owner[ACCOUNT_NAME_BYTES + 1]; /* whose requests are meant: "" those without a key */
        bool is_of_all;
        uint64_t usec; /* 0: a free row */
    } row[ABORTED_MAX];
    uint32_t next;
} AbortedIds;

/* owner: of the requests that are meant, NULL: all. An id that no request can have is not kept. */
void aborted_add(AbortedIds *ids, const char *id, const char *owner, uint64_t now_usec);
/* Was the id named since the request of this owner arrived? One without an id (the empty one) was not. */
bool aborted_has(const AbortedIds *ids, const char *id, const char *owner, uint64_t arrival_usec);
