/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/session_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_ATTEMPTS = 8 };

static bool io_error(const SessionDisk *disk, const char *what, Error *error)
{
    return error_set(error, ERR_IO, "session_dir: cannot %s '%s': %s", what, disk->name, strerror(errno));
}

static void set_names(SessionDisk *disk, const char *session)
{
    snprintf(disk->name, sizeof disk->name, "%s.session", session);
    snprintf(disk->temp, sizeof disk->temp, ".%s.new", session);
}

bool session_disk_open(SessionDisk *disk, const char *folder, Error *error)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return error_set_param(error, ERR_IO, "session_dir", "session_dir '%s': %s", folder, strerror(errno));
    if (faccessat(fd, ".", W_OK | X_OK, 0) != 0) {
        error_set_param(error, ERR_IO, "session_dir", "session_dir '%s' cannot be written to: %s", folder,
                        strerror(errno));
        close(fd);
        return false;
    }
    *disk = (SessionDisk){.folder = fd, .fd = -1};
    return true;
}

void session_disk_close(SessionDisk *disk)
{
    session_disk_drop(disk);
    if (disk->folder >= 0) close(disk->folder);
    disk->folder = -1;
}

/* ---- writing ---- */

/* Is the open file still the one with the name? Another process may have put it into its place. */
static bool is_named(const SessionDisk *disk, int fd)
{
    struct stat open_one, named;
    return fstat(fd, &open_one) == 0 && fstatat(disk->folder, disk->temp, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           open_one.st_ino == named.st_ino && open_one.st_dev == named.st_dev && S_ISREG(named.st_mode);
}

bool session_disk_create(SessionDisk *disk, const char *session, Error *error)
{
    set_names(disk, session);
    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        int fd = openat(disk->folder, disk->temp, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
        if (fd < 0) return io_error(disk, "write", error);
        bool is_locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (is_locked && is_named(disk, fd)) {
            disk->fd = fd;
            if (ftruncate(fd, 0) == 0) return true;
            (void)io_error(disk, "write", error);
            session_disk_drop(disk);
            return false;
        }
        close(fd);
        if (!is_locked) break;
    }
    return error_set(error, ERR_BUSY, "session_dir: '%s' is being written by another process", disk->name);
}

bool session_disk_write(SessionDisk *disk, const void *bytes, size_t n, Error *error)
{
    const char *at = bytes;
    while (n > 0) {
        ssize_t some = write(disk->fd, at, n);
        if (some < 0 && errno == EINTR) continue;
        if (some <= 0) return io_error(disk, "write", error);
        at += some;
        n -= (size_t)some;
    }
    /* So that little is left to wait for at the end. */
    (void)sync_file_range(disk->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    return true;
}

static void *commit(void *arg)
{
    SessionDisk *disk = arg;
    bool ok = fsync(disk->fd) == 0 && renameat(disk->folder, disk->temp, disk->folder, disk->name) == 0 &&
              fsync(disk->folder) == 0;
    disk->commit_errno = ok ? 0 : errno;
    atomic_store(&disk->is_committed, true);
    return NULL;
}

void session_disk_commit(SessionDisk *disk)
{
    atomic_store(&disk->is_committed, false);
    disk->has_thread = pthread_create(&disk->thread, NULL, commit, disk) == 0;
    if (!disk->has_thread) commit(disk);
}

static void join(SessionDisk *disk)
{
    if (disk->has_thread) pthread_join(disk->thread, NULL);
    disk->has_thread = false;
}

bool session_disk_poll(SessionDisk *disk, bool *ret_ok, Error *error)
{
    if (!atomic_load(&disk->is_committed)) return false;
    join(disk);
    errno = disk->commit_errno;
    *ret_ok = errno == 0 || io_error(disk, "write", error);
    session_disk_drop(disk);
    return true;
}

void session_disk_drop(SessionDisk *disk)
{
    join(disk);
    if (disk->fd < 0) return;
    /* Once the file is in its place its old name is gone. */
    if (disk->temp[0] && is_named(disk, disk->fd)) (void)unlinkat(disk->folder, disk->temp, 0);
    close(disk->fd);
    disk->fd = -1;
}

/* ---- reading ---- */

bool session_disk_find(SessionDisk *disk, const char *session, uint64_t *ret_bytes, Error *error)
{
    struct stat status;
    set_names(disk, session);
    disk->temp[0] = '\0';
    int fd = openat(disk->folder, disk->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return error_set(error, ERR_NOT_FOUND, "there is no session '%s'", session);
    if (fd < 0) return io_error(disk, "read", error);
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(fd);
        return error_set(error, ERR_INVALID, "session_dir: '%s' is not a regular file", disk->name);
    }
    disk->fd = fd;
    *ret_bytes = (uint64_t)status.st_size;
    return true;
}

bool session_disk_read(const SessionDisk *disk, uint64_t offset, void *bytes, size_t n, Error *error)
{
    char *at = bytes;
    while (n > 0) {
        ssize_t some = pread(disk->fd, at, n, (off_t)offset);
        if (some < 0 && errno == EINTR) continue;
        if (some < 0) return io_error(disk, "read", error);
        if (some == 0) return error_set(error, ERR_INVALID, "the file ends too early");
        at += some;
        offset += (uint64_t)some;
        n -= (size_t)some;
    }
    return true;
}

bool session_disk_remove(const SessionDisk *disk, const char *session, Error *error)
{
    char name[sizeof disk->name];
    snprintf(name, sizeof name, "%s.session", session);
    if (unlinkat(disk->folder, name, 0) != 0) {
        if (errno == ENOENT) return error_set(error, ERR_NOT_FOUND, "there is no session '%s'", session);
        return error_set(error, ERR_IO, "session_dir: cannot remove '%s': %s", name, strerror(errno));
    }
    (void)fsync(disk->folder);
    return true;
}
