/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/pointwise/softcap.h"

#include <math.h>

bool softcap_ref(const SoftcapParams *params)
{
    for (size_t i = 0; i < params->n; i++) params->y[i] = params->cap * tanhf(params->x[i] / params->cap);
    return true;
}
