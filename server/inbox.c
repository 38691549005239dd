/* SPDX-License-Identifier: Apache-2.0 */
#include "server/inbox.h"

static InboxEntry **find(Inbox *inbox, RequestId id)
{
    InboxEntry **link = &inbox->bucket[id % INBOX_BUCKETS];
    while (*link && (*link)->id != id) link = &(*link)->next;
    return link;
}

void inbox_add(Inbox *inbox, InboxEntry *entry)
{
    InboxEntry **bucket = &inbox->bucket[entry->id % INBOX_BUCKETS];
    entry->next = *bucket;
    *bucket = entry;
}

void inbox_remove(Inbox *inbox, InboxEntry *entry)
{
    InboxEntry **link = find(inbox, entry->id);
    if (*link == entry) *link = entry->next;
}

bool inbox_drain(Inbox *inbox, Worker *worker, size_t max, EngineStats *stats)
{
    Event event;
    for (size_t i = 0; i < max; i++) {
        if (!worker_poll(worker, &event)) return false;
        if (event.kind == EVENT_STATS) *stats = *event.stats;
        InboxEntry *entry = event.id ? *find(inbox, event.id) : NULL;
        if (entry) entry->on_event(entry, &event);
        event_done(&event);
    }
    return true;
}
