/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GGUF model (versions 2 and 3, little-endian) in one file or several, mapped read-only and never trusted: every
 * count, length, offset, alignment and product of dimensions is checked at open, so that what the accessors return is
 * safe to read. An error names the file, the key or tensor and the byte offset. Immutable after open; any thread.
 */
#pragma once
#include "base/error.h"
#include "base/tensor.h"

typedef struct Gguf Gguf;

/* The value types of metadata; the numbers are the file's. */
typedef enum GgufType {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
} GgufType;

/* "u8", ..., "string", as errors name them. */
const char *gguf_type_name(GgufType type);

/* Bytes inside the mapping; may hold any byte, no NUL at the end. */
typedef struct GgufString {
    const char *data;
    size_t n;
} GgufString;

/* A name for an error, which is one line for a person: no control bytes, cut to size. */
void gguf_printable(char *text, size_t size, GgufString bytes);

typedef struct GgufKv {
    GgufString key;
    GgufType type; /* of the value; of the elements when is_array */
    bool is_array;
    uint64_t n;          /* elements; 1 for a scalar */
    const uint8_t *data; /* raw little-endian values, unaligned; strings: u64 length + bytes, one after another */
    uint64_t offset;     /* of the key, in the file */
} GgufKv;

typedef struct GgufTensor {
    GgufString name;
    TensorView view; /* data points into the mapping; type may be any number, dtype_info says whether it can be used */
    uint64_t file_offset, n_bytes; /* n_bytes is 0 for a type of unknown size */
    uint32_t part;                 /* which file, from 0 */
} GgufTensor;

/* A path that ends in -00002-of-00003.gguf stands for all three files; the metadata are those of the first. */
LW_CHECK bool gguf_open(const char *path, Gguf **ret_gguf, Error *error);
/* For tests and fuzzing: parses bytes that the caller keeps alive; names stand in errors. */
typedef struct GgufBytes {
    const void *data;
    size_t n;
    const char *name;
} GgufBytes;
LW_CHECK bool gguf_open_memory_parts(const GgufBytes *parts, uint32_t n, Gguf **ret_gguf, Error *error); /* n >= 1 */
LW_CHECK bool gguf_open_memory(const void *bytes, size_t n, const char *name, Gguf **ret_gguf, Error *error);
void gguf_close(Gguf *gguf); /* NULL is fine; views into the mapping die with it */

const char *gguf_path(const Gguf *gguf); /* of the first file */
uint32_t gguf_n_parts(const Gguf *gguf);
const char *gguf_part_path(const Gguf *gguf, uint32_t part);
/* False: something of a file was lost since it was opened (engine/model/gguf_guard.h), and read as zeros. */
LW_CHECK bool gguf_check_intact(const Gguf *gguf, Error *error);
uint64_t gguf_file_bytes(const Gguf *gguf); /* of all files */
uint32_t gguf_version(const Gguf *gguf);
size_t gguf_n_kv(const Gguf *gguf);
const GgufKv *gguf_kv_at(const Gguf *gguf, size_t i);
size_t gguf_n_tensors(const Gguf *gguf);
const GgufTensor *gguf_tensor_at(const Gguf *gguf, size_t i);

const GgufKv *gguf_find(const Gguf *gguf, const char *key);        /* NULL: absent */
const GgufTensor *gguf_tensor(const Gguf *gguf, const char *name); /* NULL: absent */

/*
 * Typed getters. gguf_get_* fail when the key is absent or has another type or range ("key 'x' at offset n: ..."); any
 * integer type that holds the value is accepted for integers, F32 and F64 for floats. gguf_opt_* leave *value as it is
 * when the key is absent, and fail only when it is there and wrong.
 */
LW_CHECK bool gguf_get_u32(const Gguf *gguf, const char *key, uint32_t *value, Error *error);
LW_CHECK bool gguf_get_string(const Gguf *gguf, const char *key, GgufString *value, Error *error);
LW_CHECK bool gguf_opt_u32(const Gguf *gguf, const char *key, uint32_t *value, Error *error);
LW_CHECK bool gguf_opt_f32(const Gguf *gguf, const char *key, float *value, Error *error);
LW_CHECK bool gguf_opt_bool(const Gguf *gguf, const char *key, bool *value, Error *error);
LW_CHECK bool gguf_opt_string(const Gguf *gguf, const char *key, GgufString *value, Error *error);
/* An array with that element type; any integer type serves for another whose range holds every element. */
LW_CHECK bool gguf_get_array(const Gguf *gguf, const char *key, GgufType element, const GgufKv **ret_kv, Error *error);

/* Element i of a numeric scalar or array, converted; i < kv->n. U64 beyond INT64_MAX becomes INT64_MAX. */
int64_t gguf_int_at(const GgufKv *kv, uint64_t i);
double gguf_float_at(const GgufKv *kv, uint64_t i);

/* Walks the strings of an array: start with {kv->data}; call at most kv->n times. */
typedef struct GgufStringIter {
    const uint8_t *at;
} GgufStringIter;
GgufString gguf_next_string(GgufStringIter *iter);
