/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/family.h"
#include "engine/model/weights.h"
#include "tests/support/gguf_open.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files that break the format: each is refused with an error that names the key or tensor and an offset. */

static GgufWriter writer;
static Buffer bytes;
static Error error;

static void set_up(void)
{
    gguf_writer_init(&writer);
    buffer_init(&bytes, SIZE_MAX / 4);
}

static void tear_down(void)
{
    gguf_writer_done(&writer);
    buffer_done(&bytes);
}

TestSuite(test_gguf_hostile, .init = set_up, .fini = tear_down);

static void start_over(void)
{
    tear_down();
    set_up();
}

/* The bytes so far are refused; the error has all the parts. Starts over. */
static void refuse_bytes(ErrorCode code, const char *part, const char *other_part)
{
    cr_assert_not(gguf_open_and_read(bytes.data, bytes.n, &error), "taken, but wanted '%s'", part);
    cr_assert_eq(error.code, code, "%s", error.text);
    cr_assert(strstr(error.text, part), "'%s' is not in '%s'", part, error.text);
    cr_assert(strstr(error.text, other_part), "'%s' is not in '%s'", other_part, error.text);
    cr_assert(strstr(error.text, "at offset "), "no offset in '%s'", error.text);
    start_over();
}

static void refuse(ErrorCode code, const char *part, const char *other_part)
{
    gguf_writer_finish(&writer, &bytes);
    refuse_bytes(code, part, other_part);
}

/* ---- header ---- */

Test(test_gguf_hostile, magic_and_version)
{
    put_bytes(&bytes, "GGML\3\0\0\0", 8);
    refuse_bytes(ERR_INVALID, "header", "not a GGUF file");
    static const uint32_t versions[] = {0, 1, 4, 0x7FFFFFFF, UINT32_MAX};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        writer.version = versions[i];
        refuse(ERR_UNSUPPORTED, "header", "version");
    }
    writer.version = 0x03000000;
    refuse(ERR_UNSUPPORTED, "header", "big-endian");
}

Test(test_gguf_hostile, counts_that_cannot_fit)
{
    static const uint64_t counts[] = {1, 1ull << 20, 1ull << 32, 1ull << 60, 1ull << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        writer.n_tensors = counts[i];
        refuse(ERR_INVALID, "header", "tensors cannot fit");
        writer.n_kv = counts[i];
        refuse(ERR_INVALID, "header", "keys cannot fit");
    }
    gguf_writer_u32(&writer, "a", 1);
    writer.n_kv = 2;
    refuse(ERR_INVALID, "header", "2 keys cannot fit in the 17 bytes");
}

/* A count may fit the file and still be absurd: tables must not grow with a file's weights. */
Test(test_gguf_hostile, counts_have_a_limit)
{
    size_t n = (size_t)40 << 20;
    uint8_t *zeros = calloc(n, 1);
    cr_assert_not_null(zeros);
    writer.n_tensors = (1 << 20) + 1;
    gguf_writer_finish(&writer, &bytes);
    put_bytes(&bytes, zeros, n);
    free(zeros);
    refuse_bytes(ERR_TOO_LARGE, "header", "at most 1048576");
}

/* ---- metadata ---- */

static void put_key(const char *key, uint32_t type)
{
    gguf_writer_raw(&writer, key, type, NULL, 0);
}

Test(test_gguf_hostile, string_lengths)
{
    static const uint64_t lengths[] = {1000, 1ull << 32, 1ull << 63, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        put_u64(&writer.kv, lengths[i]); /* of a key */
        put_u64(&writer.kv, 0);
        writer.n_kv = 1;
        refuse(ERR_INVALID, "key number 0 at offset 24", "name of");

        put_key("text", GGUF_STRING);
        put_u64(&writer.kv, lengths[i]);
        put_u64(&writer.kv, 0);
        refuse(ERR_INVALID, "key 'text' at offset 24", "string of");

        put_key("texts", GGUF_ARRAY);
        put_u32(&writer.kv, GGUF_STRING);
        put_u64(&writer.kv, 2);
        put_string(&writer.kv, "fine");
        put_u64(&writer.kv, lengths[i]);
        put_u64(&writer.kv, 0);
        refuse(ERR_INVALID, "key 'texts' at offset 24", "string of");

        put_u64(&writer.directory, lengths[i]); /* of a tensor's name */
        put_bytes(&writer.directory, (uint8_t[64]){0}, 64);
        writer.n_tensors = 1;
        refuse(ERR_INVALID, "tensor number 0 at offset 24", "name of");
    }
}

