/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/gguf.h"
#include "tests/support/gguf_writer.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A model in several files: found by name from any of them, and refused unless they say the same of the whole. */

enum { N_PARTS = 3 };

/* What part i says; a test changes it before it is written. */
typedef struct Part {
    uint32_t no, count, n_tensors;
    const char *tensor;
    bool has_keys;
} Part;

static Part parts[N_PARTS];
static char folder[] = "/tmp/longwave-split-XXXXXX";
static char paths[N_PARTS][96];
static Gguf *gguf;
static Error error;

static void set_up(void)
{
    static const char *const names[N_PARTS] = {"a", "b", "c"};
    cr_assert_not_null(mkdtemp(folder));
    for (uint32_t i = 0; i < N_PARTS; i++) {
        parts[i] = (Part){i, N_PARTS, N_PARTS, names[i], true};
        snprintf(paths[i], sizeof paths[i], "%s/model-%05u-of-%05u.gguf", folder, i + 1, N_PARTS);
    }
}

static void tear_down(void)
{
    gguf_close(gguf);
    for (uint32_t i = 0; i < N_PARTS; i++) unlink(paths[i]);
    rmdir(folder);
}

TestSuite(test_gguf_split, .init = set_up, .fini = tear_down);

static void build_part(uint32_t i, Buffer *out)
{
    GgufWriter writer;
    gguf_writer_init(&writer);
    if (i == 0) gguf_writer_string(&writer, "general.name", "whole");
    if (i > 0) gguf_writer_string(&writer, "general.name", "not asked for");
    if (parts[i].has_keys) {
        gguf_writer_raw(&writer, "split.no", GGUF_U16, &(uint16_t){(uint16_t)parts[i].no}, 2);
        gguf_writer_raw(&writer, "split.count", GGUF_U16, &(uint16_t){(uint16_t)parts[i].count}, 2);
        gguf_writer_raw(&writer, "split.tensors.count", GGUF_I32, &(int32_t){(int32_t)parts[i].n_tensors}, 4);
    }
    float values[8] = {(float)i + 1};
    gguf_writer_tensor(&writer, parts[i].tensor, DTYPE_F32, 1, (uint64_t[]){8}, values, sizeof values);
    gguf_writer_finish(&writer, out);
    gguf_writer_done(&writer);
}

static void write_part(uint32_t i, const char *path)
{
    Buffer bytes;
    buffer_init(&bytes, SIZE_MAX / 4);
    build_part(i, &bytes);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes.data, 1, bytes.n, file), bytes.n);
    cr_assert_eq(fclose(file), 0);
    buffer_done(&bytes);
}

static void write_all(void)
{
    for (uint32_t i = 0; i < N_PARTS; i++) write_part(i, paths[i]);
}

static void refuse(const char *path, const char *file, const char *reason)
{
    cr_assert_not(gguf_open(path, &gguf, &error), "taken, but wanted '%s'", reason);
    cr_assert(strstr(error.text, file), "'%s' is not in '%s'", file, error.text);
    cr_assert(strstr(error.text, reason), "'%s' is not in '%s'", reason, error.text);
}

Test(test_gguf_split, any_part_opens_the_whole)
{
    write_all();
    for (uint32_t given = 0; given < N_PARTS; given++) {
        cr_assert(gguf_open(paths[given], &gguf, &error), "%s", error.text);
        cr_assert_eq(gguf_n_parts(gguf), N_PARTS);
        cr_assert_eq(gguf_n_tensors(gguf), N_PARTS);
        cr_assert_str_eq(gguf_path(gguf), paths[0]);
        uint64_t n_bytes = 0;
        for (uint32_t i = 0; i < N_PARTS; i++) {
            const GgufTensor *tensor = gguf_tensor(gguf, parts[i].tensor);
            cr_assert(tensor && tensor->part == i && tensor == gguf_tensor_at(gguf, i));
            cr_assert_eq(*(const float *)tensor->view.data, (float)i + 1);
            Buffer bytes;
            buffer_init(&bytes, SIZE_MAX / 4);
            build_part(i, &bytes);
            n_bytes += bytes.n;
            buffer_done(&bytes);
        }
        cr_assert_eq(gguf_file_bytes(gguf), n_bytes);
        GgufString name;
        cr_assert(gguf_get_string(gguf, "general.name", &name, &error));
        cr_assert(name.n == 5 && !memcmp(name.data, "whole", 5), "the metadata must be the first file's");
        gguf_close(gguf);
        gguf = NULL;
    }
}

Test(test_gguf_split, missing_files_are_named)
{
    for (uint32_t missing = 0; missing < N_PARTS; missing++) {
        write_all();
        unlink(paths[missing]);
        for (uint32_t given = 0; given < N_PARTS; given++) {
            refuse(paths[given], paths[missing], "No such file");
            cr_assert_eq(error.code, ERR_NOT_FOUND);
        }
    }
}

