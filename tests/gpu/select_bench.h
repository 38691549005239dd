/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include "kernels/table.h"

/* Prints what selection of one layer takes, in a CUDA graph over layers of their own: due, and not due. */
void select_bench(const KernelTable *table);
