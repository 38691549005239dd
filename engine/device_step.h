/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels of a device must find in its memory for each piece of work: ids, positions, spans, views of pages. It is
 * put together in pinned memory and copied to one fixed place. A decode step, one row of each sequence, runs as a graph
 * of all its launches, one for each size of batch that is padded to. Engine thread.
 */
#pragma once
#include "engine/engine_state.h"

LW_CHECK bool device_step_new(Engine *engine, Error *error); /* after buffers_new */
void device_step_free(Engine *engine);                       /* without one: fine */
uint64_t device_step_bytes(const Engine *engine);            /* of the device's memory */

/* Makes the graphs of all sizes of steps without windows and lists, so that no later one waits for its own. False: the
 * device failed. */
LW_CHECK bool device_step_prepare(Engine *engine);

/* A policy has come into the slot: its plans and heads go over. */
LW_CHECK bool device_step_policy(Engine *engine, uint32_t slot);

/* Rows of split spans (KvSpan.is_split) that one call may have. */
uint32_t device_step_split_rows(const Engine *engine);

/* The rows of a pass, to be embedded: device addresses of their ids and positions. False: the device failed. */
LW_CHECK bool device_step_rows(Engine *engine, const Pass *pass, const uint32_t **ret_ids,
                               const uint32_t **ret_positions);
/* engine->piece_spans [n_spans] for some layers. */
LW_CHECK bool device_step_piece(Engine *engine, uint32_t n_spans, uint32_t first_layer, uint32_t n_layers,
                                Piece *ret_piece);

/* Rows of a step at most. */
uint32_t device_step_max_rows(const Engine *engine);
/* Where the device has what the rows of the step that ran last ask for. */
const DigestAsk *device_step_asks(const Engine *engine);

/* What there is to see of a layer of a piece of device_step_piece, in engine->spans and beside them. */
LayerTrace device_step_trace(const Engine *engine, const Piece *piece, uint32_t layer);

/* May the batch run as a step? Then device_step_run takes it from its tokens to engine->logits. */
bool device_step_takes(const Engine *engine, const Batch *batch);
LW_CHECK bool device_step_run(Engine *engine, const Pass *pass);
