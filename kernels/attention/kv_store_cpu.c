/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/isa.h"

bool ISA(kv_store)(const KvStoreParams *params, Stream stream)
{
    (void)stream;
    return kv_store_ref(params);
}
