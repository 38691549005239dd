/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cached prefixes as files in one folder. A call is worked on in slices between the steps of the scheduler, and all
 * that touches the disk is done on a thread of its own, so that no sequence waits. A file is there whole or not at all;
 * a restore checks all of it before the first page is taken, and publishes last. One call at a time. Engine thread.
 */
#pragma once
#include "scheduler/messages.h"
#include "scheduler/prefix_cache.h"

typedef struct SessionStore SessionStore;

typedef struct SessionParams {
    Engine *engine;     /* borrowed, as is the cache */
    PrefixCache *cache; /* NULL: nothing is cached, so nothing is saved or restored */
    const char *folder;
    void (*wake)(void *arg); /* any thread: a step that was waited with may go on; may be NULL */
    void *wake_arg;
} SessionParams;

/* The folder has to be there; it stays the same one if its name is given to another. */
LW_CHECK bool session_store_new(const SessionParams *params, SessionStore **ret_store, Error *error);
void session_store_free(SessionStore *store); /* NULL is fine; a call under way is given up */

typedef enum SessionState {
    SESSION_IDLE,    /* no call */
    SESSION_MORE,    /* step again */
    SESSION_WAITING, /* for the disk: step again when woken */
    SESSION_OVER,    /* the call has its result, and is no longer the store's */
} SessionState;

/* The call is borrowed until a step says SESSION_OVER. */
void session_begin(SessionStore *store, SessionCall *call);
/* A page or so. */
SessionState session_step(SessionStore *store);
bool session_holds_pages(const SessionStore *store);
/*
 * Ends the call with this error and gives up its pages at once; further steps wait for the disk. A file that is being
 * put into place may still get there.
 */
void session_give_up(SessionStore *store, const Error *error);
