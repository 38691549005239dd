/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are read in place");

enum {
    MIN_KV_BYTES = 8 + 1 + 4 + 1,             /* length, one byte of key, type, one byte of value */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* length, one byte of name, n_dims, one dim, type, offset */
    MAX_ENTRIES = 1 << 20,                    /* keys, and tensors: far beyond any model, so that tables stay small */
    MAX_NAME_BYTES = 65535,
    DEFAULT_ALIGNMENT = 32,
    MIN_ALIGNMENT = 8,
    MAX_ALIGNMENT = 1 << 24,
};

struct Gguf {
    const uint8_t *base;
    uint64_t n_bytes;
    bool is_mapped;
    char *path;
    uint32_t version;
    uint64_t data_start; /* where tensor offsets count from */
    size_t n_kv, n_tensors;
    GgufKv *kv;
    GgufTensor *tensors;
    const GgufKv **kv_sorted;         /* by name; sorting, unlike hashing, has no slow case an attacker could choose */
    const GgufTensor **tensor_sorted; /* by name */
};

/* Where we are in the file, and what an error is about. */
typedef struct Reader {
    const Gguf *gguf;
    uint64_t at;
    const char *kind; /* "header", "key", "tensor" */
    uint64_t index;
    uint64_t start;  /* offset of the subject */
    GgufString name; /* data NULL: not read yet */
    Error *error;
} Reader;

/* File names and keys go into one line for a person: no control bytes, no half code points, bounded. */
static void printable(char *text, size_t size, const char *bytes, size_t n)
{
    size_t take = n < size - 1 ? n : size - 1;
    for (size_t i = 0; i < take; i++) {
        unsigned char c = (unsigned char)bytes[i];
        text[i] = c < 0x20 || c >= 0x7F ? '?' : (char)c;
    }
    text[take] = '\0';
}

/* The end of a path tells files apart, and a long path must leave room for the reason. */
static const char *path_end(const char *path)
{
    size_t n = strlen(path);
    if (n <= 120) return path;
    path += n - 120;
    while ((*path & 0xC0) == 0x80) path++; /* never half a code point */
    return path;
}

static bool fail(Reader *r, ErrorCode code, const char *fmt, ...) LW_PRINTF(3, 4);
static bool fail(Reader *r, ErrorCode code, const char *fmt, ...)
{
    char why[200], name[101] = "", subject[140];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    if (r->name.data) {
        printable(name, sizeof name, r->name.data, r->name.n);
        snprintf(subject, sizeof subject, "%s '%s'", r->kind, name);
    } else if (!strcmp(r->kind, "header")) {
        snprintf(subject, sizeof subject, "header");
    } else {
        snprintf(subject, sizeof subject, "%s number %" PRIu64, r->kind, r->index);
    }
    return error_set_param(r->error, code, name, "%s: %s at offset %" PRIu64 ": %s", path_end(r->gguf->path), subject,
                           r->start, why);
}

static uint64_t bytes_left(const Reader *r)
{
    return r->gguf->n_bytes - r->at;
}

static bool read_bytes(Reader *r, void *out, size_t n, const char *what)
{
    if (bytes_left(r) < n)
        return fail(r, ERR_INVALID, "the file ends at %" PRIu64 ", inside the %s", r->gguf->n_bytes, what);
    memcpy(out, r->gguf->base + r->at, n);
    r->at += n;
    return true;
}

static bool read_u32(Reader *r, uint32_t *ret, const char *what)
{
    return read_bytes(r, ret, sizeof *ret, what);
}

static bool read_u64(Reader *r, uint64_t *ret, const char *what)
{
    return read_bytes(r, ret, sizeof *ret, what);
}

static bool read_string(Reader *r, GgufString *ret, const char *what)
{
    uint64_t n = 0;
    if (!read_u64(r, &n, what)) return false;
    if (n > bytes_left(r))
        return fail(r, ERR_INVALID, "%s of %" PRIu64 " bytes, but the file has %" PRIu64 " left", what, n,
                    bytes_left(r));
    *ret = (GgufString){(const char *)r->gguf->base + r->at, (size_t)n};
    r->at += n;
    return true;
}

static void begin(Reader *r, const char *kind, uint64_t index)
{
    r->kind = kind;
    r->index = index;
    r->start = r->at;
    r->name = (GgufString){0};
}

