/* SPDX-License-Identifier: Apache-2.0 */
/*
 * INI files: [section], key = value, comments after # or ; at the start of a line, or after " ;" behind a value. Every
 * key must be known, stand in its own section and appear once. Private to config/ and its tests.
 */
#pragma once
#include "config/options.h"

enum { CONFIG_FILE_MAX_BYTES = 1 << 20 };

/* Sets the fields that the text names. 'path' is for messages, which begin with path:line. On failure *config is half
 * set. */
LW_CHECK bool config_file_apply(const char *path, const char *text, size_t n, Config *config, Error *error);
/* Reads the file, then the same. */
LW_CHECK bool config_file_load(const char *path, Config *config, Error *error);
