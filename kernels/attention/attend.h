/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of a ragged batch over paged keys and values, by plans: softmax(cap(scale * q k^T)) v over the keys that
 * the plan of the query's KV head shows it. Keys of the batch's own rows are stored already (kv_store). fp32
 * accumulation. A row's result is a function of its position, its plan and the stored keys alone: not of other rows,
 * threads, chunks. Plans that show the same keys give the same bits, also where bands cut and positions move none.
 *
 * Scale: applied in the kernel. A row that sees no key has out = 0. Query head h reads KV head h / (n_heads /
 * n_kv_heads). A NaN or an infinity in a key or value that a row sees makes its result NaN or infinite: a product q k
 * that is not finite counts as NaN.
 */
#pragma once
#include "kernels/attention/kv_store.h"
#include "kernels/pointwise/rope_turns.h"
#include "kernels/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct AttendParams {
    const float *q; /* [rows of the batch, n_heads, k_dim], rotated */
    float *out;     /* [rows of the batch, n_heads, v_dim] */
    const KvSpan *spans;
    uint32_t n_spans;
    uint32_t n_heads, n_kv_heads, k_dim, v_dim;
    float scale;
    float softcap; /* scores s become softcap * tanh(s / softcap); 0: they stay */
    /* [rows of the batch, n_heads] or NULL: the logarithm of the sum of exp(score) over what the head saw; -infinity
     * where that was nothing. */
    float *lse;
    /* Only where KernelTable.attend_stores says so, for spans of one row each whose classes are all unquantised, and
     * which see their own keys: rows as in KvStoreParams, which are turned and stored on the way. NULL: they are
     * stored. */
    const float *k, *v;
    KvTurn turn;
    const RopeTurns *turns; /* of the layer; needed by plans whose positions are not true */
    void *scratch;   /* attend_scratch_bytes; GPU: attend_cuda_scratch_bytes, zeros before the first call, its own */
    KvLaunch launch; /* GPU */
} AttendParams;

/* max_context: the largest position + 1 that will ever be asked for. */
size_t attend_scratch_bytes(uint32_t n_workers, uint32_t n_heads, uint32_t head_dim, uint32_t max_context);
/* Refuses what it has no variant for: heads of more than KV_MAX_DIM channels. */
bool attend_ref(const AttendParams *params);

/*
 * Heads of 64, 96, 128 or 256 channels, k_dim = v_dim, every type but f32; bits depend on how the plan says what it
 * shows. All rows of a span whose plans have bands lie in one page. Split spans: queries and weights as pairs of 16-bit
 * numbers, within 1e-4 of the twin; a result does not depend on the number of parts but for rounding in fp32. Tiled
 * spans: queries and weights rounded once, as in other engines.
 */
bool attend_cuda(const AttendParams *params, Stream stream);
/* split_rows: the most rows of all split spans of a call together. */
size_t attend_cuda_scratch_bytes(uint32_t split_rows, uint32_t n_heads, uint32_t n_kv_heads, uint32_t v_dim,
                                 bool is_deterministic);

#ifdef __cplusplus
}
#endif