static bool read_name(Reader *r, GgufString *ret)
{
    GgufString name = {0};
    if (!read_string(r, &name, "name")) return false;
    if (name.n == 0 || name.n > MAX_NAME_BYTES)
        return fail(r, ERR_INVALID, "name of %zu bytes; 1 to %d are allowed", name.n, (int)MAX_NAME_BYTES);
    r->name = name;
    *ret = name;
    return true;
}

/* ---- header ---- */

static bool check_count(Reader *r, const char *what, uint64_t count, uint64_t min_bytes)
{
    if (count > bytes_left(r) / min_bytes)
        return fail(r, ERR_INVALID, "%" PRIu64 " %s cannot fit in the %" PRIu64 " bytes that follow", count, what,
                    bytes_left(r));
    if (count > MAX_ENTRIES)
        return fail(r, ERR_TOO_LARGE, "%" PRIu64 " %s; at most %d are allowed", count, what, (int)MAX_ENTRIES);
    return true;
}

static bool read_header(Reader *r, Gguf *gguf)
{
    char magic[4];
    uint64_t n_tensors = 0, n_kv = 0;
    begin(r, "header", 0);
    if (!read_bytes(r, magic, sizeof magic, "magic")) return false;
    if (memcmp(magic, "GGUF", 4)) return fail(r, ERR_INVALID, "not a GGUF file (no magic)");
    if (!read_u32(r, &gguf->version, "version")) return false;
    if (gguf->version && !(gguf->version & 0xFFFF))
        return fail(r, ERR_UNSUPPORTED, "a big-endian file; only little-endian ones are read");
    if (gguf->version != 2 && gguf->version != 3)
        return fail(r, ERR_UNSUPPORTED, "GGUF version %" PRIu32 "; versions 2 and 3 are read", gguf->version);
    if (!read_u64(r, &n_tensors, "tensor count") || !read_u64(r, &n_kv, "key count")) return false;
    if (!check_count(r, "tensors", n_tensors, MIN_TENSOR_BYTES) || !check_count(r, "keys", n_kv, MIN_KV_BYTES))
        return false;
    gguf->n_kv = (size_t)n_kv;
    gguf->n_tensors = (size_t)n_tensors;
    gguf->kv = calloc(gguf->n_kv + 1, sizeof *gguf->kv);
    gguf->kv_sorted = calloc(gguf->n_kv + 1, sizeof *gguf->kv_sorted);
    gguf->tensors = calloc(gguf->n_tensors + 1, sizeof *gguf->tensors);
    gguf->tensor_sorted = calloc(gguf->n_tensors + 1, sizeof *gguf->tensor_sorted);
    if (!gguf->kv || !gguf->kv_sorted || !gguf->tensors || !gguf->tensor_sorted)
        return fail(r, ERR_NO_MEMORY, "no memory for %zu keys and %zu tensors", gguf->n_kv, gguf->n_tensors);
    return true;
}

/* ---- metadata ---- */

static const uint8_t scalar_bytes[] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

static bool read_type(Reader *r, GgufType *ret, const char *what)
{
    uint32_t type = 0;
    if (!read_u32(r, &type, what)) return false;
    if (type > GGUF_F64) return fail(r, ERR_INVALID, "%s %" PRIu32 " is unknown", what, type);
    *ret = (GgufType)type;
    return true;
}

static bool read_values(Reader *r, GgufKv *kv)
{
    kv->data = r->gguf->base + r->at;
    if (kv->type == GGUF_STRING) {
        if (kv->n > bytes_left(r) / sizeof(uint64_t))
            return fail(r, ERR_INVALID, "array of %" PRIu64 " strings cannot fit in the %" PRIu64 " bytes left", kv->n,
                        bytes_left(r));
        for (uint64_t i = 0; i < kv->n; i++) {
            GgufString text;
            if (!read_string(r, &text, "string")) return false;
        }
        return true;
    }
    uint64_t size = scalar_bytes[kv->type];
    if (kv->n > bytes_left(r) / size)
        return fail(r, ERR_INVALID, "%" PRIu64 " values of %" PRIu64 " bytes cannot fit in the %" PRIu64 " bytes left",
                    kv->n, size, bytes_left(r));
    r->at += kv->n * size;
    return true;
}

static bool read_kv(Reader *r, uint64_t index, GgufKv *kv)
{
    begin(r, "key", index);
    kv->offset = r->at;
    kv->n = 1;
    if (!read_name(r, &kv->key) || !read_type(r, &kv->type, "value type")) return false;
    if (kv->type == GGUF_ARRAY) {
        kv->is_array = true;
        if (!read_type(r, &kv->type, "element type") || !read_u64(r, &kv->n, "array length")) return false;
        if (kv->type == GGUF_ARRAY) return fail(r, ERR_UNSUPPORTED, "an array of arrays");
    }
    return read_values(r, kv);
}

