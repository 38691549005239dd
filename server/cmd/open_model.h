/* SPDX-License-Identifier: Apache-2.0 */
/* How commands that compute one text at a time (generate, bench) open their model, with a bar on stderr. One thread. */
#pragma once
#include "config/config.h"
#include "engine/device.h"
#include "engine/engine.h"
#include "kernels/table.h"
#include "server/cmd/progress.h"

/*
 * n_sequences: in one pass, each with two more places for what is forked from it, besides the one that is opened here
 * and closes with the engine. config and device: of open_device. kernels: NULL for those of the device.
 */
LW_CHECK bool open_model(const Config *config, const char *path, Device *device, const KernelTable *kernels,
                         uint32_t n_sequences, Progress *progress, Engine **ret_engine, SeqId *ret_seq, Error *error);
