/* SPDX-License-Identifier: Apache-2.0 */
/* A model of one file or of several: finding the parts, joining their tensors. */
#include "engine/model/gguf_guard.h"
#include "engine/model/gguf_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PARTS = 1024 };

struct Gguf {
    GgufPart *parts; /* the first has the metadata */
    uint32_t n_parts;
    uint64_t n_bytes;
    GgufTensor *tensors; /* of all parts */
    size_t n_tensors;
    const GgufTensor **tensor_sorted; /* by name */
};

/* Opens part i of the n that there must be: from memory, or from files with i in their names. */
typedef struct PartSource {
    bool (*open)(const struct PartSource *source, uint32_t i, GgufPart *part, Error *error);
    uint32_t n;
    const GgufBytes *bytes; /* [n] */
    const char *path;       /* of any part */
} PartSource;

/* ---- what a part says of itself ---- */

typedef struct SplitKeys {
    uint32_t no, count;
    uint32_t n_tensors; /* of all parts */
} SplitKeys;

static bool fail_key(const GgufPart *part, const char *key, ErrorCode code, Error *error, const char *fmt, ...)
    LW_PRINTF(5, 6);
static bool fail_key(const GgufPart *part, const char *key, ErrorCode code, Error *error, const char *fmt, ...)
{
    char why[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    const GgufKv *kv = gguf_part_find(part, key);
    GgufReader r = {.part = part, .kind = "key", .start = kv ? kv->offset : 0, .error = error};
    r.name = (GgufString){key, strlen(key)};
    return gguf_fail(&r, code, "%s", why);
}

static bool read_split_key(const GgufPart *part, const char *key, uint32_t *value, Error *error)
{
    const GgufKv *kv = gguf_part_find(part, key);
    if (!kv) return fail_key(part, key, ERR_INVALID, error, "missing, which a model of several files must have");
    return gguf_kv_read_u32(part->path, kv, key, value, error);
}

/* A file without the keys is one of one. */
static bool read_split(const GgufPart *part, SplitKeys *ret, Error *error)
{
    *ret = (SplitKeys){0, 1, (uint32_t)part->n_tensors};
    if (!gguf_part_find(part, "split.count")) return true;
    if (!read_split_key(part, "split.count", &ret->count, error)) return false;
    if (ret->count <= 1) {
        ret->count = 1;
        return true;
    }
    return read_split_key(part, "split.no", &ret->no, error) &&
           read_split_key(part, "split.tensors.count", &ret->n_tensors, error);
}

static bool check_split(const GgufPart *part, uint32_t no, const SplitKeys *first, Error *error)
{
    SplitKeys found;
    if (!read_split(part, &found, error)) return false;
    if (found.no != no)
        return fail_key(part, "split.no", ERR_INVALID, error, "%u, where file %u must have %u", found.no, no + 1, no);
    if (found.count != first->count)
        return fail_key(part, "split.count", ERR_INVALID, error, "%u, but the first file has %u", found.count,
                        first->count);
    if (found.n_tensors != first->n_tensors)
        return fail_key(part, "split.tensors.count", ERR_INVALID, error, "%u, but the first file has %u",
                        found.n_tensors, first->n_tensors);
    return true;
}

/* ---- joining ---- */

static int compare_tensor(const void *a, const void *b)
{
    const GgufTensor *x = *(const GgufTensor *const *)a, *y = *(const GgufTensor *const *)b;
    int order = gguf_compare_strings(x->name, y->name);
    return order ? order : (x > y) - (x < y);
}

static bool fail_twice(const Gguf *gguf, const GgufTensor *first, const GgufTensor *again, Error *error)
{
    GgufReader r = {.part = &gguf->parts[again->part], .kind = "tensor", .error = error};
    r.name = again->name;
    r.start = again->file_offset;
    if (first->part == again->part) return gguf_fail(&r, ERR_INVALID, "the name is there twice");
    return gguf_fail(&r, ERR_INVALID, "the name is there twice, also in file %u", first->part + 1);
}

static bool join_tensors(Gguf *gguf, Error *error)
{
    for (uint32_t p = 0; p < gguf->n_parts; p++) gguf->n_tensors += gguf->parts[p].n_tensors;
    gguf->tensors = calloc(gguf->n_tensors + 1, sizeof *gguf->tensors);
    gguf->tensor_sorted = calloc(gguf->n_tensors + 1, sizeof *gguf->tensor_sorted);
    if (!gguf->tensors || !gguf->tensor_sorted)
        return error_set(error, ERR_NO_MEMORY, "%s: no memory for %zu tensors", gguf_path_end(gguf->parts[0].path),
                         gguf->n_tensors);
    size_t n = 0;
    for (uint32_t p = 0; p < gguf->n_parts; p++) {
        GgufPart *part = &gguf->parts[p];
        gguf->n_bytes += part->n_bytes;
        for (size_t i = 0; i < part->n_tensors; i++, n++) {
            gguf->tensors[n] = part->tensors[i];
            gguf->tensors[n].part = p;
            gguf->tensor_sorted[n] = &gguf->tensors[n];
        }
        free(part->tensors);
        part->tensors = NULL;
    }
    qsort(gguf->tensor_sorted, gguf->n_tensors, sizeof *gguf->tensor_sorted, compare_tensor);
    for (size_t i = 1; i < gguf->n_tensors; i++)
        if (!gguf_compare_strings(gguf->tensor_sorted[i - 1]->name, gguf->tensor_sorted[i]->name))
            return fail_twice(gguf, gguf->tensor_sorted[i - 1], gguf->tensor_sorted[i], error);
    return true;
}

static bool open_others(Gguf *gguf, const PartSource *source, const SplitKeys *split, Error *error)
{
    for (; gguf->n_parts < split->count; gguf->n_parts++) {
        GgufPart *part = &gguf->parts[gguf->n_parts];
        if (!source->open(source, gguf->n_parts, part, error)) return false;
        if (gguf_part_parse(part, error) && check_split(part, gguf->n_parts, split, error)) continue;
        gguf_part_done(part);
        return false;
    }
    return true;
}

static bool check_count(const GgufPart *first, uint32_t count, uint32_t n, Error *error)
{
    if (count == n) return true;
    return fail_key(first, "split.count", ERR_INVALID, error,
                    n > 1 ? "%u, but the name is that of one of %u files"
                          : "%u, but the name does not end as in '-00001-of-%05u.gguf'",
                    count, n > 1 ? n : count);
}

/* The first part is the one that counts; the others must say the same of the whole. */
static bool open_parts(Gguf *gguf, const PartSource *source, Error *error)
{
    GgufPart first = {0};
    SplitKeys split;
    if (!source->open(source, 0, &first, error)) return false;
    if (gguf_part_parse(&first, error) && read_split(&first, &split, error) &&
        check_count(&first, split.count, source->n, error)) {
        gguf->parts = calloc(split.count, sizeof *gguf->parts);
        if (!gguf->parts) error_set(error, ERR_NO_MEMORY, "%s: no memory", gguf_path_end(first.path));
    }
    if (!gguf->parts) {
        gguf_part_done(&first);
        return false;
    }
    gguf->parts[0] = first;
    gguf->n_parts = 1;
    if (!check_split(&first, 0, &split, error) || !open_others(gguf, source, &split, error) ||
        !join_tensors(gguf, error))
        return false;
    if (gguf->n_tensors == split.n_tensors) return true;
    return fail_key(&gguf->parts[0], "split.tensors.count", ERR_INVALID, error, "%u, but the %u files have %zu tensors",
                    split.n_tensors, split.count, gguf->n_tensors);
}

static bool open_source(const PartSource *source, Gguf **ret_gguf, Error *error)
{
    Gguf *gguf = calloc(1, sizeof *gguf);
    if (!gguf) return error_set(error, ERR_NO_MEMORY, "no memory to open a GGUF file");
    if (!open_parts(gguf, source, error)) {
        gguf_close(gguf);
        return false;
    }
    *ret_gguf = gguf;
    return true;
}

/* ---- from memory ---- */

static bool open_bytes(const PartSource *source, uint32_t i, GgufPart *part, Error *error)
{
    const GgufBytes *bytes = &source->bytes[i];
    char *path = strdup(bytes->name);
    if (!path) return error_set(error, ERR_NO_MEMORY, "%s: no memory", bytes->name);
    *part = (GgufPart){.base = bytes->data, .n_bytes = bytes->n, .path = path};
    return true;
}

bool gguf_open_memory_parts(const GgufBytes *parts, uint32_t n, Gguf **ret_gguf, Error *error)
{
    return open_source(&(PartSource){.open = open_bytes, .bytes = parts, .n = n}, ret_gguf, error);
}

bool gguf_open_memory(const void *bytes, size_t n, const char *name, Gguf **ret_gguf, Error *error)
{
    return gguf_open_memory_parts(&(GgufBytes){bytes, n, name}, 1, ret_gguf, error);
}

/* ---- from files ---- */

static bool map_file(int fd, const char *path, GgufPart *part, Error *error)
{
    struct stat st;
    if (fstat(fd, &st)) return error_set(error, ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return error_set(error, ERR_INVALID, "%s: not a regular file", path);
    if (st.st_size == 0) return error_set(error, ERR_INVALID, "%s: header at offset 0: the file is empty", path);
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return error_set(error, ERR_IO, "%s: cannot map: %s", path, strerror(errno));
    gguf_guard_add(map, (size_t)st.st_size);
    *part = (GgufPart){.base = map, .n_bytes = (uint64_t)st.st_size, .is_mapped = true};
    return true;
}

static bool open_file(const char *path, GgufPart *part, Error *error)
{
    /* O_NONBLOCK: a FIFO must be refused, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return error_set(error, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path, strerror(errno));
    bool mapped = map_file(fd, path, part, error);
    close(fd);
    if (!mapped) return false;
    part->path = strdup(path);
    if (part->path) return true;
    gguf_part_done(part);
    return error_set(error, ERR_NO_MEMORY, "%s: no memory", path);
}

static bool read_5_digits(const char *text, uint32_t *ret)
{
    *ret = 0;
    for (int i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        *ret = *ret * 10 + (uint32_t)(text[i] - '0');
    }
    return true;
}

/* PREFIX-00001-of-00003.gguf: the number of files, and the length of PREFIX; 1 for any other name. */
static uint32_t count_in_name(const char *path, size_t *ret_n_prefix)
{
    const char sample[] = "-00001-of-00003.gguf";
    size_t n = strlen(path), n_end = sizeof sample - 1;
    uint32_t no, count;
    if (n <= n_end) return 1;
    const char *end = path + n - n_end;
    *ret_n_prefix = n - n_end;
    bool is_part = end[0] == '-' && read_5_digits(end + 1, &no) && !strncmp(end + 6, "-of-", 4) &&
                   read_5_digits(end + 10, &count) && !strcmp(end + 15, ".gguf") && no >= 1 && no <= count;
    return is_part ? count : 1;
}

static bool open_named(const PartSource *source, uint32_t i, GgufPart *part, Error *error)
{
    if (source->n == 1) return open_file(source->path, part, error);
    size_t n_prefix = 0, size = strlen(source->path) + 1;
    count_in_name(source->path, &n_prefix);
    char *path = malloc(size);
    if (!path) return error_set(error, ERR_NO_MEMORY, "%s: no memory", source->path);
    memcpy(path, source->path, n_prefix);
    snprintf(path + n_prefix, size - n_prefix, "-%05u-of-%05u.gguf", i + 1, source->n);
    bool opened = open_file(path, part, error);
    free(path);
    return opened;
}

bool gguf_open(const char *path, Gguf **ret_gguf, Error *error)
{
    size_t n_prefix;
    PartSource source = {.open = open_named, .path = path, .n = count_in_name(path, &n_prefix)};
    if (source.n > MAX_PARTS)
        return error_set(error, ERR_TOO_LARGE, "%s: one of %u files; at most %d are read", path, source.n, MAX_PARTS);
    return open_source(&source, ret_gguf, error);
}

void gguf_close(Gguf *gguf)
{
    if (!gguf) return;
    for (uint32_t p = 0; p < gguf->n_parts; p++) gguf_part_done(&gguf->parts[p]);
    free(gguf->parts);
    free(gguf->tensors);
    free(gguf->tensor_sorted);
    free(gguf);
}

/* ---- accessors ---- */

const char *gguf_path(const Gguf *gguf)
{
    return gguf->parts[0].path;
}

uint32_t gguf_n_parts(const Gguf *gguf)
{
    return gguf->n_parts;
}

const GgufPart *gguf_part(const Gguf *gguf, uint32_t i)
{
    return &gguf->parts[i];
}

const char *gguf_part_path(const Gguf *gguf, uint32_t part)
{
    return gguf->parts[part].path;
}

bool gguf_check_intact(const Gguf *gguf, Error *error)
{
    for (uint32_t i = 0; i < gguf->n_parts; i++)
        if (gguf->parts[i].is_mapped && gguf_guard_is_hit(gguf->parts[i].base))
            return error_set_param(error, ERR_IO, "model",
                                   "the model file was cut, or its disk fails, while it is in use");
    return true;
}

uint64_t gguf_file_bytes(const Gguf *gguf)
{
    return gguf->n_bytes;
}

uint32_t gguf_version(const Gguf *gguf)
{
    return gguf->parts[0].version;
}

size_t gguf_n_kv(const Gguf *gguf)
{
    return gguf->parts[0].n_kv;
}

const GgufKv *gguf_kv_at(const Gguf *gguf, size_t i)
{
    return &gguf->parts[0].kv[i];
}

const GgufKv *gguf_find(const Gguf *gguf, const char *key)
{
    return gguf_part_find(&gguf->parts[0], key);
}

size_t gguf_n_tensors(const Gguf *gguf)
{
    return gguf->n_tensors;
}

const GgufTensor *gguf_tensor_at(const Gguf *gguf, size_t i)
{
    return &gguf->tensors[i];
}

const GgufTensor *gguf_tensor(const Gguf *gguf, const char *name)
{
    GgufString wanted = {name, strlen(name)};
    for (size_t low = 0, high = gguf->n_tensors; low < high;) {
        size_t middle = low + (high - low) / 2;
        int order = gguf_compare_strings(wanted, gguf->tensor_sorted[middle]->name);
        if (order == 0) return gguf->tensor_sorted[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
