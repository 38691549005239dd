/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is freed at once: one arena for the process (model, config), one for each request, one for each step.
 * Pointers stay valid until arena_done. One thread at a time; a request's arena changes threads with
 * the message that carries it.
 */
#pragma once
#include "base/error.h"
#include <stdint.h>

typedef struct ArenaBlock ArenaBlock;
typedef struct Arena {
    ArenaBlock *head;
    size_t block_bytes; /* size of a fresh block; larger requests get their own */
    size_t used_bytes;  /* handed out so far */
    size_t max_bytes;   /* allocation beyond it returns NULL; SIZE_MAX for none */
} Arena;

void arena_init(Arena *arena, size_t block_bytes, size_t max_bytes);
void arena_done(Arena *arena);

/* n zeroed bytes aligned to 16, or NULL when memory or the maximum is out. n = 0 gives a valid pointer. */
LW_CHECK void *arena_alloc(Arena *arena, size_t n);
/* count * size zeroed bytes; NULL also when the product overflows. */
LW_CHECK void *arena_array(Arena *arena, size_t count, size_t size);
/* A copy of n bytes with a NUL behind, or NULL. */
LW_CHECK char *arena_copy(Arena *arena, const void *bytes, size_t n);
/* A copy of a string, or NULL. */
LW_CHECK char *arena_strdup(Arena *arena, const char *text);
