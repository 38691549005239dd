/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON text into a Buffer. The first failure sticks, so that a whole object is written without a check a line;
 * the caller looks at 'failed' once at the end. Never writes NaN or infinity. One thread at a time.
 */
#pragma once
#include "base/buffer.h"

typedef struct JsonOut {
    Buffer *buffer;
    Error error; /* valid when failed */
    bool failed;
} JsonOut;

void json_begin(JsonOut *out, Buffer *buffer);
/* Text that is JSON already. */
void json_raw(JsonOut *out, const char *text);
void json_bytes(JsonOut *out, const char *text, size_t n);
void json_rawf(JsonOut *out, const char *fmt, ...) LW_PRINTF(2, 3);
/* A quoted string; bytes that are no UTF-8 become U+FFFD. */
void json_string(JsonOut *out, const char *text);
void json_string_n(JsonOut *out, const char *text, size_t n);
/* A number with up to 'digits' significant digits; null unless finite. */
void json_real(JsonOut *out, double value, int digits);
/* false and *error set when anything failed. */
LW_CHECK bool json_end(const JsonOut *out, Error *error);
