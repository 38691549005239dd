/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

/* Who writes beyond his own bytes would write into his neighbour's: AddressSanitizer stops him. */
#if defined(__SANITIZE_ADDRESS__)
#define ARENA_GUARDS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_GUARDS
#endif
#endif
#ifdef ARENA_GUARDS
#include <sanitizer/asan_interface.h>
enum { GUARD_BYTES = 32 };
static size_t guard_bytes(size_t left)
{
    return left < GUARD_BYTES ? left : GUARD_BYTES;
}
#else
#define ASAN_POISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
static size_t guard_bytes(size_t left)
{
    (void)left;
    return 0;
}
#endif

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
        ASAN_POISON_MEMORY_REGION(block->data, size);
        block->next = arena->head;
        arena->head = block;
    }
    char *p = block->data + block->used;
    block->used += rounded + guard_bytes(block->size - block->used - rounded);
    arena->used_bytes += rounded;
    ASAN_UNPOISON_MEMORY_REGION(p, rounded);
    memset(p, 0, rounded);
    ASAN_POISON_MEMORY_REGION(p + n, rounded - n);
    return p;
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
