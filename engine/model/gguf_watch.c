/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/gguf_watch.h"

#include "engine/model/gguf_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SAMPLE_BYTES = 64, NEWS_BYTES = 512 };

typedef struct WatchedFile {
    struct stat then; /* st_ino 0: there was none */
    bool is_gone;     /* the name means another file now, or none */
} WatchedFile;

struct GgufWatch {
    const Gguf *gguf;
    uint64_t sample;
    WatchedFile *files; /* [gguf_n_parts] */
    char news[NEWS_BYTES];
};

/* FNV-1a over both ends of each tensor: of what the tables say, since strings in the mapping may have changed. */
static uint64_t take_sample(const Gguf *gguf)
{
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < gguf_n_tensors(gguf); i++) {
        const GgufTensor *tensor = gguf_tensor_at(gguf, i);
        const uint8_t *data = tensor->view.data;
        uint64_t n = tensor->n_bytes < SAMPLE_BYTES ? tensor->n_bytes : SAMPLE_BYTES;
        for (uint64_t j = 0; j < n; j++)
            hash = ((hash ^ data[j]) * 1099511628211u ^ data[tensor->n_bytes - 1 - j]) * 1099511628211u;
    }
    return hash;
}

bool gguf_watch_new(const Gguf *gguf, GgufWatch **ret_watch, Error *error)
{
    GgufWatch *watch = calloc(1, sizeof *watch);
    if (watch) watch->files = calloc(gguf_n_parts(gguf), sizeof *watch->files);
    if (!watch || !watch->files) {
        gguf_watch_free(watch);
        return error_set(error, ERR_NO_MEMORY, "no memory to watch the model's files");
    }
    watch->gguf = gguf;
    watch->sample = take_sample(gguf);
    for (uint32_t i = 0; i < gguf_n_parts(gguf); i++)
        watch->files[i].is_gone = stat(gguf_part_path(gguf, i), &watch->files[i].then) != 0;
    *ret_watch = watch;
    return true;
}

void gguf_watch_free(GgufWatch *watch)
{
    if (!watch) return;
    free(watch->files);
    free(watch);
}

static bool is_same_time(const struct stat *a, const struct stat *b)
{
    return a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static bool check_file(GgufWatch *watch, uint32_t i, bool *ret_is_written, Error *error)
{
    const char *path = gguf_part_path(watch->gguf, i);
    WatchedFile *file = &watch->files[i];
    struct stat now;
    if (file->is_gone) return true;
    if (stat(path, &now) || now.st_ino != file->then.st_ino || now.st_dev != file->then.st_dev) {
        file->is_gone = true;
        snprintf(watch->news, sizeof watch->news, "'%.400s' is another file now, or none: what was opened is served on",
                 path);
        return true;
    }
    if (now.st_size < file->then.st_size)
        return error_set_param(error, ERR_IO, "model", "'%.200s' was cut from %lld to %lld bytes while it is in use",
                               path, (long long)file->then.st_size, (long long)now.st_size);
    *ret_is_written |= !is_same_time(&now, &file->then);
    file->then = now;
    return true;
}

bool gguf_watch_check(GgufWatch *watch, const char **ret_news, Error *error)
{
    bool is_written = false;
    watch->news[0] = '\0';
    for (uint32_t i = 0; i < gguf_n_parts(watch->gguf); i++)
        if (!check_file(watch, i, &is_written, error)) return false;
    if (is_written && take_sample(watch->gguf) != watch->sample)
        return error_set_param(error, ERR_IO, "model", "'%.200s' was written over while it is in use",
                               gguf_path(watch->gguf));
    if (!gguf_check_intact(watch->gguf, error)) return false;
    *ret_news = watch->news[0] ? watch->news : NULL;
    return true;
}
