/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/files.h"
#include "engine/eval/npy.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static Error error;
static char path[64];

static void name_file(void)
{
    snprintf(path, sizeof path, "/tmp/lw-npy-%ld.npy", (long)getpid());
}

static void remove_file(void)
{
    unlink(path);
}

static void check_file(const char *header, const void *data, size_t n_bytes)
{
    Buffer file;
    buffer_init(&file, 1 << 20);
    cr_assert(file_read(path, &file, &error), "%s", error.text);
    const uint8_t *bytes = (const uint8_t *)file.data;
    cr_assert_arr_eq(bytes, "\x93NUMPY\x01\x00", 8);
    size_t length = bytes[8] + 256u * bytes[9];
    cr_assert_eq((10 + length) % 64, 0);
    cr_assert_eq(bytes[10 + length - 1], '\n');
    cr_assert_arr_eq(bytes + 10, header, strlen(header));
    cr_assert_eq(file.n, 10 + length + n_bytes);
    cr_assert_arr_eq(bytes + 10 + length, data, n_bytes);
    buffer_done(&file);
}

Test(test_npy, headers_say_what_follows, .init = name_file, .fini = remove_file)
{
    const float table[] = {1, 2, 3, 4, 5, 6};
    const uint32_t flat[] = {7, 8};
    cr_assert(npy_write(path, NPY_F32, table, 2, 3, &error), "%s", error.text);
    check_file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", table, sizeof table);
    cr_assert(npy_write(path, NPY_U32, flat, 2, 0, &error), "%s", error.text);
    check_file("{'descr': '<u4', 'fortran_order': False, 'shape': (2,), }", flat, sizeof flat);
    cr_assert(npy_write(path, NPY_U32, NULL, 0, 0, &error), "%s", error.text);
    check_file("{'descr': '<u4', 'fortran_order': False, 'shape': (0,), }", flat, 0);
}

Test(test_npy, a_folder_that_is_not_there_is_an_error)
{
    cr_assert_not(npy_write("/nonexistent/a.npy", NPY_U32, NULL, 0, 0, &error));
    cr_assert_eq(error.code, ERR_IO);
}
