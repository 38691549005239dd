/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Are the files of a model still what was opened? They are mapped, so whoever writes over one, or cuts it, changes the
 * weights of a running engine. Putting another file in its place by renaming changes nothing. Any one thread.
 */
#pragma once
#include "engine/model/gguf.h"

typedef struct GgufWatch GgufWatch;

/* The gguf is the caller's and outlives the watch. */
LW_CHECK bool gguf_watch_new(const Gguf *gguf, GgufWatch **ret_watch, Error *error);
void gguf_watch_free(GgufWatch *watch);
/*
 * False: a file has been cut, written over, or cannot be read; the error names it. *ret_news: once for each file that
 * was replaced or taken away by name, else NULL.
 */
LW_CHECK bool gguf_watch_check(GgufWatch *watch, const char **ret_news, Error *error);
