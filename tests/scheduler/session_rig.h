/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions of tiny models in a folder of their own. Test code; asserts with Criterion. */
#pragma once
#include "scheduler/session.h"
#include "tests/support/engine_rig.h"

enum { SESSION_RIG_TEXT = 400 };

/* An engine, its cache and a folder. */
typedef struct SessionRig {
    Engine *engine;
    PrefixCache *cache;
    SessionStore *store;
    uint32_t text[SESSION_RIG_TEXT];
} SessionRig;

/* Of the last call that failed. */
extern Error session_rig_error;

void session_folder_new(char *folder);
/* Removes it with all that is in it; returns how many files there were. */
uint32_t session_folder_remove(const char *folder);
SessionRig session_rig_on(Engine *engine, const char *folder);
/* The cache keeps so many bytes for later at most. */
SessionRig session_rig_limited(Engine *engine, const char *folder, uint64_t max_idle_bytes);
SessionRig session_rig_new(KvType type, const char *folder);
void session_rig_free(SessionRig *rig);
/* Tokens text [n] are computed and cached, from n_prompt on as decoded. */
void session_rig_compute(SessionRig *rig, PolicyId policy, const uint32_t *text, uint32_t n_prompt, uint32_t n);
SessionCall *session_rig_call(SessionOp op, const char *session);
/* A step after a nap, in which the disk is probably done. */
SessionState session_rig_step(SessionRig *rig);
void session_rig_run(SessionRig *rig, SessionCall *call);
/* How much of text [n] is cached. */
uint32_t session_rig_look(SessionRig *rig, const uint32_t *text, uint32_t n);
ErrorCode session_rig_save(SessionRig *rig, PolicyId policy, const char *session, uint32_t n, uint32_t *ret_n);
ErrorCode session_rig_restore(SessionRig *rig, const char *session, uint32_t *ret_n);
ErrorCode session_rig_delete(SessionRig *rig, const char *session);
char *session_read_file(const char *folder, const char *name, size_t *ret_n);
