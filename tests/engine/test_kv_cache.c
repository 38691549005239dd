/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv/kv_cache.h"

#include <criterion/criterion.h>
#include <string.h>

static Error error;
static const KvCacheParams small = {
    .n_layers = 2, .n_kv_heads = 3, .k_dim = 8, .v_dim = 4, .type = DTYPE_F16, .capacity = 10, .max_sequences = 2};

Test(test_kv_cache, views_do_not_overlap_and_fill_the_region)
{
    KvCache *cache;
    SeqId seqs[2];
    cr_assert(kv_cache_new(&small, &cache, &error), "%s", error.text);
    for (int i = 0; i < 2; i++) cr_assert(kv_seq_open(cache, &seqs[i], &error));
    const size_t k_bytes = 3 * 10 * 8 * 2, v_bytes = 3 * 10 * 4 * 2;
    for (int i = 0; i < 2; i++)
        for (uint32_t layer = 0; layer < 2; layer++) {
            KvView view = kv_seq_view(cache, seqs[i], layer);
            cr_assert(view.type == DTYPE_F16 && view.n_kv_heads == 3 && view.k_dim == 8 && view.v_dim == 4);
            cr_assert_eq(view.capacity, 10);
            memset(view.k, (int)(1 + 4 * i + 2 * (int)layer), k_bytes);
            memset(view.v, (int)(2 + 4 * i + 2 * (int)layer), v_bytes);
        }
    for (int i = 0; i < 2; i++)
        for (uint32_t layer = 0; layer < 2; layer++) {
            KvView view = kv_seq_view(cache, seqs[i], layer);
            const char *k = view.k, *v = view.v;
            for (size_t b = 0; b < k_bytes; b++) cr_assert_eq(k[b], 1 + 4 * i + 2 * (int)layer);
            for (size_t b = 0; b < v_bytes; b++) cr_assert_eq(v[b], 2 + 4 * i + 2 * (int)layer);
        }
    cr_assert_geq(kv_cache_bytes(cache), 2 * 2 * (k_bytes + v_bytes));
    kv_cache_free(cache);
}

Test(test_kv_cache, counts_tokens)
{
    KvCache *cache;
    SeqId seq;
    cr_assert(kv_cache_new(&small, &cache, &error));
    cr_assert(kv_seq_open(cache, &seq, &error));
    cr_assert_eq(kv_seq_tokens(cache, seq), 0);
    kv_seq_advance(cache, seq, 7);
    kv_seq_advance(cache, seq, 3);
    cr_assert_eq(kv_seq_tokens(cache, seq), 10);
    kv_seq_truncate(cache, seq, 12);
    cr_assert_eq(kv_seq_tokens(cache, seq), 10);
    kv_seq_truncate(cache, seq, 4);
    cr_assert_eq(kv_seq_tokens(cache, seq), 4);
    kv_seq_truncate(cache, seq, 0);
    cr_assert_eq(kv_seq_tokens(cache, seq), 0);
    kv_cache_free(cache);
}

Test(test_kv_cache, is_busy_until_a_sequence_closes)
{
    KvCache *cache;
    SeqId a, b, c = 77;
    cr_assert(kv_cache_new(&small, &cache, &error));
    cr_assert(kv_seq_open(cache, &a, &error) && kv_seq_open(cache, &b, &error));
    cr_assert_neq(a, b);
    cr_assert_not(kv_seq_open(cache, &c, &error));
    cr_assert_eq(error.code, ERR_BUSY);
    cr_assert_eq(c, 77);
    kv_seq_advance(cache, a, 5);
    memset(kv_seq_view(cache, a, 0).k, 1, 16);
    memset(kv_seq_view(cache, b, 0).k, 2, 16);
    kv_seq_close(cache, a);
    cr_assert_not(kv_seq_is_open(cache, a));
    cr_assert_not(kv_seq_is_open(cache, 2));
    cr_assert(kv_seq_open(cache, &c, &error));
    cr_assert_eq(c, a);
    cr_assert_eq(kv_seq_tokens(cache, c), 0);
    cr_assert_eq(*(char *)kv_seq_view(cache, c, 0).k, 0, "memory of a closed sequence is given back");
    cr_assert_eq(*(char *)kv_seq_view(cache, b, 0).k, 2, "the neighbour keeps its own");
    kv_cache_free(cache);
    kv_cache_free(NULL);
}

Test(test_kv_cache, untouched_memory_costs_nothing)
{
    KvCacheParams huge = small;
    KvCache *cache;
    huge.capacity = 1 << 28; /* 77 GB */
    cr_assert(kv_cache_new(&huge, &cache, &error), "%s", error.text);
    cr_assert_gt(kv_cache_bytes(cache), (size_t)70 << 30);
    kv_cache_free(cache);
}

Test(test_kv_cache, refuses_what_it_cannot_hold)
{
    KvCache *cache = NULL;
    KvCacheParams bad = small;
    bad.type = DTYPE_Q8_0;
    cr_assert_not(kv_cache_new(&bad, &cache, &error));
    cr_assert_str_eq(error.param, "kv_type");
    bad = small;
    bad.capacity = 0;
    cr_assert_not(kv_cache_new(&bad, &cache, &error));
    cr_assert_eq(error.code, ERR_INVALID);
    bad = small;
    bad.n_layers = bad.n_kv_heads = bad.k_dim = bad.capacity = UINT32_MAX;
    cr_assert_not(kv_cache_new(&bad, &cache, &error));
    cr_assert_eq(error.code, ERR_TOO_LARGE);
    bad = small;
    bad.capacity = UINT32_MAX; /* a size that a size_t holds, but no address space */
    bad.n_layers = 1 << 18;
    cr_assert_not(kv_cache_new(&bad, &cache, &error));
    cr_assert_eq(error.code, ERR_NO_MEMORY);
    cr_assert_null(cache);
}
