/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of one folder by session id: written beside their place and put there whole, when they are on the disk. No name
 * leads out of the folder, no link is followed. One file at a time. Engine thread.
 */
#pragma once
#include "base/error.h"
#include "scheduler/messages.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct SessionDisk {
    int folder, fd; /* -1: none */
    char name[SESSION_MAX_ID_BYTES + 16], temp[SESSION_MAX_ID_BYTES + 16];
    pthread_t thread; /* of the commit */
    bool has_thread;
    _Atomic bool is_committed; /* or has failed */
    int commit_errno;          /* read after is_committed; 0: in place */
} SessionDisk;

LW_CHECK bool session_disk_open(SessionDisk *disk, const char *folder, Error *error);
void session_disk_close(SessionDisk *disk); /* what is being written is dropped, a commit is waited for */

/* A file to write. ERR_BUSY: another process writes it. */
LW_CHECK bool session_disk_create(SessionDisk *disk, const char *session, Error *error);
LW_CHECK bool session_disk_write(SessionDisk *disk, const void *bytes, size_t n, Error *error);
/* Puts what was written in its place, on another thread; then ask until it is done. */
void session_disk_commit(SessionDisk *disk);
bool session_disk_poll(SessionDisk *disk, bool *ret_ok, Error *error); /* true: it is done, well or not */
void session_disk_drop(SessionDisk *disk);                             /* the file that is open, written or read */

/* A file to read. ERR_NOT_FOUND. */
LW_CHECK bool session_disk_find(SessionDisk *disk, const char *session, uint64_t *ret_bytes, Error *error);
LW_CHECK bool session_disk_read(const SessionDisk *disk, uint64_t offset, void *bytes, size_t n, Error *error);
LW_CHECK bool session_disk_remove(const SessionDisk *disk, const char *session, Error *error);