Test(test_gguf_hostile, names_have_a_length)
{
    char *name = malloc(65537);
    cr_assert_not_null(name);
    memset(name, 'n', 65536);
    name[65536] = '\0';
    gguf_writer_u32(&writer, name, 1);
    refuse(ERR_INVALID, "key number 0", "65536");
    gguf_writer_u32(&writer, name + 1, 1);
    gguf_writer_finish(&writer, &bytes);
    cr_assert(gguf_open_and_read(bytes.data, bytes.n, &error), "%s", error.text);
    free(name);
    start_over();
    gguf_writer_u32(&writer, "", 1);
    refuse(ERR_INVALID, "key number 0", "name of 0 bytes");
}

Test(test_gguf_hostile, value_types)
{
    static const uint32_t types[] = {13, 255, 0x09000000, UINT32_MAX};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        put_key("k", types[i]);
        put_u64(&writer.kv, 0);
        refuse(ERR_INVALID, "key 'k'", "value type");
        put_key("k", GGUF_ARRAY);
        put_u32(&writer.kv, types[i]);
        put_u64(&writer.kv, 0);
        refuse(ERR_INVALID, "key 'k'", "element type");
    }
    put_key("k", GGUF_ARRAY);
    put_u32(&writer.kv, GGUF_ARRAY);
    put_u64(&writer.kv, 1);
    put_u32(&writer.kv, GGUF_U8);
    put_u64(&writer.kv, 0);
    refuse(ERR_UNSUPPORTED, "key 'k'", "array of arrays");
}

Test(test_gguf_hostile, array_lengths)
{
    static const uint64_t lengths[] = {2, 1ull << 32, 1ull << 60, 1ull << 61, 1ull << 62, 1ull << 63, UINT64_MAX};
    for (uint32_t type = GGUF_U8; type <= GGUF_F64; type++) {
        if (type == GGUF_ARRAY) continue;
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            if (type <= GGUF_BOOL && lengths[i] == 2) continue; /* fits */
            put_key("list", GGUF_ARRAY);
            put_u32(&writer.kv, type);
            put_u64(&writer.kv, lengths[i]);
            put_u64(&writer.kv, 0);
            refuse(ERR_INVALID, "key 'list' at offset 24", "cannot fit");
        }
    }
}

Test(test_gguf_hostile, key_twice)
{
    gguf_writer_u32(&writer, "a.key", 1);
    gguf_writer_u32(&writer, "b.key", 1);
    gguf_writer_string(&writer, "a.key", "again");
    refuse(ERR_INVALID, "key 'a.key' at offset 66", "twice");
}

/* What a file names must not drive a terminal or break a log line. */
Test(test_gguf_hostile, names_in_errors_are_printable)
{
    put_key("evil\n\x1B[31m\xFF", 99);
    refuse(ERR_INVALID, "key 'evil??[31m?'", "value type 99");
}

/* The longest path and the longest name leave room for the reason. */
Test(test_gguf_hostile, long_paths_keep_the_reason)
{
    char path[1001], key[1001];
    for (size_t i = 0; i < 500; i++) memcpy(path + 2 * i, "\xC3\xA9", 2);
    memset(key, 'k', 1000);
    path[1000] = key[1000] = '\0';
    put_key(key, 99);
    gguf_writer_finish(&writer, &bytes);
    Gguf *gguf;
    cr_assert_not(gguf_open_memory(bytes.data, bytes.n, path, &gguf, &error));
    cr_assert_eq(strncmp(error.text, "\xC3\xA9", 2), 0);
    cr_assert(strstr(error.text, "at offset 24: value type 99 is unknown"), "%s", error.text);
}

/* ---- alignment ---- */

Test(test_gguf_hostile, alignments)
{
    static const uint32_t alignments[] = {0, 1, 3, 4, 24, 33, 1u << 25, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        gguf_writer_u32(&writer, "general.alignment", alignments[i]);
        refuse(ERR_INVALID, "key 'general.alignment' at offset 24", "no power of two");
    }
    gguf_writer_string(&writer, "general.alignment", "32");
    refuse(ERR_INVALID, "key 'general.alignment'", "u32");
    gguf_writer_array(&writer, "general.alignment", GGUF_U32, &(uint32_t){32}, 1);
    refuse(ERR_INVALID, "key 'general.alignment'", "u32");
    gguf_writer_raw(&writer, "general.alignment", GGUF_U64, &(uint64_t){32}, 8);
    refuse(ERR_INVALID, "key 'general.alignment'", "u32");
}

