/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An interpreter of the part of Jinja2 that chat templates use, set up as transformers does: trim_blocks,
 * lstrip_blocks, loop controls, tojson without HTML escapes, raise_exception, strftime_now. A program is immutable: any
 * thread may render it. Errors are ERR_TEMPLATE and begin with the line, except for raise_exception: its message alone.
 */
#pragma once
#include "engine/text/jinja_value.h"

typedef struct JinjaProgram JinjaProgram;

enum { JINJA_MAX_SOURCE_BYTES = 1 << 20 };

LW_CHECK bool jinja_parse(const char *source, size_t n, JinjaProgram **ret_program, Error *error);
void jinja_program_free(JinjaProgram *program); /* NULL is fine */

typedef struct JinjaLimits {
    size_t max_text_bytes; /* of the output, and of any text on the way */
    size_t max_memory_bytes;
    uint64_t max_steps;
} JinjaLimits;

/* One rendering: make values with the functions of jinja_value.h, set them as variables, render once. The run keeps
 * 'error' for all that happens in it; programs and JSON given to it outlive it. */
LW_CHECK bool jinja_run_new(const JinjaLimits *limits, int64_t now_unix, JinjaRun **ret_run, Error *error);
void jinja_run_free(JinjaRun *run); /* NULL is fine; ends the texts and values made in it */
LW_CHECK bool jinja_run_set(JinjaRun *run, const char *name, JValue value);
LW_CHECK bool jinja_render(JinjaRun *run, const JinjaProgram *program, JText *ret_text);