static int compare_strings(GgufString a, GgufString b)
{
    int order = memcmp(a.data, b.data, a.n < b.n ? a.n : b.n);
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

/* Equal names keep file order, so that the error names the later one. */
static int compare_kv(const void *a, const void *b)
{
    const GgufKv *x = *(const GgufKv *const *)a, *y = *(const GgufKv *const *)b;
    int order = compare_strings(x->key, y->key);
    return order ? order : (x > y) - (x < y);
}

static bool read_metadata(Reader *r, Gguf *gguf)
{
    for (size_t i = 0; i < gguf->n_kv; i++) {
        if (!read_kv(r, i, &gguf->kv[i])) return false;
        gguf->kv_sorted[i] = &gguf->kv[i];
    }
    qsort(gguf->kv_sorted, gguf->n_kv, sizeof *gguf->kv_sorted, compare_kv);
    for (size_t i = 1; i < gguf->n_kv; i++) {
        const GgufKv *kv = gguf->kv_sorted[i];
        if (compare_strings(gguf->kv_sorted[i - 1]->key, kv->key)) continue;
        r->name = kv->key;
        r->start = kv->offset;
        return fail(r, ERR_INVALID, "the key is there twice");
    }
    return true;
}

static bool read_alignment(Reader *r, const Gguf *gguf, uint64_t *ret)
{
    const GgufKv *kv = gguf_find(gguf, "general.alignment");
    *ret = DEFAULT_ALIGNMENT;
    if (!kv) return true;
    r->kind = "key";
    r->name = kv->key;
    r->start = kv->offset;
    if (kv->is_array || kv->type != GGUF_U32) return fail(r, ERR_INVALID, "must be a u32");
    uint64_t alignment = (uint64_t)gguf_int_at(kv, 0);
    if (alignment < MIN_ALIGNMENT || alignment > MAX_ALIGNMENT || (alignment & (alignment - 1)))
        return fail(r, ERR_INVALID, "%" PRIu64 " is no power of two from %d to %d", alignment, (int)MIN_ALIGNMENT,
                    (int)MAX_ALIGNMENT);
    *ret = alignment;
    return true;
}

/* ---- tensors ---- */

/* Types of the format that longwave does not read: named in the error, since people know them by name. */
static const struct {
    uint32_t id;
    const char *name;
} unread_types[] = {
    {6, "Q5_0"},   {7, "Q5_1"},     {9, "Q8_1"},    {10, "Q2_K"},    {11, "Q3_K"},  {12, "Q4_K"},   {13, "Q5_K"},
    {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"},
    {22, "IQ2_S"}, {23, "IQ4_XS"},  {24, "I8"},     {25, "I16"},     {26, "I32"},   {27, "I64"},    {28, "F64"},
    {29, "IQ1_M"}, {34, "TQ1_0"},   {35, "TQ2_0"},  {39, "MXFP4"},
};

static bool check_tensor_type(Reader *r, uint32_t type)
{
    if (dtype_info((DType)type)) return true;
    for (size_t i = 0; i < sizeof unread_types / sizeof *unread_types; i++)
        if (unread_types[i].id == type)
            return fail(r, ERR_UNSUPPORTED, "type %s (%" PRIu32 ") is not supported", unread_types[i].name, type);
    return fail(r, ERR_INVALID, "type %" PRIu32 " is unknown", type);
}

static bool read_dims(Reader *r, TensorView *view)
{
    uint64_t n_elements = 1;
    if (!read_u32(r, &view->n_dims, "number of dimensions")) return false;
    if (view->n_dims < 1 || view->n_dims > TENSOR_MAX_DIMS)
        return fail(r, ERR_INVALID, "%" PRIu32 " dimensions; 1 to %d are allowed", view->n_dims, (int)TENSOR_MAX_DIMS);
    for (uint32_t d = 0; d < TENSOR_MAX_DIMS; d++) {
        view->dim[d] = 1;
        if (d >= view->n_dims) continue;
        if (!read_u64(r, &view->dim[d], "dimensions")) return false;
        if (view->dim[d] == 0) return fail(r, ERR_INVALID, "dimension %" PRIu32 " is 0", d);
        if (__builtin_mul_overflow(n_elements, view->dim[d], &n_elements) || n_elements > INT64_MAX)
            return fail(r, ERR_INVALID,
                        "the product of the dimensions overflows at dimension %" PRIu32 " (%" PRIu64 ")", d,
                        view->dim[d]);
    }
    return true;
}

static bool read_tensor_offset(Reader *r, uint64_t alignment, GgufTensor *tensor)
{
    uint64_t offset = 0;
    if (!read_u64(r, &offset, "offset")) return false;
    if (offset % alignment)
        return fail(r, ERR_INVALID, "data offset %" PRIu64 " is no multiple of the alignment %" PRIu64, offset,
                    alignment);
    if (offset > r->gguf->n_bytes)
        return fail(r, ERR_INVALID, "data offset %" PRIu64 " lies beyond the file's %" PRIu64 " bytes", offset,
                    r->gguf->n_bytes);
    tensor->file_offset = offset; /* from the data's start, which is known once the directory has been read */
    return true;
}

static bool read_tensor(Reader *r, uint64_t index, uint64_t alignment, GgufTensor *tensor)
{
    TensorView *view = &tensor->view;
    uint32_t type = 0;
    begin(r, "tensor", index);
    if (!read_name(r, &tensor->name) || !read_dims(r, view) || !read_u32(r, &type, "type")) return false;
    if (!check_tensor_type(r, type)) return false;
    view->type = (DType)type;
    const DTypeInfo *info = dtype_info(view->type);
    if (view->dim[0] % info->block_elements)
        return fail(r, ERR_INVALID, "rows of %" PRIu64 " elements are no multiple of %s's block of %" PRIu32,
                    view->dim[0], info->name, info->block_elements);
    uint64_t n_blocks = view->dim[0] / info->block_elements * view->dim[1] * view->dim[2] * view->dim[3];
    if (__builtin_mul_overflow(n_blocks, info->block_bytes, &tensor->n_bytes) || tensor->n_bytes > r->gguf->n_bytes)
        return fail(r, ERR_INVALID, "%" PRIu64 " blocks of %s are more than the file's %" PRIu64 " bytes", n_blocks,
                    info->name, r->gguf->n_bytes);
    return read_tensor_offset(r, alignment, tensor);
}

static int compare_tensor(const void *a, const void *b)
{
    const GgufTensor *x = *(const GgufTensor *const *)a, *y = *(const GgufTensor *const *)b;
    int order = compare_strings(x->name, y->name);
    return order ? order : (x > y) - (x < y);
}

static int compare_place(const void *a, const void *b)
{
    const GgufTensor *x = *(const GgufTensor *const *)a, *y = *(const GgufTensor *const *)b;
    if (x->file_offset != y->file_offset) return x->file_offset < y->file_offset ? -1 : 1;
    return (x > y) - (x < y);
}

/* About a tensor's data, after its directory entry was left behind. */
static void begin_data(Reader *r, const GgufTensor *tensor)
{
    r->kind = "tensor";
    r->name = tensor->name;
    r->start = tensor->file_offset;
}

static bool place_tensors(Reader *r, Gguf *gguf, uint64_t alignment)
{
    gguf->data_start = (r->at + alignment - 1) / alignment * alignment;
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        GgufTensor *tensor = &gguf->tensors[i];
        tensor->file_offset += gguf->data_start;
        begin_data(r, tensor);
        if (tensor->file_offset > gguf->n_bytes || tensor->n_bytes > gguf->n_bytes - tensor->file_offset)
            return fail(r, ERR_INVALID, "%" PRIu64 " bytes of data, but the file ends at %" PRIu64, tensor->n_bytes,
                        gguf->n_bytes);
        tensor->view.data = gguf->base + tensor->file_offset;
        gguf->tensor_sorted[i] = tensor;
    }
    qsort(gguf->tensor_sorted, gguf->n_tensors, sizeof *gguf->tensor_sorted, compare_place);
    for (size_t i = 1; i < gguf->n_tensors; i++) {
        const GgufTensor *before = gguf->tensor_sorted[i - 1], *tensor = gguf->tensor_sorted[i];
        if (tensor->file_offset - before->file_offset >= before->n_bytes) continue;
        char name[101];
        printable(name, sizeof name, before->name.data, before->name.n);
        begin_data(r, tensor);
        return fail(r, ERR_INVALID, "the data overlap those of '%s'", name);
    }
    return true;
}

static bool read_tensors(Reader *r, Gguf *gguf)
{
    uint64_t alignment = 0;
    if (!read_alignment(r, gguf, &alignment)) return false;
    for (size_t i = 0; i < gguf->n_tensors; i++)
        if (!read_tensor(r, i, alignment, &gguf->tensors[i])) return false;
    if (!place_tensors(r, gguf, alignment)) return false;
    qsort(gguf->tensor_sorted, gguf->n_tensors, sizeof *gguf->tensor_sorted, compare_tensor);
    for (size_t i = 1; i < gguf->n_tensors; i++) {
        if (compare_strings(gguf->tensor_sorted[i - 1]->name, gguf->tensor_sorted[i]->name)) continue;
        begin_data(r, gguf->tensor_sorted[i]);
        return fail(r, ERR_INVALID, "the name is there twice");
    }
    return true;
}

/* ---- open and close ---- */

static bool parse(Gguf *gguf, Error *error)
{
    Reader r = {.gguf = gguf, .error = error};
    return read_header(&r, gguf) && read_metadata(&r, gguf) && read_tensors(&r, gguf);
}

bool gguf_open_memory(const void *bytes, size_t n, const char *name, Gguf **ret_gguf, Error *error)
{
    Gguf *gguf = calloc(1, sizeof *gguf);
    char *path = strdup(name);
    if (!gguf || !path) {
        free(gguf);
        free(path);
        return error_set(error, ERR_NO_MEMORY, "%s: no memory", name);
    }
    *gguf = (Gguf){.base = bytes, .n_bytes = n, .path = path};
    if (!parse(gguf, error)) {
        gguf_close(gguf);
        return false;
    }
    *ret_gguf = gguf;
    return true;
}

static bool map_file(int fd, const char *path, void **ret_map, size_t *ret_n, Error *error)
{
    struct stat st;
    if (fstat(fd, &st)) return error_set(error, ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return error_set(error, ERR_INVALID, "%s: not a regular file", path);
    if (st.st_size == 0) return error_set(error, ERR_INVALID, "%s: header at offset 0: the file is empty", path);
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return error_set(error, ERR_IO, "%s: cannot map: %s", path, strerror(errno));
    *ret_map = map;
    *ret_n = (size_t)st.st_size;
    return true;
}

bool gguf_open(const char *path, Gguf **ret_gguf, Error *error)
{
    /* O_NONBLOCK: a FIFO must be refused, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return error_set(error, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path, strerror(errno));
    void *map = NULL;
    size_t n = 0;
    bool mapped = map_file(fd, path, &map, &n, error);
    close(fd);
    if (!mapped) return false;
    Gguf *gguf;
    if (!gguf_open_memory(map, n, path, &gguf, error)) {
        munmap(map, n);
        return false;
    }
    gguf->is_mapped = true;
    *ret_gguf = gguf;
    return true;
}

void gguf_close(Gguf *gguf)
{
    if (!gguf) return;
    if (gguf->is_mapped) munmap((void *)gguf->base, gguf->n_bytes);
    free(gguf->kv);
    free(gguf->kv_sorted);
    free(gguf->tensors);
    free(gguf->tensor_sorted);
    free(gguf->path);
    free(gguf);
}

/* ---- accessors ---- */

const char *gguf_path(const Gguf *gguf)
{
    return gguf->path;
}

uint64_t gguf_file_bytes(const Gguf *gguf)
{
    return gguf->n_bytes;
}

uint32_t gguf_version(const Gguf *gguf)
{
    return gguf->version;
}

size_t gguf_n_kv(const Gguf *gguf)
{
    return gguf->n_kv;
}

const GgufKv *gguf_kv_at(const Gguf *gguf, size_t i)
{
    return &gguf->kv[i];
}

size_t gguf_n_tensors(const Gguf *gguf)
{
    return gguf->n_tensors;
}

const GgufTensor *gguf_tensor_at(const Gguf *gguf, size_t i)
{
    return &gguf->tensors[i];
}

const GgufKv *gguf_find(const Gguf *gguf, const char *key)
{
    GgufString wanted = {key, strlen(key)};
    for (size_t low = 0, high = gguf->n_kv; low < high;) {
        size_t middle = low + (high - low) / 2;
        int order = compare_strings(wanted, gguf->kv_sorted[middle]->key);
        if (order == 0) return gguf->kv_sorted[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const GgufTensor *gguf_tensor(const Gguf *gguf, const char *name)
{
    GgufString wanted = {name, strlen(name)};
    for (size_t low = 0, high = gguf->n_tensors; low < high;) {
        size_t middle = low + (high - low) / 2;
        int order = compare_strings(wanted, gguf->tensor_sorted[middle]->name);
        if (order == 0) return gguf->tensor_sorted[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
