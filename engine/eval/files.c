/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEMPORARY_CHARS = 32 };

bool file_read(const char *path, Buffer *out, Error *error)
{
    char piece[16384];
    size_t n;
    FILE *file = fopen(path, "rbe");
    if (!file) return error_set(error, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path, strerror(errno));
    bool ok = true;
    while (ok && (n = fread(piece, 1, sizeof piece, file)) > 0) ok = buffer_append(out, piece, n, error);
    if (!ok)
        error_prefix(error, "%s", path);
    else if (ferror(file))
        ok = error_set(error, ERR_IO, "%s: %s", path, strerror(errno));
    fclose(file);
    return ok;
}

static bool write_all(int fd, const char *bytes, size_t n)
{
    while (n) {
        ssize_t done = write(fd, bytes, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return false;
        bytes += done;
        n -= (size_t)done;
    }
    return fsync(fd) == 0;
}

/* A device, a pipe or a folder is nothing that a new file may take the place of; of a link, the target is replaced. */
static bool find_target(const char *path, char *ret_target, Error *error)
{
    struct stat st;
    if (stat(path, &st) && errno == ENOENT) {
        if (lstat(path, &st) == 0) return error_set(error, ERR_IO, "%s: is a link to nothing", path);
        int n = snprintf(ret_target, PATH_MAX, "%s", path);
        return (n >= 0 && n < PATH_MAX) || error_set(error, ERR_INVALID, "%.64s...: the path is too long", path);
    }
    if (!realpath(path, ret_target)) return error_set(error, ERR_IO, "%s: %s", path, strerror(errno));
    return S_ISREG(st.st_mode) || error_set(error, ERR_INVALID, "%s: is no ordinary file", path);
}

static bool replace(const char *target, const void *bytes, size_t n)
{
    char temporary[PATH_MAX + TEMPORARY_CHARS];
    snprintf(temporary, sizeof temporary, "%s.%ld.new", target, (long)getpid());
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return false;
    bool ok = write_all(fd, bytes, n);
    int reason = errno;
    if (close(fd) && ok) {
        ok = false;
        reason = errno;
    }
    if (ok && !rename(temporary, target)) return true;
    if (ok) reason = errno;
    unlink(temporary);
    errno = reason;
    return false;
}

bool file_replace(const char *path, const void *bytes, size_t n, Error *error)
{
    char target[PATH_MAX];
    return find_target(path, target, error) &&
           (replace(target, bytes, n) || error_set(error, ERR_IO, "%s: %s", path, strerror(errno)));
}

bool file_check_folder(const char *path, Error *error)
{
    struct stat st;
    if (stat(path, &st) || access(path, W_OK | X_OK)) return error_set(error, ERR_IO, "%s: %s", path, strerror(errno));
    return S_ISDIR(st.st_mode) || error_set(error, ERR_INVALID, "%s: is no folder", path);
}

bool file_check_replace(const char *path, Error *error)
{
    char target[PATH_MAX];
    if (!find_target(path, target, error)) return false;
    char *slash = strrchr(target, '/');
    if (slash) slash[slash == target] = '\0';
    return file_check_folder(slash ? target : ".", error) || error_prefix(error, "%s", path);
}

/* Who had it may have removed the file in the meantime: then the lock is of nothing. */
static bool is_still_there(int fd, const char *path)
{
    struct stat own, now;
    return !fstat(fd, &own) && !stat(path, &now) && own.st_ino == now.st_ino && own.st_dev == now.st_dev;
}

bool file_lock(const char *path, FileLock *ret_lock, Error *error)
{
    FileLock lock = {.fd = -1, .path = malloc(strlen(path) + sizeof ".lock")};
    if (!lock.path) return error_set(error, ERR_NO_MEMORY, "no memory for the name of a lock");
    sprintf(lock.path, "%s.lock", path);
    for (;;) {
        lock.fd = open(lock.path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (lock.fd < 0 || flock(lock.fd, LOCK_EX | LOCK_NB)) break;
        if (is_still_there(lock.fd, lock.path)) {
            *ret_lock = lock;
            return true;
        }
        close(lock.fd);
    }
    if (lock.fd >= 0 && errno == EWOULDBLOCK)
        error_set(error, ERR_BUSY, "%s: another process works on it", path);
    else
        error_set(error, ERR_IO, "%s: %s", lock.path, strerror(errno));
    if (lock.fd >= 0) close(lock.fd);
    free(lock.path);
    return false;
}

void file_unlock(FileLock *lock)
{
    if (lock->fd < 0) return;
    unlink(lock->path);
    close(lock->fd);
    free(lock->path);
    *lock = FILE_UNLOCKED;
}
