/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PATH_BYTES = 4096 };

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

bool file_replace(const char *path, const void *bytes, size_t n, Error *error)
{
    char temporary[MAX_PATH_BYTES];
    int length = snprintf(temporary, sizeof temporary, "%s.%ld.new", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof temporary)
        return error_set(error, ERR_INVALID, "%.64s...: the path is too long", path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool ok = fd >= 0 && write_all(fd, bytes, n);
    if (fd >= 0) ok = !close(fd) && ok;
    ok = ok && !rename(temporary, path);
    if (ok) return true;
    error_set(error, ERR_IO, "%s: %s", path, strerror(errno));
    unlink(temporary);
    return false;
}
