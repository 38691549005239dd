/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include "engine/device.h"

/* Digests that steps of a model bring against those of the rows that come afterwards, which the host makes. */
void try_model_digests(Device *device, const char *path);
