/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/session_disk.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_ATTEMPTS = 8 };

typedef bool DiskWork(SessionDisk *disk, Error *error);

struct SessionDisk {
    SessionDiskParams params;
    int folder;
    bool is_busy; /* the asker's */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    DiskWork *work; /* under lock; NULL: none is asked for, or it is done */
    bool is_closing;

    /* of the thread while work is set, else of who asks */
    int fd; /* -1: none */
    bool is_written;
    char session[SESSION_MAX_ID_BYTES + 1], name[SESSION_MAX_ID_BYTES + 16], temp[SESSION_MAX_ID_BYTES + 16];
    char *bytes;
    size_t n_bytes;
    uint64_t offset, file_bytes;
    bool ok;
    Error error;
};

static bool io_error(const SessionDisk *disk, const char *what, Error *error)
{
    return error_set(error, ERR_IO, "session_dir: cannot %s '%s': %s", what, disk->name, strerror(errno));
}

/* ---- work on the thread ---- */

/* Is the open file still the one with the name? Another process may have put it into its place. */
static bool is_named(const SessionDisk *disk, int fd)
{
    struct stat open_one, named;
    return fstat(fd, &open_one) == 0 && fstatat(disk->folder, disk->temp, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           open_one.st_ino == named.st_ino && open_one.st_dev == named.st_dev && S_ISREG(named.st_mode);
}

static bool drop(SessionDisk *disk, Error *error)
{
    (void)error;
    if (disk->fd < 0) return true;
    /* Once the file is in its place its old name is gone. */
    if (disk->is_written && is_named(disk, disk->fd)) (void)unlinkat(disk->folder, disk->temp, 0);
    close(disk->fd);
    disk->fd = -1;
    return true;
}

static bool create(SessionDisk *disk, Error *error)
{
    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        int fd = openat(disk->folder, disk->temp, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
        if (fd < 0) return io_error(disk, "write", error);
        bool is_locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (is_locked && is_named(disk, fd)) {
            disk->fd = fd;
            disk->is_written = true;
            return ftruncate(fd, 0) == 0 || io_error(disk, "write", error);
        }
        close(fd);
        if (!is_locked) break;
    }
    return error_set(error, ERR_BUSY, "session_dir: '%s' is being written by another process", disk->name);
}

static bool write_bytes(SessionDisk *disk, Error *error)
{
    for (size_t at = 0; at < disk->n_bytes;) {
        ssize_t some = write(disk->fd, disk->bytes + at, disk->n_bytes - at);
        if (some < 0 && errno == EINTR) continue;
        if (some <= 0) return io_error(disk, "write", error);
        at += (size_t)some;
    }
    /* So that little is left to wait for at the end. */
    (void)sync_file_range(disk->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    return true;
}

static bool commit(SessionDisk *disk, Error *error)
{
    return (fsync(disk->fd) == 0 && renameat(disk->folder, disk->temp, disk->folder, disk->name) == 0 &&
            fsync(disk->folder) == 0) ||
           io_error(disk, "write", error);
}

static bool no_session(const SessionDisk *disk, Error *error)
{
    return error_set(error, ERR_NOT_FOUND, "there is no session '%s'", disk->session);
}

static bool find(SessionDisk *disk, Error *error)
{
    struct stat status;
    int fd = openat(disk->folder, disk->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? no_session(disk, error) : io_error(disk, "read", error);
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(fd);
        return error_set(error, ERR_INVALID, "session_dir: '%s' is not a regular file", disk->name);
    }
    disk->fd = fd;
    disk->is_written = false;
    disk->file_bytes = (uint64_t)status.st_size;
    return true;
}

static bool read_bytes(SessionDisk *disk, Error *error)
{
    for (size_t at = 0; at < disk->n_bytes;) {
        ssize_t some = pread(disk->fd, disk->bytes + at, disk->n_bytes - at, (off_t)(disk->offset + at));
        if (some < 0 && errno == EINTR) continue;
        if (some < 0) return io_error(disk, "read", error);
        if (some == 0) return error_set(error, ERR_INVALID, "session '%s': the file ends too early", disk->session);
        at += (size_t)some;
    }
    return true;
}

static bool remove_file(SessionDisk *disk, Error *error)
{
    if (unlinkat(disk->folder, disk->name, 0) != 0)
        return errno == ENOENT ? no_session(disk, error) : io_error(disk, "remove", error);
    (void)fsync(disk->folder);
    return true;
}

static void *disk_main(void *arg)
{
    SessionDisk *disk = arg;
    pthread_mutex_lock(&disk->lock);
    for (;;) {
        while (!disk->work && !disk->is_closing) pthread_cond_wait(&disk->changed, &disk->lock);
        DiskWork *work = disk->work;
        if (!work) break;
        pthread_mutex_unlock(&disk->lock);
        disk->ok = work(disk, &disk->error);
        pthread_mutex_lock(&disk->lock);
        disk->work = NULL;
        if (!disk->params.wake) continue;
        pthread_mutex_unlock(&disk->lock);
        disk->params.wake(disk->params.wake_arg);
        pthread_mutex_lock(&disk->lock);
    }
    pthread_mutex_unlock(&disk->lock);
    return NULL;
}

/* ---- the one who asks ---- */

static bool start_thread(SessionDisk *disk, Error *error)
{
    /* Signals are another thread's business. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&disk->thread, NULL, disk_main, disk);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 || error_set(error, ERR_IO, "cannot start the thread of session_dir: %s", strerror(rc));
}

static bool open_folder(const char *folder, int *ret_fd, Error *error)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return error_set_param(error, ERR_IO, "session_dir", "session_dir '%s': %s", folder, strerror(errno));
    if (faccessat(fd, ".", W_OK | X_OK, 0) != 0) {
        error_set_param(error, ERR_IO, "session_dir", "session_dir '%s' cannot be written to: %s", folder,
                        strerror(errno));
        close(fd);
        return false;
    }
    *ret_fd = fd;
    return true;
}

static void free_disk(SessionDisk *disk)
{
    pthread_cond_destroy(&disk->changed);
    pthread_mutex_destroy(&disk->lock);
    if (disk->folder >= 0) close(disk->folder);
    free(disk);
}

bool session_disk_new(const SessionDiskParams *params, SessionDisk **ret_disk, Error *error)
{
    SessionDisk *disk = calloc(1, sizeof *disk);
    if (!disk) return error_set(error, ERR_NO_MEMORY, "no memory for sessions");
    disk->params = *params;
    disk->folder = disk->fd = -1;
    pthread_mutex_init(&disk->lock, NULL);
    pthread_cond_init(&disk->changed, NULL);
    if (!open_folder(params->folder, &disk->folder, error) || !start_thread(disk, error)) {
        free_disk(disk);
        return false;
    }
    *ret_disk = disk;
    return true;
}

void session_disk_free(SessionDisk *disk)
{
    if (!disk) return;
    pthread_mutex_lock(&disk->lock);
    disk->is_closing = true;
    pthread_cond_signal(&disk->changed);
    pthread_mutex_unlock(&disk->lock);
    pthread_join(disk->thread, NULL);
    (void)drop(disk, &disk->error);
    free_disk(disk);
}

static void ask(SessionDisk *disk, DiskWork *work)
{
    assert(!disk->is_busy);
    disk->is_busy = true;
    pthread_mutex_lock(&disk->lock);
    disk->work = work;
    pthread_cond_signal(&disk->changed);
    pthread_mutex_unlock(&disk->lock);
}

static void set_session(SessionDisk *disk, const char *session)
{
    snprintf(disk->session, sizeof disk->session, "%s", session);
    snprintf(disk->name, sizeof disk->name, "%s.session", disk->session);
    snprintf(disk->temp, sizeof disk->temp, ".%s.new", disk->session);
}

static void set_bytes(SessionDisk *disk, uint64_t offset, void *bytes, size_t n)
{
    disk->offset = offset;
    disk->bytes = bytes;
    disk->n_bytes = n;
}

void session_disk_create(SessionDisk *disk, const char *session)
{
    set_session(disk, session);
    ask(disk, create);
}

void session_disk_write(SessionDisk *disk, void *bytes, size_t n)
{
    set_bytes(disk, 0, bytes, n);
    ask(disk, write_bytes);
}

void session_disk_commit(SessionDisk *disk)
{
    ask(disk, commit);
}

void session_disk_find(SessionDisk *disk, const char *session)
{
    set_session(disk, session);
    ask(disk, find);
}

void session_disk_read(SessionDisk *disk, uint64_t offset, void *bytes, size_t n)
{
    set_bytes(disk, offset, bytes, n);
    ask(disk, read_bytes);
}

void session_disk_remove(SessionDisk *disk, const char *session)
{
    set_session(disk, session);
    ask(disk, remove_file);
}

void session_disk_drop(SessionDisk *disk)
{
    ask(disk, drop);
}

bool session_disk_is_busy(const SessionDisk *disk)
{
    return disk->is_busy;
}

bool session_disk_poll(SessionDisk *disk, bool *ret_ok, Error *error)
{
    pthread_mutex_lock(&disk->lock);
    bool is_done = !disk->work;
    pthread_mutex_unlock(&disk->lock);
    if (!is_done) return false;
    disk->is_busy = false;
    *ret_ok = disk->ok;
    if (!disk->ok) *error = disk->error;
    return true;
}

bool session_disk_has_file(const SessionDisk *disk)
{
    return disk->fd >= 0;
}

uint64_t session_disk_bytes(const SessionDisk *disk)
{
    return disk->file_bytes;
}
