/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of methods share. Private to the jinja_*.c files. */
#pragma once
#include "engine/text/jinja_run.h"

const JCallRow *jinja_text_method_find(JText name);

/* Adds what dict(...) was called with: a mapping or pairs, then keywords. */
LW_CHECK bool jinja_dict_merge(JinjaRun *run, JDict *dict, const JCall *call);
