/* SPDX-License-Identifier: Apache-2.0 */
/* usage: make_synthetic SHAPE:TYPE PATH. Writes the model of longwave bench --synthetic to a file, for serve. */
#include "engine/model/synthetic.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEED = 1 };

static bool copy_file(const char *from, const char *to)
{
    struct stat about;
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool ok = in >= 0 && out >= 0 && fstat(in, &about) == 0;
    for (off_t left = ok ? about.st_size : 0; ok && left > 0;) {
        ssize_t n = sendfile(out, in, NULL, (size_t)left);
        ok = n > 0;
        left -= n;
    }
    if (in >= 0) close(in);
    if (out >= 0 && close(out)) ok = false;
    if (!ok) perror(to);
    return ok;
}

static bool make(const char *what, const char *path, Error *error)
{
    const ModelShape *shape;
    DType type;
    Synthetic *synthetic = NULL;
    ThreadPool *pool = NULL;
    bool ok = synthetic_parse(what, &shape, &type, error) && threads_new(threads_available(), &pool, error) &&
              synthetic_new(shape, type, &synthetic, error) && synthetic_fill(synthetic, SEED, pool, error) &&
              (copy_file(synthetic_path(synthetic), path) || error_set(error, ERR_IO, "the file is not written"));
    synthetic_free(synthetic);
    threads_free(pool);
    return ok;
}

int main(int argc, char **argv)
{
    Error error;
    if (argc != 3) {
        fputs("usage: make_synthetic SHAPE:TYPE PATH\n", stderr);
        return 2;
    }
    if (make(argv[1], argv[2], &error)) return 0;
    fprintf(stderr, "make_synthetic: %s\n", error.text);
    return 1;
}
