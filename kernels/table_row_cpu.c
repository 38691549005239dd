/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/isa.h"

const KernelTable *ISA(kernels_table)(void)
{
    static const KernelTable table = {
        .name = LW_ISA_NAME,
        .embed = ISA(embed),
        .rmsnorm = ISA(rmsnorm),
        .matmul = ISA(matmul),
        .rope_table = ISA(rope_table),
        .rope = ISA(rope),
        .kv_store = ISA(kv_store),
        .kv_bounds = ISA(kv_bounds),
        .scan = ISA(scan),
        .attend = ISA(attend),
        .glu = ISA(glu),
        .softcap = ISA(softcap),
        .vector_add = ISA(vector_add),
    };
    return &table;
}
