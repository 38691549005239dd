/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

struct ArenaBlock {
    ArenaBlock *next;
    size_t size; /* bytes of data */
    size_t used;
    alignas(16) char data[];
};

void arena_init(Arena *arena, size_t block_bytes, size_t max_bytes)
{
    *arena = (Arena){.block_bytes = block_bytes, .max_bytes = max_bytes};
}

static void free_blocks(ArenaBlock *block)
{
    while (block) {
        ArenaBlock *next = block->next;
        free(block);
        block = next;
    }
}

void arena_done(Arena *arena)
{
    free_blocks(arena->head);
    arena_init(arena, arena->block_bytes, arena->max_bytes);
}

void *arena_alloc(Arena *arena, size_t n)
{
    if (n > SIZE_MAX - 15 - sizeof(ArenaBlock)) return NULL;
    size_t rounded = n ? (n + 15) / 16 * 16 : 16;
    if (rounded > arena->max_bytes - arena->used_bytes) return NULL;
    ArenaBlock *block = arena->head;
    if (!block || block->size - block->used < rounded) {
        size_t size = rounded > arena->block_bytes ? rounded : arena->block_bytes;
        block = malloc(sizeof *block + size);
        if (!block) return NULL;
        block->size = size;
        block->used = 0;
        block->next = arena->head;
        arena->head = block;
    }
    void *p = block->data + block->used;
    block->used += rounded;
    arena->used_bytes += rounded;
    return memset(p, 0, rounded);
}

void *arena_array(Arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    return arena_alloc(arena, bytes);
}

char *arena_copy(Arena *arena, const void *bytes, size_t n)
{
    if (n == SIZE_MAX) return NULL;
    char *p = arena_alloc(arena, n + 1);
    if (p && n) memcpy(p, bytes, n);
    return p;
}

char *arena_strdup(Arena *arena, const char *text)
{
    return arena_copy(arena, text, strlen(text));
}
