/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include "kernels/table.h"

/* Key bounds of pages that rows fill, byte for byte with the twin's: every type and head size. Counts results. */
void check_bounds(const KernelTable *table);
