/* SPDX-License-Identifier: Apache-2.0 */
/* RequestId -> who waits for its events. Routes what the engine thread sends to its receiver. Loop thread only. */
#pragma once
#include "scheduler/worker.h"

enum { INBOX_BUCKETS = 1024 };

/* Embedded in the receiver. */
typedef struct InboxEntry InboxEntry;
struct InboxEntry {
    RequestId id;
    void (*on_event)(InboxEntry *entry, Event *event); /* may remove entries; the payload stays the inbox's */
    InboxEntry *next;
};

typedef struct Inbox {
    InboxEntry *bucket[INBOX_BUCKETS];
} Inbox;

void inbox_add(Inbox *inbox, InboxEntry *entry);
void inbox_remove(Inbox *inbox, InboxEntry *entry); /* not added: nothing happens */
/* Delivers at most max events; false: the worker's queue is empty. Events of nobody are dropped; stats go to *stats. */
LW_CHECK bool inbox_drain(Inbox *inbox, Worker *worker, size_t max, EngineStats *stats);
