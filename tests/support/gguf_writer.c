/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/gguf_writer.h"

#include <stdlib.h>
#include <string.h>

void put_bytes(Buffer *out, const void *bytes, size_t n)
{
    Error error;
    if (!buffer_append(out, bytes, n, &error)) abort();
}

void put_u32(Buffer *out, uint32_t value)
{
    put_bytes(out, &value, sizeof value);
}

void put_u64(Buffer *out, uint64_t value)
{
    put_bytes(out, &value, sizeof value);
}

void put_string(Buffer *out, const char *text)
{
    put_u64(out, strlen(text));
    put_bytes(out, text, strlen(text));
}

static void pad(Buffer *out, size_t alignment)
{
    static const char zeros[64];
    while (out->n % alignment) {
        size_t n = alignment - out->n % alignment;
        put_bytes(out, zeros, n < sizeof zeros ? n : sizeof zeros);
    }
}

void gguf_writer_init(GgufWriter *writer)
{
    *writer = (GgufWriter){.version = 3, .alignment = 32};
    buffer_init(&writer->kv, SIZE_MAX / 4);
    buffer_init(&writer->directory, SIZE_MAX / 4);
    buffer_init(&writer->data, SIZE_MAX / 4);
}

void gguf_writer_done(GgufWriter *writer)
{
    buffer_done(&writer->kv);
    buffer_done(&writer->directory);
    buffer_done(&writer->data);
}

void gguf_writer_raw(GgufWriter *writer, const char *key, uint32_t type, const void *bytes, size_t n)
{
    put_string(&writer->kv, key);
    put_u32(&writer->kv, type);
    put_bytes(&writer->kv, bytes, n);
    writer->n_kv++;
}

void gguf_writer_u32(GgufWriter *writer, const char *key, uint32_t value)
{
    gguf_writer_raw(writer, key, GGUF_U32, &value, sizeof value);
}

void gguf_writer_f32(GgufWriter *writer, const char *key, float value)
{
    gguf_writer_raw(writer, key, GGUF_F32, &value, sizeof value);
}

void gguf_writer_bool(GgufWriter *writer, const char *key, bool value)
{
    gguf_writer_raw(writer, key, GGUF_BOOL, &(uint8_t){value}, 1);
}

void gguf_writer_string(GgufWriter *writer, const char *key, const char *value)
{
    gguf_writer_raw(writer, key, GGUF_STRING, NULL, 0);
    put_string(&writer->kv, value);
}

static void begin_array(GgufWriter *writer, const char *key, GgufType type, size_t n)
{
    gguf_writer_raw(writer, key, GGUF_ARRAY, NULL, 0);
    put_u32(&writer->kv, type);
    put_u64(&writer->kv, n);
}

void gguf_writer_strings(GgufWriter *writer, const char *key, const char *const *values, size_t n)
{
    begin_array(writer, key, GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) put_string(&writer->kv, values[i]);
}

void gguf_writer_array(GgufWriter *writer, const char *key, GgufType type, const void *values, size_t n)
{
    static const uint8_t bytes[] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
        [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
    };
    begin_array(writer, key, type, n);
    put_bytes(&writer->kv, values, n * bytes[type]);
}

void gguf_writer_tensor_entry(GgufWriter *writer, const char *name, uint32_t type, uint32_t n_dims,
                              const uint64_t *dims, uint64_t offset)
{
    put_string(&writer->directory, name);
    put_u32(&writer->directory, n_dims);
    for (uint32_t d = 0; d < n_dims; d++) put_u64(&writer->directory, dims[d]);
    put_u32(&writer->directory, type);
    put_u64(&writer->directory, offset);
    writer->n_tensors++;
}

void gguf_writer_tensor(GgufWriter *writer, const char *name, DType type, uint32_t n_dims, const uint64_t *dims,
                        const void *data, size_t n_bytes)
{
    pad(&writer->data, writer->alignment);
    gguf_writer_tensor_entry(writer, name, type, n_dims, dims, writer->data.n);
    put_bytes(&writer->data, data, n_bytes);
}

void gguf_writer_finish(const GgufWriter *writer, Buffer *out)
{
    put_bytes(out, "GGUF", 4);
    put_u32(out, writer->version);
    put_u64(out, writer->n_tensors);
    put_u64(out, writer->n_kv);
    put_bytes(out, writer->kv.data, writer->kv.n);
    put_bytes(out, writer->directory.data, writer->directory.n);
    if (writer->data.n) pad(out, writer->alignment);
    put_bytes(out, writer->data.data, writer->data.n);
}
