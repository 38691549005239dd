/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of one folder by session id: written beside their place and put there whole, when they are on the disk. No name
 * leads out of the folder, no link is followed. One file at a time, one piece of work at a time: a thread of its own
 * does it, and who asked for it polls. Engine thread.
 */
#pragma once
#include "base/error.h"
#include "scheduler/messages.h"

typedef struct SessionDisk SessionDisk;

typedef struct SessionDiskParams {
    const char *folder;      /* has to be there */
    void (*wake)(void *arg); /* on the disk's thread, when a piece of work is done; may be NULL */
    void *wake_arg;
} SessionDiskParams;

LW_CHECK bool session_disk_new(const SessionDiskParams *params, SessionDisk **ret_disk, Error *error);
/* What is under way is waited for, what was being written is dropped. NULL is fine. */
void session_disk_free(SessionDisk *disk);

/* Each begins a piece of work, while none is under way. Bytes must stay until it is done. */
/* A file to write. ERR_BUSY: another process writes it. */
void session_disk_create(SessionDisk *disk, const char *session);
void session_disk_write(SessionDisk *disk, void *bytes, size_t n);
/* Puts what was written in its place. */
void session_disk_commit(SessionDisk *disk);
/* A file to read. ERR_NOT_FOUND. */
void session_disk_find(SessionDisk *disk, const char *session);
void session_disk_read(SessionDisk *disk, uint64_t offset, void *bytes, size_t n);
void session_disk_remove(SessionDisk *disk, const char *session);
/* The file that is open, written or read. */
void session_disk_drop(SessionDisk *disk);

/* Is there work whose end was not polled? */
bool session_disk_is_busy(const SessionDisk *disk);
/* true: the work is done, well or not. */
bool session_disk_poll(SessionDisk *disk, bool *ret_ok, Error *error);
/* While none is under way: is a file open, and what is its size? */
bool session_disk_has_file(const SessionDisk *disk);
uint64_t session_disk_bytes(const SessionDisk *disk);
