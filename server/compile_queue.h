/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who compiles a grammar next. Whoever it is has a short try first; what that is not enough for is compiled from the
 * beginning in the one place for what takes long, so that a small schema does not wait behind large ones. Clients take
 * turns, however many each of them has waiting, and of those that want the same grammar one compiles. Loop thread.
 */
#pragma once
#include "engine/sample/grammar/cache.h"

enum { COMPILE_PLACES = 2 }; /* uv's pool has four threads */

typedef struct CompileWait CompileWait;
struct CompileWait {
    GrammarKey grammar;
    uint64_t client;        /* whose turn it is: equal for requests of one */
    uint64_t deadline_usec; /* 0: none */
    bool is_long;           /* a short try was not enough */
    uint64_t round;         /* the queue's from here on */
    CompileWait *next;
};

typedef struct CompileQueue {
    CompileWait *waiting; /* in the order of their coming */
    CompileWait *running[COMPILE_PLACES];
    uint64_t round[2]; /* that goes on, of short tries and of long ones */
    uint32_t n_waiting;
} CompileQueue;

void compile_queue_add(CompileQueue *queue, CompileWait *wait);
/* The next that may begin has a place from now on. NULL: none may. */
CompileWait *compile_queue_begin(CompileQueue *queue);
/* It gives its place back, if it has one. */
void compile_queue_end(CompileQueue *queue, const CompileWait *wait);
/* It waits no longer. False: it did not. */
bool compile_queue_remove(CompileQueue *queue, const CompileWait *wait);
/* One that waits for this grammar, and one whose time was over before now, wait no longer. NULL: there is none. */
CompileWait *compile_queue_take_same(CompileQueue *queue, const GrammarKey *grammar);
CompileWait *compile_queue_take_late(CompileQueue *queue, uint64_t now_usec);
/* When the first of those that wait is late; 0: never. */
uint64_t compile_queue_deadline(const CompileQueue *queue);
