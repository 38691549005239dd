/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The regular expressions of JSON Schema as automata, with its meaning: a match anywhere in the string will do. They
 * are those of grammar/regex.h. Any thread.
 */
#pragma once
#include "engine/sample/schema/dfa.h"

enum { PATTERN_MAX_BYTES = 8 << 10 };

/* text: valid UTF-8. The error tells the offset in bytes, not where the pattern comes from. */
LW_CHECK bool pattern_compile(const char *text, Arena *arena, const Dfa **ret_dfa, Error *error);
