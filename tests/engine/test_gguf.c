/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/gguf.h"
#include "tests/support/gguf_writer.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Well-formed files and typed getters; files that break the format are in test_gguf_hostile.c. */

static GgufWriter writer;
static Buffer bytes;
static Gguf *gguf;
static Error error;

static void set_up(void)
{
    gguf_writer_init(&writer);
    buffer_init(&bytes, SIZE_MAX / 4);
}

static void tear_down(void)
{
    gguf_close(gguf);
    gguf_writer_done(&writer);
    buffer_done(&bytes);
}

TestSuite(test_gguf, .init = set_up, .fini = tear_down);

static void open_file(void)
{
    gguf_writer_finish(&writer, &bytes);
    cr_assert(gguf_open_memory(bytes.data, bytes.n, "test.gguf", &gguf, &error), "%s", error.text);
}

static void expect_error(bool result, ErrorCode code, const char *param, const char *part)
{
    cr_assert_not(result);
    cr_assert_eq(error.code, code, "%s", error.text);
    cr_assert_str_eq(error.param, param);
    cr_assert(strstr(error.text, part), "'%s' is not in '%s'", part, error.text);
}

static bool text_is(GgufString text, const char *wanted)
{
    return text.n == strlen(wanted) && !memcmp(text.data, wanted, text.n);
}

Test(test_gguf, empty_file_of_either_version)
{
    for (uint32_t version = 2; version <= 3; version++) {
        writer.version = version;
        buffer_clear(&bytes);
        open_file();
        cr_assert_eq(gguf_version(gguf), version);
        cr_assert_eq(gguf_n_kv(gguf), 0);
        cr_assert_eq(gguf_n_tensors(gguf), 0);
        cr_assert_eq(gguf_file_bytes(gguf), 24);
        cr_assert_str_eq(gguf_path(gguf), "test.gguf");
        cr_assert_null(gguf_find(gguf, "general.name"));
        cr_assert_null(gguf_tensor(gguf, "output.weight"));
        gguf_close(gguf);
        gguf = NULL;
    }
}

Test(test_gguf, every_scalar_type)
{
    gguf_writer_raw(&writer, "u8", GGUF_U8, &(uint8_t){200}, 1);
    gguf_writer_raw(&writer, "i8", GGUF_I8, &(int8_t){-100}, 1);
    gguf_writer_raw(&writer, "u16", GGUF_U16, &(uint16_t){60000}, 2);
    gguf_writer_raw(&writer, "i16", GGUF_I16, &(int16_t){-30000}, 2);
    gguf_writer_raw(&writer, "u32", GGUF_U32, &(uint32_t){4000000000}, 4);
    gguf_writer_raw(&writer, "i32", GGUF_I32, &(int32_t){-2000000000}, 4);
    gguf_writer_raw(&writer, "u64", GGUF_U64, &(uint64_t){UINT64_MAX}, 8);
    gguf_writer_raw(&writer, "i64", GGUF_I64, &(int64_t){INT64_MIN}, 8);
    gguf_writer_raw(&writer, "f32", GGUF_F32, &(float){0.5f}, 4);
    gguf_writer_raw(&writer, "f64", GGUF_F64, &(double){-1e300}, 8);
    gguf_writer_bool(&writer, "bool", true);
    gguf_writer_string(&writer, "string", "h\xC3\xA9llo");
    open_file();
    static const struct {
        const char *key;
        int64_t value;
    } ints[] = {{"u8", 200},          {"i8", -100},       {"u16", 60000},     {"i16", -30000}, {"u32", 4000000000},
                {"i32", -2000000000}, {"u64", INT64_MAX}, {"i64", INT64_MIN}, {"bool", 1}};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        const GgufKv *kv = gguf_find(gguf, ints[i].key);
        cr_assert(kv && !kv->is_array && kv->n == 1, "%s", ints[i].key);
        cr_assert_eq(gguf_int_at(kv, 0), ints[i].value, "%s", ints[i].key);
        if (kv->type != GGUF_BOOL) cr_assert_str_eq(gguf_type_name(kv->type), ints[i].key);
    }
    cr_assert_eq(gguf_float_at(gguf_find(gguf, "f32"), 0), 0.5);
    cr_assert_eq(gguf_float_at(gguf_find(gguf, "f64"), 0), -1e300);
    cr_assert_eq(gguf_float_at(gguf_find(gguf, "i16"), 0), -30000.0);
    GgufString text;
    cr_assert(gguf_get_string(gguf, "string", &text, &error) && text_is(text, "h\xC3\xA9llo"));
}

