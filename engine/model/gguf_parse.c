/* SPDX-License-Identifier: Apache-2.0 */
/* One file: header, metadata, tensor directory. */
#include "engine/model/gguf_guard.h"
#include "engine/model/gguf_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are read in place");

enum {
    MIN_KV_BYTES = 8 + 1 + 4 + 1,             /* length, one byte of key, type, one byte of value */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* length, one byte of name, n_dims, one dim, type, offset */
    MAX_ENTRIES = 1 << 20,                    /* keys, and tensors: far beyond any model, so that tables stay small */
    DEFAULT_ALIGNMENT = 32,
    MIN_ALIGNMENT = 8,
    MAX_ALIGNMENT = 1 << 24,
};

/* ---- header ---- */

static bool check_count(GgufReader *r, const char *what, uint64_t count, uint64_t min_bytes)
{
    if (count > gguf_bytes_left(r) / min_bytes)
        return gguf_fail(r, ERR_INVALID, "%" PRIu64 " %s cannot fit in the %" PRIu64 " bytes that follow", count, what,
                         gguf_bytes_left(r));
    if (count > MAX_ENTRIES)
        return gguf_fail(r, ERR_TOO_LARGE, "%" PRIu64 " %s; at most %d are allowed", count, what, (int)MAX_ENTRIES);
    return true;
}

static bool read_header(GgufReader *r, GgufPart *part)
{
    char magic[4];
    uint64_t n_tensors = 0, n_kv = 0;
    gguf_begin(r, "header", 0);
    if (!gguf_read_bytes(r, magic, sizeof magic, "magic")) return false;
    if (memcmp(magic, "GGUF", 4)) return gguf_fail(r, ERR_INVALID, "not a GGUF file (no magic)");
    if (!gguf_read_u32(r, &part->version, "version")) return false;
    if (part->version && !(part->version & 0xFFFF))
        return gguf_fail(r, ERR_UNSUPPORTED, "a big-endian file; only little-endian ones are read");
    if (part->version != 2 && part->version != 3)
        return gguf_fail(r, ERR_UNSUPPORTED, "GGUF version %" PRIu32 "; versions 2 and 3 are read", part->version);
    if (!gguf_read_u64(r, &n_tensors, "tensor count") || !gguf_read_u64(r, &n_kv, "key count")) return false;
    if (!check_count(r, "tensors", n_tensors, MIN_TENSOR_BYTES) || !check_count(r, "keys", n_kv, MIN_KV_BYTES))
        return false;
    part->n_kv = (size_t)n_kv;
    part->n_tensors = (size_t)n_tensors;
    part->kv = calloc(part->n_kv + 1, sizeof *part->kv);
    part->kv_sorted = calloc(part->n_kv + 1, sizeof *part->kv_sorted);
    part->tensors = calloc(part->n_tensors + 1, sizeof *part->tensors);
    if (!part->kv || !part->kv_sorted || !part->tensors)
        return gguf_fail(r, ERR_NO_MEMORY, "no memory for %zu keys and %zu tensors", part->n_kv, part->n_tensors);
    return true;
}

/* ---- metadata ---- */

static const uint8_t scalar_bytes[] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

static bool read_type(GgufReader *r, GgufType *ret, const char *what)
{
    uint32_t type = 0;
    if (!gguf_read_u32(r, &type, what)) return false;
    if (type > GGUF_F64) return gguf_fail(r, ERR_INVALID, "%s %" PRIu32 " is unknown", what, type);
    *ret = (GgufType)type;
    return true;
}

static bool read_values(GgufReader *r, GgufKv *kv)
{
    kv->data = r->part->base + r->at;
    if (kv->type == GGUF_STRING) {
        if (kv->n > gguf_bytes_left(r) / sizeof(uint64_t))
            return gguf_fail(r, ERR_INVALID, "array of %" PRIu64 " strings cannot fit in the %" PRIu64 " bytes left",
                             kv->n, gguf_bytes_left(r));
        for (uint64_t i = 0; i < kv->n; i++) {
            GgufString text;
            if (!gguf_read_string(r, &text, "string")) return false;
        }
        return true;
    }
    uint64_t size = scalar_bytes[kv->type];
    if (kv->n > gguf_bytes_left(r) / size)
        return gguf_fail(r, ERR_INVALID,
                         "%" PRIu64 " values of %" PRIu64 " bytes cannot fit in the %" PRIu64 " bytes left", kv->n,
                         size, gguf_bytes_left(r));
    r->at += kv->n * size;
    return true;
}

