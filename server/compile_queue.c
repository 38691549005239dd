/* SPDX-License-Identifier: Apache-2.0 */
#include "server/compile_queue.h"

#include <string.h>

enum { LONG_PLACE = 0 };

static bool is_same(const GrammarKey *a, const GrammarKey *b)
{
    return !memcmp(a, b, sizeof *a);
}

/* A client has one a round; whoever comes is in the round behind the one that goes on. */
void compile_queue_add(CompileQueue *queue, CompileWait *wait)
{
    CompileWait **end = &queue->waiting;
    wait->round = queue->round[wait->is_long] + 1;
    for (; *end; end = &(*end)->next) {
        bool is_before = (*end)->client == wait->client && (*end)->is_long == wait->is_long;
        if (is_before && (*end)->round >= wait->round) wait->round = (*end)->round + 1;
    }
    wait->next = NULL;
    *end = wait;
    queue->n_waiting++;
}

static CompileWait *take(CompileQueue *queue, CompileWait **link)
{
    CompileWait *wait = *link;
    *link = wait->next;
    wait->next = NULL;
    queue->n_waiting--;
    return wait;
}

/* Is the grammar in somebody's hands: compiled now, or after a try that was not enough? */
static bool is_in_hand(const CompileQueue *queue, const CompileWait *wait)
{
    for (int i = 0; i < COMPILE_PLACES; i++)
        if (queue->running[i] && is_same(&queue->running[i]->grammar, &wait->grammar)) return true;
    for (const CompileWait *other = queue->waiting; other && !wait->is_long; other = other->next)
        if (other->is_long && is_same(&other->grammar, &wait->grammar)) return true;
    return false;
}

static CompileWait **find_next(CompileQueue *queue, bool is_long)
{
    CompileWait **found = NULL;
    for (CompileWait **link = &queue->waiting; *link; link = &(*link)->next)
        if ((*link)->is_long == is_long && (!found || (*link)->round < (*found)->round) && !is_in_hand(queue, *link))
            found = link;
    return found;
}

CompileWait *compile_queue_begin(CompileQueue *queue)
{
    for (int place = 0; place < COMPILE_PLACES; place++) {
        if (queue->running[place]) continue;
        CompileWait **link = place == LONG_PLACE ? find_next(queue, true) : NULL;
        if (!link) link = find_next(queue, false);
        if (!link) continue;
        CompileWait *wait = take(queue, link);
        queue->running[place] = wait;
        if (queue->round[wait->is_long] < wait->round) queue->round[wait->is_long] = wait->round;
        return wait;
    }
    return NULL;
}

void compile_queue_end(CompileQueue *queue, const CompileWait *wait)
{
    for (int i = 0; i < COMPILE_PLACES; i++)
        if (queue->running[i] == wait) queue->running[i] = NULL;
}

bool compile_queue_remove(CompileQueue *queue, const CompileWait *wait)
{
    for (CompileWait **link = &queue->waiting; *link; link = &(*link)->next)
        if (*link == wait) return take(queue, link) != NULL;
    return false;
}

CompileWait *compile_queue_take_same(CompileQueue *queue, const GrammarKey *grammar)
{
    for (CompileWait **link = &queue->waiting; *link; link = &(*link)->next)
        if (is_same(&(*link)->grammar, grammar)) return take(queue, link);
    return NULL;
}

CompileWait *compile_queue_take_late(CompileQueue *queue, uint64_t now_usec)
{
    for (CompileWait **link = &queue->waiting; *link; link = &(*link)->next)
        if ((*link)->deadline_usec && (*link)->deadline_usec <= now_usec) return take(queue, link);
    return NULL;
}

uint64_t compile_queue_deadline(const CompileQueue *queue)
{
    uint64_t first = 0;
    for (const CompileWait *wait = queue->waiting; wait; wait = wait->next)
        if (wait->deadline_usec && (!first || wait->deadline_usec < first)) first = wait->deadline_usec;
    return first;
}
