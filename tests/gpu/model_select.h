/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include "engine/device.h"

/* Decoded rows that select pages, alone, together, beside streaming heads, forked and swapped: against the CPU. */
void try_selection(Device *device);
/* The text that a model writes by selected pages, token by token as the CPU does. */
void try_selected_text(Device *device, const char *path);
