/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds GGUF files for tests. The fields may be changed before gguf_writer_finish to make broken files on purpose
 * (another version, a wrong count). Test code: aborts when memory is out. One thread.
 */
#pragma once
#include "base/buffer.h"
#include "base/tensor.h"
#include "engine/model/gguf.h"

typedef struct GgufWriter {
    uint32_t version;   /* 3 */
    uint32_t alignment; /* 32; written as general.alignment by nobody but gguf_writer_u32 */
    uint64_t n_kv, n_tensors;
    Buffer kv, directory, data;
} GgufWriter;

void gguf_writer_init(GgufWriter *writer);
void gguf_writer_done(GgufWriter *writer);

void gguf_writer_u32(GgufWriter *writer, const char *key, uint32_t value);
void gguf_writer_f32(GgufWriter *writer, const char *key, float value);
void gguf_writer_bool(GgufWriter *writer, const char *key, bool value);
void gguf_writer_string(GgufWriter *writer, const char *key, const char *value);
void gguf_writer_strings(GgufWriter *writer, const char *key, const char *const *values, size_t n);
/* values: n numbers of that type, little-endian */
void gguf_writer_array(GgufWriter *writer, const char *key, GgufType type, const void *values, size_t n);
/* Any type id and any bytes behind it. */
void gguf_writer_raw(GgufWriter *writer, const char *key, uint32_t type, const void *bytes, size_t n);

/* Places the data at the next aligned offset; dims: [n_dims], dims[0] contiguous. */
void gguf_writer_tensor(GgufWriter *writer, const char *name, DType type, uint32_t n_dims, const uint64_t *dims,
                        const void *data, size_t n_bytes);
/* A directory entry alone, with any numbers. */
void gguf_writer_tensor_entry(GgufWriter *writer, const char *name, uint32_t type, uint32_t n_dims,
                              const uint64_t *dims, uint64_t offset);

/* Appends the whole file to *out. */
void gguf_writer_finish(const GgufWriter *writer, Buffer *out);

/* For broken files built by hand. */
void put_bytes(Buffer *out, const void *bytes, size_t n);
void put_u32(Buffer *out, uint32_t value);
void put_u64(Buffer *out, uint64_t value);
void put_string(Buffer *out, const char *text); /* length and bytes */
