/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/isa.h"

bool ISA(kv_bounds)(const KvBoundsParams *params, Stream stream)
{
    (void)stream;
    return kv_bounds_ref(params);
}
