/* SPDX-License-Identifier: Apache-2.0 */
/* llama.cpp's GBNF as nodes: rules 'name ::= ...', the text is that of 'root'. Any thread. */
#pragma once
#include "engine/sample/grammar/grammar.h"

enum { GBNF_MAX_BYTES = 1 << 20 };

/* ERR_SCHEMA names the rule and the offset in bytes. */
LW_CHECK bool gbnf_parse(GrammarBuilder *builder, const char *text, size_t n, GrammarNode *ret_root, Error *error);
