/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/table.h"

/* Each reference twin behind the signature that the table wants. */
#define ROW(name, Params)                                                                                              \
    static bool run_##name(const Params *params, Stream stream)                                                        \
    {                                                                                                                  \
        (void)stream;                                                                                                  \
        return name##_ref(params);                                                                                     \
    }

ROW(embed, EmbedParams)
ROW(rmsnorm, RmsNormParams)
ROW(matmul, MatmulParams)
ROW(rope_table, RopeTableParams)
ROW(rope, RopeParams)
ROW(kv_store, KvStoreParams)
ROW(kv_bounds, KvBoundsParams)
ROW(scan, ScanParams)
ROW(attend, AttendParams)
ROW(glu, GluParams)
ROW(softcap, SoftcapParams)
ROW(vector_add, VectorAddParams)
ROW(digest, DigestParams)

const KernelTable *kernels_ref(void)
{
    static const KernelTable table = {
        .name = "ref",
        .embed = run_embed,
        .rmsnorm = run_rmsnorm,
        .matmul = run_matmul,
        .rope_table = run_rope_table,
        .rope = run_rope,
        .kv_store = run_kv_store,
        .kv_bounds = run_kv_bounds,
        .scan = run_scan,
        .attend = run_attend,
        .glu = run_glu,
        .softcap = run_softcap,
        .vector_add = run_vector_add,
        .digest = run_digest,
    };
    return &table;
}
