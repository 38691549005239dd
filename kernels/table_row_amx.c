/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/isa.h"

/* Only products with quantised weights are work for the tile unit. */
bool embed_avx512(const EmbedParams *params, Stream stream);
bool rmsnorm_avx512(const RmsNormParams *params, Stream stream);
bool rope_table_avx512(const RopeTableParams *params, Stream stream);
bool rope_avx512(const RopeParams *params, Stream stream);
bool kv_store_avx512(const KvStoreParams *params, Stream stream);
bool kv_bounds_avx512(const KvBoundsParams *params, Stream stream);
bool scan_avx512(const ScanParams *params, Stream stream);
bool attend_avx512(const AttendParams *params, Stream stream);
bool glu_avx512(const GluParams *params, Stream stream);
bool softcap_avx512(const SoftcapParams *params, Stream stream);
bool vector_add_avx512(const VectorAddParams *params, Stream stream);

const KernelTable *ISA(kernels_table)(void)
{
    static const KernelTable table = {
        .name = LW_ISA_NAME,
        .embed = embed_avx512,
        .rmsnorm = rmsnorm_avx512,
        .matmul = ISA(matmul),
        .rope_table = rope_table_avx512,
        .rope = rope_avx512,
        .kv_store = kv_store_avx512,
        .kv_bounds = kv_bounds_avx512,
        .scan = scan_avx512,
        .attend = attend_avx512,
        .glu = glu_avx512,
        .softcap = softcap_avx512,
        .vector_add = vector_add_avx512,
    };
    return &table;
}
