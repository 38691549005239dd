/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text by code points, and Python's string operations on it. Bytes that are not UTF-8 count as one character each.
 * Functions of JText alone return views; those that make bytes take the run. Private to the jinja_*.c files.
 */
#pragma once
#include "engine/text/jinja_value.h"

size_t jinja_char_bytes(JText text, size_t at); /* 1..4; at < n */
int32_t jinja_char_at(JText text, size_t at);   /* code point, or the byte's value when it is not UTF-8 */
size_t jinja_char_count(JText text);
size_t jinja_char_offset(JText text, size_t index); /* byte offset of a character; n when beyond the end */
JText jinja_text_part(JText text, size_t start, size_t end);

bool jinja_is_space(int32_t c); /* str.isspace */

/* The first place of 'needle' in [from, n), or SIZE_MAX; an empty needle is found at once. Linear time. */
size_t jinja_text_find(JText text, JText needle, size_t from);
size_t jinja_text_find_last(JText text, JText needle);
bool jinja_text_starts(JText text, JText prefix);
bool jinja_text_ends(JText text, JText suffix);

enum { J_STRIP_LEFT = 1, J_STRIP_RIGHT = 2 };
/* chars: the set of characters to take off; NULL: white space. */
JText jinja_text_strip(JText text, const JText *chars, int sides);

typedef enum JCase { J_CASE_LOWER, J_CASE_UPPER, J_CASE_TITLE, J_CASE_CAPITAL, J_CASE_TITLE_WORDS } JCase;
/* J_CASE_TITLE: str.title; J_CASE_TITLE_WORDS: Jinja's title filter, which breaks words at blanks, dashes, brackets. */
LW_CHECK bool jinja_text_case(JinjaRun *run, JText text, JCase to, JText *ret);
LW_CHECK bool jinja_text_replace(JinjaRun *run, JText text, JText from, JText to, int64_t count, JText *ret);
/* separator NULL: runs of white space; max < 0: no limit. Pushes text values. */
LW_CHECK bool jinja_text_split(JinjaRun *run, JText text, const JText *separator, int64_t max, bool from_right,
                               JList *ret);
bool jinja_ends_line(JText text); /* its last character is a line break */
LW_CHECK bool jinja_text_lines(JinjaRun *run, JText text, bool keep_ends, JList *ret);
