/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays as .npy files (format 1.0, little-endian, C order). Any thread. */
#pragma once
#include "base/error.h"
#include <stdint.h>

typedef enum NpyType { NPY_U32, NPY_F32 } NpyType;

/* data: [n_rows, n_columns]; n_columns 0: a flat array [n_rows]. */
LW_CHECK bool npy_write(const char *path, NpyType type, const void *data, size_t n_rows, size_t n_columns,
                        Error *error);
