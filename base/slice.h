/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long the calling thread computes before others on its core get their turn. Who asks for less than others goes
 * first when it wakes (EEVDF, Linux 6.12 and later; before that nothing changes). Needs no privilege; a thread that is
 * not scheduled in the ordinary way is left as it is. Threads that it makes are not affected.
 */
#pragma once
#include <stdint.h>

void slice_set(uint32_t usec); /* 100 to 100,000 */
