/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/dequant.h"
#include "kernels/pointwise/embed.h"

bool embed_ref(const EmbedParams *params)
{
    if (!dtype_info(params->type)) return false;
    size_t row_bytes = dtype_row_bytes(params->type, params->n);
    for (uint32_t t = 0; t < params->n_tokens; t++) {
        float *y = params->y + (size_t)t * params->n;
        const char *row = (const char *)params->table + params->ids[t] * row_bytes;
        if (!dequant_row_ref(params->type, row, y, params->n)) return false;
        for (uint32_t i = 0; i < params->n; i++) y[i] *= params->scale;
    }
    return true;
}
