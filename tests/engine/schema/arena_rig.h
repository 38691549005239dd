/* SPDX-License-Identifier: Apache-2.0 */
/* What suites that make automata in an arena begin and end a test with. */
#pragma once
#include "base/arena.h"

static Arena arena;
static Error error;

static void init(void)
{
    arena_init(&arena, 1 << 16, SIZE_MAX);
}

static void done(void)
{
    arena_done(&arena);
}