Test(test_gguf, integers_of_any_width_become_u32)
{
    uint32_t value = 7;
    gguf_writer_raw(&writer, "small", GGUF_U8, &(uint8_t){3}, 1);
    gguf_writer_raw(&writer, "wide", GGUF_U64, &(uint64_t){UINT32_MAX}, 8);
    gguf_writer_raw(&writer, "signed", GGUF_I64, &(int64_t){12}, 8);
    gguf_writer_raw(&writer, "minus", GGUF_I32, &(int32_t){-1}, 4);
    gguf_writer_raw(&writer, "large", GGUF_U64, &(uint64_t){1ull << 32}, 8);
    gguf_writer_raw(&writer, "huge", GGUF_U64, &(uint64_t){UINT64_MAX}, 8);
    gguf_writer_f32(&writer, "float", 3);
    gguf_writer_bool(&writer, "flag", true);
    gguf_writer_array(&writer, "array", GGUF_U32, &value, 1);
    open_file();
    expect_error(gguf_get_u32(gguf, "minus", &value, &error), ERR_INVALID, "minus", "-1");
    expect_error(gguf_get_u32(gguf, "large", &value, &error), ERR_INVALID, "large", "4294967296");
    expect_error(gguf_get_u32(gguf, "huge", &value, &error), ERR_INVALID, "huge", "offset");
    expect_error(gguf_get_u32(gguf, "float", &value, &error), ERR_INVALID, "float", "must be an integer, not f32");
    expect_error(gguf_get_u32(gguf, "flag", &value, &error), ERR_INVALID, "flag", "must be an integer, not bool");
    expect_error(gguf_get_u32(gguf, "array", &value, &error), ERR_INVALID, "array",
                 "must be an integer, not array of u32");
    expect_error(gguf_opt_u32(gguf, "array", &value, &error), ERR_INVALID, "array", "array");
    expect_error(gguf_get_u32(gguf, "absent", &value, &error), ERR_INVALID, "absent", "key 'absent' is missing");
    cr_assert_eq(value, 7, "failing must not touch the output");
    cr_assert(gguf_opt_u32(gguf, "absent", &value, &error) && value == 7);
    cr_assert(gguf_get_u32(gguf, "small", &value, &error) && value == 3);
    cr_assert(gguf_opt_u32(gguf, "wide", &value, &error) && value == UINT32_MAX);
    cr_assert(gguf_get_u32(gguf, "signed", &value, &error) && value == 12);
}

Test(test_gguf, floats_must_be_finite)
{
    float value = 7;
    gguf_writer_f32(&writer, "fine", 0.25f);
    gguf_writer_raw(&writer, "double", GGUF_F64, &(double){0.125}, 8);
    gguf_writer_f32(&writer, "nan", NAN);
    gguf_writer_f32(&writer, "infinite", -INFINITY);
    gguf_writer_raw(&writer, "beyond", GGUF_F64, &(double){1e39}, 8);
    gguf_writer_u32(&writer, "int", 1);
    open_file();
    expect_error(gguf_opt_f32(gguf, "nan", &value, &error), ERR_INVALID, "nan", "not a finite");
    expect_error(gguf_opt_f32(gguf, "infinite", &value, &error), ERR_INVALID, "infinite", "not a finite");
    expect_error(gguf_opt_f32(gguf, "beyond", &value, &error), ERR_INVALID, "beyond", "1e+39");
    expect_error(gguf_opt_f32(gguf, "int", &value, &error), ERR_INVALID, "int", "must be a float, not u32");
    cr_assert(gguf_opt_f32(gguf, "absent", &value, &error) && value == 7);
    cr_assert(gguf_opt_f32(gguf, "fine", &value, &error) && value == 0.25f);
    cr_assert(gguf_opt_f32(gguf, "double", &value, &error) && value == 0.125f);
}

