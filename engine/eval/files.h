/* SPDX-License-Identifier: Apache-2.0 */
/* Small files as a whole. Any thread. */
#pragma once
#include "base/buffer.h"

/* Appends all of it, up to the buffer's maximum. ERR_NOT_FOUND: there is none. */
LW_CHECK bool file_read(const char *path, Buffer *out, Error *error);
/* A new file takes the old one's place when all bytes are on their way to the disk, or nothing changes. */
LW_CHECK bool file_replace(const char *path, const void *bytes, size_t n, Error *error);
