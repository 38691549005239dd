/* SPDX-License-Identifier: Apache-2.0 */
/* Small files as a whole. Any thread. */
#pragma once
#include "base/buffer.h"

/* Appends all of it, up to the buffer's maximum. ERR_NOT_FOUND: there is none. */
LW_CHECK bool file_read(const char *path, Buffer *out, Error *error);
/*
 * A new file takes the old one's place when all bytes are on their way to the disk, or nothing changes. Only ordinary
 * files are replaced; of a link what it points to.
 */
LW_CHECK bool file_replace(const char *path, const void *bytes, size_t n, Error *error);
/* Could a file be written there, or into the folder? For who would not like to hear of it at the end of long work. */
LW_CHECK bool file_check_replace(const char *path, Error *error);
LW_CHECK bool file_check_folder(const char *path, Error *error);

/*
 * PATH.lock, held by one process at a time, for a file that is read, added to and replaced. ERR_BUSY: another has it.
 * Goes with the process, however it ends.
 */
typedef struct FileLock {
    int fd; /* -1: none */
    char *path;
} FileLock;
#define FILE_UNLOCKED ((FileLock){.fd = -1})
LW_CHECK bool file_lock(const char *path, FileLock *ret_lock, Error *error);
void file_unlock(FileLock *lock); /* of none: nothing */