Test(test_gguf, strings_and_flags)
{
    GgufString text = {"before", 6};
    bool flag = true;
    gguf_writer_string(&writer, "empty", "");
    gguf_writer_bool(&writer, "no", false);
    gguf_writer_u32(&writer, "number", 1);
    gguf_writer_strings(&writer, "texts", (const char *const[]){"a"}, 1);
    open_file();
    expect_error(gguf_get_string(gguf, "number", &text, &error), ERR_INVALID, "number", "must be a string, not u32");
    expect_error(gguf_opt_string(gguf, "texts", &text, &error), ERR_INVALID, "texts", "not array of string");
    expect_error(gguf_get_string(gguf, "absent", &text, &error), ERR_INVALID, "absent", "missing");
    expect_error(gguf_opt_bool(gguf, "number", &flag, &error), ERR_INVALID, "number", "must be a bool, not u32");
    cr_assert(gguf_opt_string(gguf, "absent", &text, &error) && text_is(text, "before"));
    cr_assert(gguf_opt_bool(gguf, "absent", &flag, &error) && flag);
    cr_assert(gguf_opt_bool(gguf, "no", &flag, &error) && !flag);
    cr_assert(gguf_opt_string(gguf, "empty", &text, &error) && text.n == 0);
}

Test(test_gguf, arrays)
{
    const GgufKv *kv = NULL;
    gguf_writer_strings(&writer, "texts", (const char *const[]){"one", "", "three"}, 3);
    gguf_writer_array(&writer, "ints", GGUF_I32, (int32_t[]){1, 0, 6}, 3);
    gguf_writer_array(&writer, "wide", GGUF_I64, (int64_t[]){1, 256}, 2);
    gguf_writer_array(&writer, "minus", GGUF_I32, (int32_t[]){1, -2}, 2);
    gguf_writer_array(&writer, "floats", GGUF_F32, (float[]){0.5f, -1}, 2);
    gguf_writer_array(&writer, "none", GGUF_F64, NULL, 0);
    gguf_writer_u32(&writer, "scalar", 1);
    open_file();
    expect_error(gguf_get_array(gguf, "scalar", GGUF_U32, &kv, &error), ERR_INVALID, "scalar",
                 "must be array of u32, not u32");
    expect_error(gguf_get_array(gguf, "texts", GGUF_I32, &kv, &error), ERR_INVALID, "texts", "not array of string");
    expect_error(gguf_get_array(gguf, "ints", GGUF_F32, &kv, &error), ERR_INVALID, "ints", "must be array of f32");
    expect_error(gguf_get_array(gguf, "floats", GGUF_STRING, &kv, &error), ERR_INVALID, "floats", "offset");
    expect_error(gguf_get_array(gguf, "minus", GGUF_U32, &kv, &error), ERR_INVALID, "minus",
                 "element 1 (-2) is no u32");
    expect_error(gguf_get_array(gguf, "wide", GGUF_U8, &kv, &error), ERR_INVALID, "wide", "element 1 (256) is no u8");
    expect_error(gguf_get_array(gguf, "absent", GGUF_U8, &kv, &error), ERR_INVALID, "absent", "missing");
    cr_assert_null(kv);
    cr_assert(gguf_get_array(gguf, "ints", GGUF_U8, &kv, &error) && kv->n == 3 && gguf_int_at(kv, 2) == 6);
    cr_assert(gguf_get_array(gguf, "wide", GGUF_I16, &kv, &error) && gguf_int_at(kv, 1) == 256);
    cr_assert(gguf_get_array(gguf, "floats", GGUF_F64, &kv, &error) && gguf_float_at(kv, 1) == -1);
    cr_assert(gguf_get_array(gguf, "none", GGUF_F32, &kv, &error) && kv->n == 0);
    cr_assert(gguf_get_array(gguf, "texts", GGUF_STRING, &kv, &error) && kv->n == 3);
    GgufStringIter iter = {kv->data};
    cr_assert(text_is(gguf_next_string(&iter), "one"));
    cr_assert(text_is(gguf_next_string(&iter), ""));
    cr_assert(text_is(gguf_next_string(&iter), "three"));
}