/* ---- tensors ---- */

static void refuse_entry(uint32_t type, uint32_t n_dims, const uint64_t *dims, uint64_t offset, ErrorCode code,
                         const char *part)
{
    gguf_writer_tensor_entry(&writer, "t", type, n_dims, dims, offset);
    put_bytes(&writer.data, (uint8_t[256]){0}, 256);
    refuse(code, "tensor 't'", part);
}

#define DIMS(...)                                                                                                      \
    (const uint64_t[])                                                                                                 \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

Test(test_gguf_hostile, dimensions)
{
    uint64_t big = 1ull << 32;
    refuse_entry(DTYPE_F32, 0, DIMS(1), 0, ERR_INVALID, "0 dimensions");
    refuse_entry(DTYPE_F32, 5, DIMS(1, 1, 1, 1, 1), 0, ERR_INVALID, "5 dimensions");
    refuse_entry(DTYPE_F32, 1, DIMS(0), 0, ERR_INVALID, "dimension 0 is 0");
    refuse_entry(DTYPE_F32, 3, DIMS(8, 2, 0), 0, ERR_INVALID, "dimension 2 is 0");
    refuse_entry(DTYPE_F32, 2, DIMS(big, big), 0, ERR_INVALID, "overflows");
    refuse_entry(DTYPE_F32, 4, DIMS(1u << 16, 1u << 16, 1u << 16, 1u << 16), 0, ERR_INVALID, "overflows");
    refuse_entry(DTYPE_F32, 1, DIMS(1ull << 63), 0, ERR_INVALID, "overflows");
    refuse_entry(DTYPE_F32, 1, DIMS(UINT64_MAX), 0, ERR_INVALID, "overflows");
    refuse_entry(DTYPE_F32, 1, DIMS(1ull << 62), 0, ERR_INVALID, "more than the file's"); /* times 4 bytes wraps to 0 */
    refuse_entry(DTYPE_Q8_0, 2, DIMS(32, 1ull << 57), 0, ERR_INVALID, "more than the file's");
    refuse_entry(DTYPE_F32, 1, DIMS(1000), 0, ERR_INVALID, "more than the file's");
    refuse_entry(DTYPE_F32, 1, DIMS(80), 0, ERR_INVALID, "the file ends at");
    refuse_entry(DTYPE_Q8_0, 1, DIMS(33), 0, ERR_INVALID, "no multiple of Q8_0's block of 32");
    refuse_entry(DTYPE_Q6_K, 2, DIMS(128, 2), 0, ERR_INVALID, "no multiple of Q6_K's block of 256");
    put_string(&writer.directory, "t"); /* so many that no file could hold them */
    put_u32(&writer.directory, UINT32_MAX);
    put_bytes(&writer.directory, (uint8_t[64]){1}, 64);
    writer.n_tensors = 1;
    refuse(ERR_INVALID, "tensor 't'", "4294967295 dimensions");
}

