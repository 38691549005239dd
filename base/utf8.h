/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walking through bytes that may not be UTF-8. Dead bytes are grouped by the maximal-subpart rule (Unicode, chapter 3:
 * U+FFFD substitution), one U+FFFD a group, as Python's bytes.decode('utf-8', 'replace') does. Any thread.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum Utf8Kind {
    UTF8_WHOLE, /* one code point */
    UTF8_DEAD,  /* bytes that no following byte can turn into a code point */
    UTF8_CUT,   /* the input ends inside a code point; at the end of a text that is dead too */
} Utf8Kind;

/* n >= 1; *ret_len: 1..4 bytes. */
Utf8Kind utf8_step(const uint8_t *bytes, size_t n, size_t *ret_len);
/* A whole code point of n bytes that a terminal could obey or that breaks a line: C0 and C1 controls, DEL, U+2028,
 * U+2029, and the changes of direction U+202A to U+202E. */
bool utf8_is_control(const uint8_t *bytes, size_t n);
bool utf8_valid(const uint8_t *bytes, size_t n);

/*
 * Copies whole code points and writes U+FFFD for dead bytes; returns how many bytes that takes, at most 3 * n. With out
 * NULL it only counts. When 'last' is false a code point that the end cuts stays out, its length in *ret_cut.
 */
size_t utf8_repair(const uint8_t *bytes, size_t n, bool last, char *out, size_t *ret_cut);
