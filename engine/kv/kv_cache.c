/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv/kv_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef struct KvSeq {
    bool open;
    uint32_t n_tokens;
} KvSeq;

struct KvCache {
    KvCacheParams params;
    char *memory; /* [max_sequences][n_layers] of layer_bytes */
    size_t k_bytes, layer_bytes, seq_bytes, total_bytes;
    KvSeq seqs[]; /* [max_sequences] */
};

enum { REGION_ALIGNMENT = 4096 };

/* False on overflow. Regions start at page boundaries, so that one can be given back without its neighbours. */
static bool set_sizes(KvCache *cache)
{
    const KvCacheParams *p = &cache->params;
    size_t head_bytes, v_bytes;
    bool bad = __builtin_mul_overflow((size_t)p->capacity, dtype_info(p->type)->block_bytes, &head_bytes) ||
               __builtin_mul_overflow(head_bytes, p->n_kv_heads, &head_bytes) ||
               __builtin_mul_overflow(head_bytes, p->k_dim, &cache->k_bytes) ||
               __builtin_mul_overflow(head_bytes, p->v_dim, &v_bytes) ||
               __builtin_add_overflow(cache->k_bytes, v_bytes, &cache->layer_bytes) ||
               __builtin_mul_overflow(cache->layer_bytes, p->n_layers, &cache->seq_bytes) ||
               __builtin_add_overflow(cache->seq_bytes, REGION_ALIGNMENT - 1, &cache->seq_bytes);
    cache->seq_bytes = cache->seq_bytes / REGION_ALIGNMENT * REGION_ALIGNMENT;
    return !bad && !__builtin_mul_overflow(cache->seq_bytes, p->max_sequences, &cache->total_bytes);
}

bool kv_cache_new(const KvCacheParams *params, KvCache **ret_cache, Error *error)
{
    if (params->type != DTYPE_F32 && params->type != DTYPE_F16 && params->type != DTYPE_BF16)
        return error_set_param(error, ERR_UNSUPPORTED, "kv_type", "kv_type must be f32, f16 or bf16");
    if (!params->n_layers || !params->n_kv_heads || !params->k_dim || !params->v_dim || !params->capacity ||
        !params->max_sequences)
        return error_set(error, ERR_INVALID, "the KV cache has an empty dimension");
    KvCache *cache = calloc(1, sizeof *cache + params->max_sequences * sizeof(KvSeq));
    if (!cache) return error_set(error, ERR_NO_MEMORY, "no memory for the table of sequences");
    cache->params = *params;
    if (!set_sizes(cache)) {
        free(cache);
        return error_set_param(error, ERR_TOO_LARGE, "ctx",
                               "a context of %u tokens needs more KV memory than addresses reach", params->capacity);
    }
    cache->memory =
        mmap(NULL, cache->total_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (cache->memory == MAP_FAILED) {
        size_t mib = cache->total_bytes >> 20;
        free(cache);
        return error_set_param(error, ERR_NO_MEMORY, "ctx",
                               "no memory for a KV cache of %zu MiB; a smaller ctx needs less", mib);
    }
    *ret_cache = cache;
    return true;
}

void kv_cache_free(KvCache *cache)
{
    if (!cache) return;
    munmap(cache->memory, cache->total_bytes);
    free(cache);
}

size_t kv_cache_bytes(const KvCache *cache)
{
    return cache->total_bytes;
}

bool kv_seq_open(KvCache *cache, SeqId *ret_seq, Error *error)
{
    for (uint32_t i = 0; i < cache->params.max_sequences; i++) {
        if (cache->seqs[i].open) continue;
        cache->seqs[i] = (KvSeq){.open = true};
        *ret_seq = i;
        return true;
    }
    return error_set(error, ERR_BUSY, "all %u sequences are in use", cache->params.max_sequences);
}

void kv_seq_close(KvCache *cache, SeqId seq)
{
    assert(kv_seq_is_open(cache, seq));
    cache->seqs[seq] = (KvSeq){0};
    /* Failing only means that the memory stays. */
    (void)madvise(cache->memory + seq * cache->seq_bytes, cache->seq_bytes, MADV_DONTNEED);
}

bool kv_seq_is_open(const KvCache *cache, SeqId seq)
{
    return seq < cache->params.max_sequences && cache->seqs[seq].open;
}

uint32_t kv_seq_tokens(const KvCache *cache, SeqId seq)
{
    assert(kv_seq_is_open(cache, seq));
    return cache->seqs[seq].n_tokens;
}

void kv_seq_advance(KvCache *cache, SeqId seq, uint32_t n)
{
    assert(kv_seq_is_open(cache, seq) && n <= cache->params.capacity - cache->seqs[seq].n_tokens);
    cache->seqs[seq].n_tokens += n;
}

void kv_seq_truncate(KvCache *cache, SeqId seq, uint32_t n)
{
    assert(kv_seq_is_open(cache, seq));
    if (n < cache->seqs[seq].n_tokens) cache->seqs[seq].n_tokens = n;
}

KvView kv_seq_view(const KvCache *cache, SeqId seq, uint32_t layer)
{
    const KvCacheParams *p = &cache->params;
    char *start = cache->memory + seq * cache->seq_bytes + layer * cache->layer_bytes;
    return (KvView){.k = start,
                    .v = start + cache->k_bytes,
                    .type = p->type,
                    .n_kv_heads = p->n_kv_heads,
                    .k_dim = p->k_dim,
                    .v_dim = p->v_dim,
                    .capacity = p->capacity};
}