/* A type that nothing computes with is listed, with its size where the format is known; loading refuses it. */
Test(test_gguf_hostile, tensor_types)
{
    static const struct {
        uint32_t id;
        uint64_t n_bytes;
        const char *why;
    } cases[] = {
        {4, 0, "type 4 (4)"},   {99, 0, "type 99 (99)"}, {UINT32_MAX, 0, "type 4294967295 (4294967295)"},
        {22, 82, "IQ2_S (22)"}, {26, 1024, "I32 (26)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Gguf *gguf;
        gguf_writer_tensor_entry(&writer, "t\n", cases[i].id, 1, DIMS(256), 0);
        put_bytes(&writer.data, (uint8_t[1024]){0}, 1024);
        gguf_writer_finish(&writer, &bytes);
        cr_assert(gguf_open_memory(bytes.data, bytes.n, "test.gguf", &gguf, &error), "%s", error.text);
        const GgufTensor *tensor = gguf_tensor_at(gguf, 0);
        cr_assert_eq((uint32_t)tensor->view.type, cases[i].id);
        cr_assert_eq(tensor->n_bytes, cases[i].n_bytes);
        cr_assert_not(weights_check_types(gguf, &error));
        cr_assert_eq(error.code, ERR_UNSUPPORTED);
        cr_assert(strstr(error.text, "tensor 't?' at offset ") && strstr(error.text, cases[i].why), "%s", error.text);
        gguf_close(gguf);
        start_over();
    }
    refuse_entry(22, 1, DIMS(32), 0, ERR_INVALID, "no multiple of IQ2_S's block of 256");
    refuse_entry(26, 1, DIMS(80), 0, ERR_INVALID, "the file ends at");
    refuse_entry(99, 1, DIMS(8), 1ull << 32, ERR_INVALID, "beyond the file's");
    refuse_entry(99, 1, DIMS(8), 4096, ERR_INVALID, "beyond the file's");
}

Test(test_gguf_hostile, offsets)
{
    refuse_entry(DTYPE_F32, 1, DIMS(8), 4, ERR_INVALID, "no multiple of the alignment 32");
    refuse_entry(DTYPE_F32, 1, DIMS(8), 256, ERR_INVALID, "the file ends at");
    refuse_entry(DTYPE_F32, 1, DIMS(9), 224, ERR_INVALID, "the file ends at");
    refuse_entry(DTYPE_F32, 1, DIMS(8), 1ull << 32, ERR_INVALID, "beyond the file's");
    refuse_entry(DTYPE_F32, 1, DIMS(8), UINT64_MAX - 31, ERR_INVALID, "beyond the file's");
}

Test(test_gguf_hostile, overlap)
{
    gguf_writer_tensor_entry(&writer, "late", DTYPE_F32, 1, DIMS(8), 32);
    gguf_writer_tensor_entry(&writer, "early", DTYPE_F32, 1, DIMS(9), 0);
    put_bytes(&writer.data, (uint8_t[256]){0}, 256);
    refuse(ERR_INVALID, "tensor 'late'", "overlap those of 'early'");
    gguf_writer_tensor_entry(&writer, "a", DTYPE_F32, 1, DIMS(8), 0);
    gguf_writer_tensor_entry(&writer, "b", DTYPE_F32, 1, DIMS(8), 0);
    put_bytes(&writer.data, (uint8_t[256]){0}, 256);
    refuse(ERR_INVALID, "tensor 'b'", "overlap those of 'a'");
}

Test(test_gguf_hostile, tensor_twice)
{
    gguf_writer_tensor(&writer, "w", DTYPE_F32, 1, DIMS(1), &(float){0}, 4);
    gguf_writer_tensor(&writer, "x", DTYPE_F32, 1, DIMS(1), &(float){0}, 4);
    gguf_writer_tensor(&writer, "w", DTYPE_F32, 1, DIMS(1), &(float){0}, 4);
    refuse(ERR_INVALID, "tensor 'w'", "twice");
}

/* ---- whole files ---- */

static void build_small_model(void)
{
    TinyModel model = tiny_model_default();
    model.n_layers = 1;
    model.n_embd = model.n_ff = model.head_dim = 32;
    model.n_heads = model.n_kv_heads = 1;
    model.type = model.embed_type = DTYPE_Q8_0;
    cr_assert(tiny_model_build(&model, &bytes, &error), "%s", error.text);
    cr_assert(gguf_open_and_read(bytes.data, bytes.n, &error), "%s", error.text);
}

Test(test_gguf_hostile, model_cut_at_every_byte)
{
    build_small_model();
    for (size_t n = 0; n < bytes.n; n++) {
        error.text[0] = '\0';
        bool taken = gguf_open_and_read(bytes.data, n, &error);
        if (taken || !strstr(error.text, " at offset "))
            cr_assert_fail("cut at %zu: taken %d, '%s'", n, taken, error.text);
    }
}

/* Nearly every byte before the data matters; whatever a changed one means, reading stays inside the file. */
Test(test_gguf_hostile, model_with_every_byte_changed)
{
    build_small_model();
    Gguf *gguf;
    cr_assert(gguf_open_memory(bytes.data, bytes.n, "test.gguf", &gguf, &error));
    size_t n_before_data = gguf_tensor_at(gguf, 0)->file_offset;
    gguf_close(gguf);
    static const uint8_t masks[] = {0x01, 0x80, 0xFF};
    size_t n_refused = 0;
    for (size_t i = 0; i < n_before_data; i++)
        for (size_t m = 0; m < sizeof masks; m++) {
            bytes.data[i] ^= (char)masks[m];
            n_refused += !gguf_open_and_read(bytes.data, bytes.n, &error);
            bytes.data[i] ^= (char)masks[m];
        }
    cr_assert_gt(n_refused, n_before_data / 8);
}

/* Keys chosen against a lookup table (one long beginning, all alike) must not make opening quadratic. */
Test(test_gguf_hostile, many_alike_keys_open_in_time)
{
    char key[64];
    for (uint32_t i = 0; i < 200000; i++) {
        snprintf(key, sizeof key, "a.long.beginning.that.all.of.them.share.%06u", i * 7919 % 200000);
        gguf_writer_u32(&writer, key, i);
    }
    gguf_writer_finish(&writer, &bytes);
    clock_t start = clock(); /* CPU time: a busy machine must not fail it */
    cr_assert(gguf_open_and_read(bytes.data, bytes.n, &error), "%s", error.text);
    cr_assert_lt(clock() - start, 5 * CLOCKS_PER_SEC);
}

Test(test_gguf_hostile, a_million_layers)
{
    ModelShape shape;
    const ModelFamily *family;
    Gguf *gguf;
    gguf_writer_string(&writer, "general.architecture", "llama");
    gguf_writer_u32(&writer, "llama.block_count", 1000000);
    gguf_writer_u32(&writer, "llama.context_length", 512);
    gguf_writer_u32(&writer, "llama.embedding_length", 64);
    gguf_writer_u32(&writer, "llama.feed_forward_length", 64);
    gguf_writer_u32(&writer, "llama.attention.head_count", 4);
    gguf_writer_finish(&writer, &bytes);
    cr_assert(gguf_open_memory(bytes.data, bytes.n, "test.gguf", &gguf, &error), "%s", error.text);
    cr_assert(family_find(gguf, &family, &error), "%s", error.text);
    cr_assert_not(family_read_shape(family, gguf, &shape, &error));
    cr_assert(strstr(error.text, "llama.block_count") && strstr(error.text, "1000000"), "%s", error.text);
    gguf_close(gguf);
}

/* ---- paths ---- */

static void refuse_path(const char *path, ErrorCode code)
{
    Gguf *gguf;
    cr_assert_not(gguf_open(path, &gguf, &error));
    cr_assert_eq(error.code, code, "%s", error.text);
    cr_assert(strstr(error.text, path), "%s", error.text);
}

Test(test_gguf_hostile, paths)
{
    char folder[] = "/tmp/longwave-gguf-XXXXXX", fifo[64], empty[64];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    snprintf(empty, sizeof empty, "%s/empty", folder);
    cr_assert_eq(mkfifo(fifo, 0600), 0);
    FILE *file = fopen(empty, "w");
    cr_assert(file && !fclose(file));
    refuse_path("/tmp/longwave-no-such-file.gguf", ERR_NOT_FOUND);
    refuse_path(folder, ERR_INVALID);
    refuse_path(fifo, ERR_INVALID);
    refuse_path(empty, ERR_INVALID);
    refuse_path("/dev/zero", ERR_INVALID);
    unlink(fifo);
    unlink(empty);
    rmdir(folder);
}

Test(test_gguf_hostile, a_file_on_disk)
{
    char path[128];
    TinyModel model = tiny_model_default();
    cr_assert(tiny_model_temp(&model, path, sizeof path, &error), "%s", error.text);
    Gguf *gguf;
    cr_assert(gguf_open(path, &gguf, &error), "%s", error.text);
    const GgufTensor *norm = gguf_tensor(gguf, "output_norm.weight");
    cr_assert(norm && norm->view.dim[0] == model.n_embd && norm->view.type == DTYPE_F32);
    cr_assert_float_eq(*(const float *)norm->view.data, 1, 0.5);
    cr_assert_str_eq(gguf_path(gguf), path);
    gguf_close(gguf);
    cr_assert_eq(truncate(path, 100), 0);
    cr_assert_not(gguf_open(path, &gguf, &error));
    cr_assert(strstr(error.text, path) && strstr(error.text, " at offset "), "%s", error.text);
    unlink(path);
}
