/* SPDX-License-Identifier: Apache-2.0 */
/* Does a model answer? One token through all its layers, before anybody is told that it is ready. One thread. */
#pragma once
#include "engine/engine.h"

/* pulse(arg): as engine_set_pulse, which is without one again afterwards. */
LW_CHECK bool try_model(Engine *engine, void (*pulse)(void *arg), void *arg, Error *error);
