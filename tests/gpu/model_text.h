/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include "engine/device.h"

/* What a model writes greedily on the device, alone and 32 texts at once, against the CPU with exact products. */
void try_model_text(Device *device, const char *path);
