/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a model's files into the page cache in the order in which they lie, in a thread of its own, while the tokenizer
 * is built and the first pass begins: pages that are only read as they are used come in small pieces, one waited for
 * after the other. Any thread.
 */
#pragma once
#include "engine/model/gguf.h"

typedef struct GgufAhead GgufAhead;

/* For who is about to use all weights. NULL: not for this model, or there is no thread; it is read as it is used. */
GgufAhead *gguf_ahead_new(const Gguf *gguf);
/* Before gguf_close; ends it wherever it is. NULL is fine. */
void gguf_ahead_free(GgufAhead *ahead);
