/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Selection of decoded rows where a device computes, one layer at a time: of each KV head whose plan has a list, the
 * pages between sink and recent range with the highest scores, all sectors of each, into that list (LServe 3.5). The
 * score of a page is that of a unit of its sectors by scan.h, box at true positions; the best are those of top_k.h. Who
 * makes the plans knows how many there will be, and where, before they are found: so plans are done, and only what
 * the list holds is written. A row for which nothing is due costs no more than to find that out.
 */
#pragma once
#include "kernels/attention/kv_store.h"
#include "kernels/pointwise/rope_turns.h"
#include "kernels/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Of a span of one row in one layer. */
typedef struct SelectJob {
    uint32_t first_page, n_pages; /* logical pages to choose from: complete, with bounds */
    uint32_t n_keep;              /* of them; at most n_pages. 0: nothing is due */
} SelectJob;

typedef struct SelectParams {
    const float *q; /* [rows of the batch, n_heads, k_dim]; it stays */
    /* Where a job is due, plans[h].list of a head that selects has room for n_list = 4 n_keep sectors, else it is NULL.
     */
    const KvSpan *spans;
    const SelectJob *jobs; /* [n_spans] */
    uint32_t n_spans, n_heads, n_kv_heads, k_dim;
    uint32_t n_channels;           /* scan_bounds_width */
    uint32_t max_spans, max_pages; /* what scratch is for: spans of any call, pages of any job */
    KvTurn turn;                   /* GPU: what is still to happen to q, as in AttendParams; q NULL: nothing */
    const RopeTurns *turns;        /* of the layer; GPU: the tables it points to are the device's, it is not */
    void *scratch;   /* GPU: select_scratch_bytes, zeros before the first call, its own; select_ref: as it says */
    KvLaunch launch; /* GPU */
} SelectParams;

/* Words of scratch that n take, so that each row begins at a multiple of 16 bytes. */
LW_INLINE uint32_t select_padded(uint32_t n)
{
    return (n + 3) / 4 * 4;
}

/* For a GPU: of at most so many spans a call. */
LW_INLINE size_t select_scratch_bytes(uint32_t max_spans, uint32_t n_kv_heads, uint32_t max_pages)
{
    const uint32_t n_pairs = max_spans * n_kv_heads;
    return (select_padded(n_pairs) + (size_t)n_pairs * select_padded(max_pages)) * sizeof(uint32_t);
}

/* By scan_ref and top_k; queries are turned already. Scratch: select_ref_scratch_bytes. */
bool select_ref(const SelectParams *params);
size_t select_ref_scratch_bytes(uint32_t group, uint32_t k_dim, uint32_t max_pages);

/* The same but for pages whose scores are as close to the last chosen one's as fp32 sums are to exact ones. Heads of
 * up to 256 channels, a multiple of 16. */
bool select_cuda(const SelectParams *params, Stream stream);

#ifdef __cplusplus
}
#endif
