/* SPDX-License-Identifier: Apache-2.0 */
/* What 'format' means of strings. Any thread. */
#pragma once
#include "engine/sample/schema/dfa.h"

/* *ret_dfa NULL: the format says nothing of strings. A format that is not known is refused. */
LW_CHECK bool format_compile(const char *name, Arena *arena, const Dfa **ret_dfa, Error *error);
