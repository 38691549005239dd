/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of logits from a device to the host: whole rows, or the digests that a step's rows ask for, made behind its
 * launches on the same stream. Engine thread.
 */
#pragma once
#include "engine/engine_state.h"

LW_CHECK bool device_logits_new(Engine *engine, Error *error); /* after buffers_new */
void device_logits_free(Engine *engine);                       /* without: fine */
uint64_t device_logits_bytes(const Engine *engine);            /* of the device's memory */

/*
 * What the rows of a step ask for, as the device is to find it: in asks [n_rows], which are zeros. Rows for whose masks
 * and edits there is no room come whole.
 */
void device_logits_ask(Engine *engine, const Pass *pass, DigestAsk *asks);

/* engine->logits [n_rows, n_vocab] to engine->host_logits, but for rows of which digests come, and waits for them. */
LW_CHECK bool device_logits_bring(Engine *engine, const Pass *pass, uint32_t n_rows);
