/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/gguf_ahead.h"

#include "engine/model/gguf_impl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    PIECE_BYTES = 1 << 20,
    MEMORY_SHARE = 2, /* more than one part in so many of the memory might push itself out */
};

struct GgufAhead {
    const Gguf *gguf;
    pthread_t thread;
    atomic_bool stop;
};

static void *read_ahead(void *arg)
{
    GgufAhead *ahead = arg;
    for (uint32_t i = 0; i < gguf_n_parts(ahead->gguf); i++) {
        const GgufPart *part = gguf_part(ahead->gguf, i);
        for (uint64_t at = 0; at < part->n_bytes && !atomic_load(&ahead->stop); at += PIECE_BYTES) {
            uint64_t left = part->n_bytes - at;
            void *piece = (void *)(uintptr_t)(part->base + at);
            /* Linux 5.14. What cannot be read is met again by who needs it. */
            if (madvise(piece, left < PIECE_BYTES ? left : PIECE_BYTES, MADV_POPULATE_READ)) break;
        }
    }
    return NULL;
}

static bool fits_memory(const Gguf *gguf)
{
    long n_pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return n_pages > 0 && page_bytes > 0 &&
           gguf_file_bytes(gguf) <= (uint64_t)n_pages * (uint64_t)page_bytes / MEMORY_SHARE;
}

GgufAhead *gguf_ahead_new(const Gguf *gguf)
{
    if (!gguf_part(gguf, 0)->is_mapped || !fits_memory(gguf)) return NULL;
    GgufAhead *ahead = malloc(sizeof *ahead);
    if (!ahead) return NULL;
    ahead->gguf = gguf;
    atomic_init(&ahead->stop, false);
    if (pthread_create(&ahead->thread, NULL, read_ahead, ahead) == 0) return ahead;
    free(ahead);
    return NULL;
}

void gguf_ahead_free(GgufAhead *ahead)
{
    if (!ahead) return;
    atomic_store(&ahead->stop, true);
    pthread_join(ahead->thread, NULL);
    free(ahead);
}
