/* SPDX-License-Identifier: Apache-2.0 */
/* How commands that compute one text at a time (generate, bench) open their model, with a bar on stderr. One thread. */
#pragma once
#include "config/config.h"
#include "engine/engine.h"
#include "kernels/table.h"
#include "server/cmd/progress.h"

enum { OPEN_MODEL_SEQUENCES = 2 }; /* open at once: a text, and one that goes on from it */

/* kernels: NULL for the best of this machine. The sequence closes with the engine. */
LW_CHECK bool open_model(const Config *config, const char *path, const KernelTable *kernels, Progress *progress,
                         Engine **ret_engine, SeqId *ret_seq, Error *error);
