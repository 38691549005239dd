/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of filters share. Private to the jinja_*.c files. */
#pragma once
#include "engine/text/jinja_run.h"

/* An attribute by path ("a.b.0") or index; fallback (may be NULL) stands in for each step that is undefined. */
LW_CHECK bool jinja_path(JinjaRun *run, const JValue *object, const JValue *path, const JValue *fallback, JValue *ret);

/* Filters on single values: text, numbers, JSON. */
const JCallRow *jinja_scalar_filter_find(JText name);
