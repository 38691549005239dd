/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/table.h"

#include "kernels/device_facts.h"

const KernelTable *kernels_cuda(int device, Error *error)
{
    static const KernelTable table = {
        .name = "cuda",
        .matmul_fuses = true,
        .kv_store_turns = true,
        .attend_stores = true,
        .embed = embed_cuda,
        .rmsnorm = rmsnorm_cuda,
        .matmul = matmul_cuda,
        .rope_table = rope_table_cuda,
        .rope = rope_cuda,
        .kv_store = kv_store_cuda,
        .kv_bounds = kv_bounds_cuda,
        .scan = NULL,
        .select = select_cuda,
        .attend = attend_cuda,
        .glu = glu_cuda,
        .softcap = softcap_cuda,
        .vector_add = vector_add_cuda,
        .digest = digest_cuda,
    };
    return device_facts_read(device, error) && matmul_cuda_prepare(error) ? &table : NULL;
}
