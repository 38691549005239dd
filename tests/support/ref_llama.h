/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Llama forward pass in plain fp64 loops over the rows as the file has them: no reordered channels, no cache, no
 * quantised activations. A second opinion on the engine for tiny models. Test code: aborts when memory is out.
 */
#pragma once
#include "engine/model/family.h"

/* Logits of all rows of one sequence that starts at position 0. ret_logits: [n_tokens, n_vocab] */
void ref_llama_logits(const Gguf *gguf, const ModelShape *shape, const uint32_t *tokens, uint32_t n_tokens,
                      double *ret_logits);
/* In place, [n]. */
void ref_log_softmax(double *x, uint32_t n);
