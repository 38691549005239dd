/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/npy.h"

#include "engine/eval/files.h"

#include <stdio.h>
#include <string.h>

enum { ALIGNMENT = 64, PREFIX_BYTES = 10, ELEMENT_BYTES = 4 };

/* The header ends with a line end so that the data begin at a multiple of 64 bytes. */
static bool write_header(Buffer *out, NpyType type, size_t n_rows, size_t n_columns, Error *error)
{
    char shape[64], text[256];
    if (n_columns)
        snprintf(shape, sizeof shape, "(%zu, %zu)", n_rows, n_columns);
    else
        snprintf(shape, sizeof shape, "(%zu,)", n_rows);
    int n = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                     type == NPY_U32 ? "<u4" : "<f4", shape);
    size_t bytes = (PREFIX_BYTES + (size_t)n + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT - PREFIX_BYTES;
    const uint8_t prefix[PREFIX_BYTES] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)bytes, (uint8_t)(bytes >> 8)};
    return buffer_append(out, prefix, sizeof prefix, error) &&
           buffer_printf(out, error, "%-*s\n", (int)bytes - 1, text);
}

bool npy_write(const char *path, NpyType type, const void *data, size_t n_rows, size_t n_columns, Error *error)
{
    Buffer out;
    size_t n = n_columns ? n_rows * n_columns : n_rows;
    buffer_init(&out, (size_t)1 << 40);
    bool ok = write_header(&out, type, n_rows, n_columns, error) &&
              buffer_append(&out, n ? data : "", n * ELEMENT_BYTES, error) &&
              file_replace(path, out.data, out.n, error);
    buffer_done(&out);
    return ok;
}
