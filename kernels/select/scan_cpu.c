/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/isa.h"

bool ISA(scan)(const ScanParams *params, Stream stream)
{
    (void)stream;
    return scan_ref(params);
}