static bool read_kv(GgufReader *r, uint64_t index, GgufKv *kv)
{
    gguf_begin(r, "key", index);
    kv->offset = r->at;
    kv->n = 1;
    if (!gguf_read_name(r, &kv->key) || !read_type(r, &kv->type, "value type")) return false;
    if (kv->type == GGUF_ARRAY) {
        kv->is_array = true;
        if (!read_type(r, &kv->type, "element type") || !gguf_read_u64(r, &kv->n, "array length")) return false;
        if (kv->type == GGUF_ARRAY) return gguf_fail(r, ERR_UNSUPPORTED, "an array of arrays");
    }
    return read_values(r, kv);
}

/* Equal names keep file order, so that the error names the later one. */
static int compare_kv(const void *a, const void *b)
{
    const GgufKv *x = *(const GgufKv *const *)a, *y = *(const GgufKv *const *)b;
    int order = gguf_compare_strings(x->key, y->key);
    return order ? order : (x > y) - (x < y);
}

static bool read_metadata(GgufReader *r, GgufPart *part)
{
    for (size_t i = 0; i < part->n_kv; i++) {
        if (!read_kv(r, i, &part->kv[i])) return false;
        part->kv_sorted[i] = &part->kv[i];
    }
    qsort(part->kv_sorted, part->n_kv, sizeof *part->kv_sorted, compare_kv);
    for (size_t i = 1; i < part->n_kv; i++) {
        const GgufKv *kv = part->kv_sorted[i];
        if (gguf_compare_strings(part->kv_sorted[i - 1]->key, kv->key)) continue;
        r->name = kv->key;
        r->start = kv->offset;
        return gguf_fail(r, ERR_INVALID, "the key is there twice");
    }
    return true;
}

static bool read_alignment(GgufReader *r, const GgufPart *part, uint64_t *ret)
{
    const GgufKv *kv = gguf_part_find(part, "general.alignment");
    *ret = DEFAULT_ALIGNMENT;
    if (!kv) return true;
    r->kind = "key";
    r->name = kv->key;
    r->start = kv->offset;
    if (kv->is_array || kv->type != GGUF_U32) return gguf_fail(r, ERR_INVALID, "must be a u32");
    uint64_t alignment = (uint64_t)gguf_int_at(kv, 0);
    if (alignment < MIN_ALIGNMENT || alignment > MAX_ALIGNMENT || (alignment & (alignment - 1)))
        return gguf_fail(r, ERR_INVALID, "%" PRIu64 " is no power of two from %d to %d", alignment, (int)MIN_ALIGNMENT,
                         (int)MAX_ALIGNMENT);
    *ret = alignment;
    return true;
}

/* ---- tensors ---- */

static bool read_dims(GgufReader *r, TensorView *view)
{
    uint64_t n_elements = 1;
    if (!gguf_read_u32(r, &view->n_dims, "number of dimensions")) return false;
    if (view->n_dims < 1 || view->n_dims > TENSOR_MAX_DIMS)
        return gguf_fail(r, ERR_INVALID, "%" PRIu32 " dimensions; 1 to %d are allowed", view->n_dims,
                         (int)TENSOR_MAX_DIMS);
    for (uint32_t d = 0; d < TENSOR_MAX_DIMS; d++) {
        view->dim[d] = 1;
        if (d >= view->n_dims) continue;
        if (!gguf_read_u64(r, &view->dim[d], "dimensions")) return false;
        if (view->dim[d] == 0) return gguf_fail(r, ERR_INVALID, "dimension %" PRIu32 " is 0", d);
        if (__builtin_mul_overflow(n_elements, view->dim[d], &n_elements) || n_elements > INT64_MAX)
            return gguf_fail(r, ERR_INVALID,
                             "the product of the dimensions overflows at dimension %" PRIu32 " (%" PRIu64 ")", d,
                             view->dim[d]);
    }
    return true;
}

static bool read_tensor_offset(GgufReader *r, uint64_t alignment, GgufTensor *tensor)
{
    uint64_t offset = 0;
    if (!gguf_read_u64(r, &offset, "offset")) return false;
    if (offset % alignment)
        return gguf_fail(r, ERR_INVALID, "data offset %" PRIu64 " is no multiple of the alignment %" PRIu64, offset,
                         alignment);
    if (offset > r->part->n_bytes)
        return gguf_fail(r, ERR_INVALID, "data offset %" PRIu64 " lies beyond the file's %" PRIu64 " bytes", offset,
                         r->part->n_bytes);
    tensor->file_offset = offset; /* from the data's start, which is known once the directory has been read */
    return true;
}

