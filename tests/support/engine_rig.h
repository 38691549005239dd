/* SPDX-License-Identifier: Apache-2.0 */
/* Tiny models in engines, and texts of any tokens to run through them. Test code: asserts. */
#pragma once
#include "engine/engine.h"

/* settings: those of tiny_model_set, NULL ends them. params.model_path is set here. */
Engine *engine_rig_open(const char *const *settings, EngineParams params);
#define ENGINE_RIG(params, ...) engine_rig_open((const char *const[]){__VA_ARGS__, NULL}, params)
/* One thread, all the rows and logits that a test asks for, everything else the least. */
EngineParams engine_rig_params(KvTypes kv_types, uint32_t max_sequences, uint32_t max_rows);

/* Tokens [n] that depend on the seed. */
void engine_rig_text(const Engine *engine, uint32_t seed, uint32_t *tokens, uint32_t n);
SeqId engine_rig_seq(Engine *engine, PolicyId policy);
/* Appends tokens [n] in chunks (0: in one); out [n, n_vocab] takes the logits, or is NULL. */
void engine_rig_feed(Engine *engine, SeqId seq, RowKind kind, const uint32_t *tokens, uint32_t n, uint32_t chunk,
                     float *out);
float *engine_rig_logits(const Engine *engine, uint32_t n_rows); /* [n_rows, n_vocab], free() it */
