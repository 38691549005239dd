/* SPDX-License-Identifier: Apache-2.0 */
/* What goes where in the memory of a device, reckoned before any of it is taken. Once, when the engine opens. */
#pragma once
#include "engine/engine_state.h"

/* Has the device kernels for the model, the KV types and the batch? The error names what it lacks. */
LW_CHECK bool device_budget_check(const Engine *engine, Error *error);
/*
 * Pages and images of each class: shares [n_classes]. At most params.device_bytes are used for weights, buffers and
 * pages together, and pages for params.kv_bytes. An error says what does not fit, and what would.
 */
LW_CHECK bool device_budget_share(Engine *engine, KvShare *ret_shares, Error *error);