Test(test_gguf, tensors_lie_where_they_were_written)
{
    float values[6] = {1, 2, 3, 4, 5, 6};
    uint8_t block[34] = {9};
    writer.alignment = 64;
    gguf_writer_u32(&writer, "general.alignment", 64);
    gguf_writer_tensor(&writer, "b", DTYPE_F32, 2, (uint64_t[]){3, 2}, values, sizeof values);
    gguf_writer_tensor(&writer, "a", DTYPE_Q8_0, 1, (uint64_t[]){32}, block, sizeof block);
    gguf_writer_tensor(&writer, "c", DTYPE_F32, 4, (uint64_t[]){1, 1, 1, 1}, values, 4);
    open_file();
    cr_assert_eq(gguf_n_tensors(gguf), 3);
    const GgufTensor *b = gguf_tensor(gguf, "b"), *a = gguf_tensor(gguf, "a");
    cr_assert_eq(b, gguf_tensor_at(gguf, 0));
    cr_assert_eq(a, gguf_tensor_at(gguf, 1));
    cr_assert(text_is(b->name, "b") && b->view.type == DTYPE_F32 && b->n_bytes == 24 && b->view.n_dims == 2);
    cr_assert(b->view.dim[0] == 3 && b->view.dim[1] == 2 && b->view.dim[2] == 1 && b->view.dim[3] == 1);
    cr_assert_arr_eq(b->view.data, values, sizeof values);
    cr_assert(a->n_bytes == 34 && *(const uint8_t *)a->view.data == 9);
    cr_assert_eq(a->file_offset - b->file_offset, 64);
    cr_assert_eq(b->file_offset % 64, 0);
    cr_assert_eq((const char *)a->view.data, bytes.data + a->file_offset);
    cr_assert_not_null(gguf_tensor(gguf, "c"));
    cr_assert_null(gguf_tensor(gguf, "d"));
    cr_assert_null(gguf_tensor(gguf, ""));
    cr_assert_null(gguf_tensor(gguf, "aa"));
}

/* Names that begin alike, or hold a NUL, are told apart. */
Test(test_gguf, finding_is_exact)
{
    char key[32];
    for (uint32_t i = 0; i < 500; i++) {
        snprintf(key, sizeof key, "key.%u", i * 7919 % 500);
        gguf_writer_u32(&writer, key, i * 7919 % 500);
    }
    put_u64(&writer.kv, 7);
    put_bytes(&writer.kv, "key.1\0x", 7);
    put_u32(&writer.kv, GGUF_U32);
    put_u32(&writer.kv, 1000);
    writer.n_kv++;
    open_file();
    for (uint32_t i = 0; i < 500; i++) {
        uint32_t value;
        snprintf(key, sizeof key, "key.%u", i);
        cr_assert(gguf_get_u32(gguf, key, &value, &error) && value == i, "%s", key);
    }
    cr_assert_null(gguf_find(gguf, "key."));
    cr_assert_null(gguf_find(gguf, "key.500"));
    cr_assert_null(gguf_find(gguf, "zzz"));
}
