/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include "engine/device.h"

/* Rows whose scores wavelength windows cut, prompts in pieces and decoded, beside dense ones, with streaming heads and
 * with lists: against the CPU. */
void try_bands(Device *device);