Test(test_gguf_split, broken_files_are_named)
{
    write_all();
    cr_assert_eq(truncate(paths[1], 40), 0);
    refuse(paths[0], paths[1], " at offset ");
    cr_assert_eq(truncate(paths[1], 0), 0);
    refuse(paths[2], paths[1], "empty");
}

Test(test_gguf_split, numbers_must_agree)
{
    static const struct {
        uint32_t part;
        Part part_says;
        const char *reason;
    } cases[] = {
        {1, {2, 3, 3, "b", true}, "key 'split.no'"},
        {0, {1, 3, 3, "a", true}, "key 'split.no'"},
        {1, {0, 1, 1, "b", true}, "key 'split.no'"},
        {1, {1, 2, 3, "b", true}, "key 'split.count'"},
        {0, {0, 4, 3, "a", true}, "'split.count' at offset"},
        {0, {0, 2, 3, "a", true}, "'split.count' at offset"},
        {0, {0, 0, 3, "a", true}, "'split.count' at offset"},
        {0, {0, 0, 0, "a", false}, "key 'split.count'"},
        {2, {2, 3, 4, "c", true}, "key 'split.tensors.count'"},
        {2, {0, 0, 0, "c", false}, "key 'split.no'"},
        {2, {2, 3, 3, "a", true}, "tensor 'a'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Part kept = parts[cases[i].part];
        parts[cases[i].part] = cases[i].part_says;
        write_all();
        refuse(paths[0], paths[cases[i].part], cases[i].reason);
        parts[cases[i].part] = kept;
    }
}

Test(test_gguf_split, the_sum_of_tensors_must_agree)
{
    for (uint32_t i = 0; i < N_PARTS; i++) parts[i].n_tensors = 4;
    write_all();
    refuse(paths[0], paths[0], "key 'split.tensors.count' at offset");
    cr_assert(strstr(error.text, "4, but the 3 files have 3 tensors"), "%s", error.text);
}

Test(test_gguf_split, keys_of_another_type)
{
    GgufWriter writer;
    Buffer bytes;
    gguf_writer_init(&writer);
    buffer_init(&bytes, SIZE_MAX / 4);
    gguf_writer_string(&writer, "split.count", "3");
    gguf_writer_finish(&writer, &bytes);
    cr_assert_not(gguf_open_memory(bytes.data, bytes.n, "x.gguf", &gguf, &error));
    cr_assert(strstr(error.text, "split.count") && strstr(error.text, "must be an integer"), "%s", error.text);
    gguf_writer_done(&writer);
    buffer_done(&bytes);
}

/* Without its number in the name a part cannot find the others; other names are just names. */
Test(test_gguf_split, names)
{
    char path[128];
    static const char *const not_parts[] = {"m.gguf",
                                            "m-00001-of-0003.gguf",
                                            "m-0001-of-00003.gguf",
                                            "m-00004-of-00003.gguf",
                                            "m-00000-of-00003.gguf",
                                            "m-00001-of-00003.bin",
                                            "m-00001_of-00003.gguf",
                                            "m-0000a-of-00003.gguf"};
    for (size_t i = 0; i < sizeof not_parts / sizeof *not_parts; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, not_parts[i]);
        parts[0].has_keys = true;
        write_part(0, path);
        refuse(path, path, "the name does not end as in '-00001-of-00003.gguf'");
        parts[0].has_keys = false;
        write_part(0, path);
        cr_assert(gguf_open(path, &gguf, &error), "%s", error.text);
        cr_assert_eq(gguf_n_parts(gguf), 1);
        gguf_close(gguf);
        gguf = NULL;
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/m-00001-of-99999.gguf", folder);
    refuse(path, path, "at most 1024");
    snprintf(path, sizeof path, "%s/m-00001-of-00001.gguf", folder);
    parts[0] = (Part){0, 1, 1, "a", true};
    write_part(0, path);
    cr_assert(gguf_open(path, &gguf, &error), "%s", error.text);
    unlink(path);
}

Test(test_gguf_split, from_memory)
{
    Buffer bytes[N_PARTS];
    GgufBytes given[N_PARTS];
    for (uint32_t i = 0; i < N_PARTS; i++) {
        buffer_init(&bytes[i], SIZE_MAX / 4);
        build_part(i, &bytes[i]);
        given[i] = (GgufBytes){bytes[i].data, bytes[i].n, paths[i]};
    }
    cr_assert(gguf_open_memory_parts(given, N_PARTS, &gguf, &error), "%s", error.text);
    cr_assert_eq(gguf_tensor(gguf, "c")->part, 2);
    gguf_close(gguf);
    gguf = NULL;
    cr_assert_not(gguf_open_memory_parts(given, N_PARTS - 1, &gguf, &error));
    cr_assert(strstr(error.text, "split.count"), "%s", error.text);
    cr_assert_not(gguf_open_memory(given[0].data, given[0].n, paths[0], &gguf, &error));
    cr_assert(strstr(error.text, " at offset "), "%s", error.text);
    for (uint32_t i = 0; i < N_PARTS; i++) buffer_done(&bytes[i]);
}