static bool read_tensor(GgufReader *r, uint64_t index, uint64_t alignment, GgufTensor *tensor)
{
    TensorView *view = &tensor->view;
    uint32_t type = 0;
    gguf_begin(r, "tensor", index);
    if (!gguf_read_name(r, &tensor->name) || !read_dims(r, view) || !gguf_read_u32(r, &type, "type")) return false;
    view->type = (DType)type;
    const DTypeInfo *info = dtype_known(type);
    if (!info) return read_tensor_offset(r, alignment, tensor); /* of unknown size */
    if (view->dim[0] % info->block_elements)
        return gguf_fail(r, ERR_INVALID, "rows of %" PRIu64 " elements are no multiple of %s's block of %" PRIu32,
                         view->dim[0], info->name, info->block_elements);
    uint64_t n_blocks = view->dim[0] / info->block_elements * view->dim[1] * view->dim[2] * view->dim[3];
    if (__builtin_mul_overflow(n_blocks, info->block_bytes, &tensor->n_bytes) || tensor->n_bytes > r->part->n_bytes)
        return gguf_fail(r, ERR_INVALID, "%" PRIu64 " blocks of %s are more than the file's %" PRIu64 " bytes",
                         n_blocks, info->name, r->part->n_bytes);
    return read_tensor_offset(r, alignment, tensor);
}

static int compare_place(const void *a, const void *b)
{
    const GgufTensor *x = *(const GgufTensor *const *)a, *y = *(const GgufTensor *const *)b;
    if (x->file_offset != y->file_offset) return x->file_offset < y->file_offset ? -1 : 1;
    return (x > y) - (x < y);
}

/* About a tensor's data, after its directory entry was left behind. */
static void begin_data(GgufReader *r, const GgufTensor *tensor)
{
    r->kind = "tensor";
    r->name = tensor->name;
    r->start = tensor->file_offset;
}

/* The data of tensors in order of their place must not overlap. */
static bool check_overlap(GgufReader *r, const GgufPart *part)
{
    const GgufTensor **by_place = calloc(part->n_tensors + 1, sizeof(const GgufTensor *));
    if (!by_place) return gguf_fail(r, ERR_NO_MEMORY, "no memory for %zu tensors", part->n_tensors);
    for (size_t i = 0; i < part->n_tensors; i++) by_place[i] = &part->tensors[i];
    qsort(by_place, part->n_tensors, sizeof *by_place, compare_place);
    bool apart = true;
    for (size_t i = 1; apart && i < part->n_tensors; i++) {
        const GgufTensor *before = by_place[i - 1], *tensor = by_place[i];
        if (tensor->file_offset - before->file_offset >= before->n_bytes) continue;
        char name[101];
        gguf_printable(name, sizeof name, before->name);
        begin_data(r, tensor);
        apart = gguf_fail(r, ERR_INVALID, "the data overlap those of '%s'", name);
    }
    free(by_place);
    return apart;
}

static bool place_tensors(GgufReader *r, GgufPart *part, uint64_t alignment)
{
    uint64_t data_start = (r->at + alignment - 1) / alignment * alignment; /* tensor offsets count from here */
    for (size_t i = 0; i < part->n_tensors; i++) {
        GgufTensor *tensor = &part->tensors[i];
        tensor->file_offset += data_start;
        begin_data(r, tensor);
        if (tensor->file_offset > part->n_bytes || tensor->n_bytes > part->n_bytes - tensor->file_offset)
            return gguf_fail(r, ERR_INVALID, "%" PRIu64 " bytes of data, but the file ends at %" PRIu64,
                             tensor->n_bytes, part->n_bytes);
        tensor->view.data = part->base + tensor->file_offset;
    }
    return check_overlap(r, part);
}

static bool read_tensors(GgufReader *r, GgufPart *part)
{
    uint64_t alignment = 0;
    if (!read_alignment(r, part, &alignment)) return false;
    for (size_t i = 0; i < part->n_tensors; i++)
        if (!read_tensor(r, i, alignment, &part->tensors[i])) return false;
    return place_tensors(r, part, alignment);
}

bool gguf_part_parse(GgufPart *part, Error *error)
{
    GgufReader r = {.part = part, .error = error};
    return read_header(&r, part) && read_metadata(&r, part) && read_tensors(&r, part);
}

void gguf_part_done(GgufPart *part)
{
    if (part->is_mapped) {
        gguf_guard_remove(part->base);
        munmap((void *)part->base, part->n_bytes);
    }
    free(part->kv);
    free(part->kv_sorted);
    free(part->tensors);
    free(part->path);
}

const GgufKv *gguf_part_find(const GgufPart *part, const char *key)
{
    GgufString wanted = {key, strlen(key)};
    for (size_t low = 0, high = part->n_kv; low < high;) {
        size_t middle = low + (high - low) / 2;
        int order = gguf_compare_strings(wanted, part->kv_sorted[middle]->key);
        if (order == 0) return part->kv_sorted[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
