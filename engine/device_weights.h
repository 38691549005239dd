/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's weights in the memory of a device: matrices packed as kernels/linear/device_layout.h says, token embeddings
 * as in the file, all in one piece. Made once when the engine opens, then constant.
 */
#pragma once
#include "engine/device.h"
#include "engine/model/weights.h"

typedef struct DeviceWeights {
    ModelWeights weights; /* with addresses of the device, but for rope.source */
    void *memory;
    uint64_t bytes;
} DeviceWeights;

/* False: a type has no layout there; the error names it. */
LW_CHECK bool device_weights_bytes(const ModelShape *shape, const ModelWeights *weights, uint64_t *ret_bytes,
                                   Error *error);
/* weights: kept by the caller until device_weights_done. */
LW_CHECK bool device_weights_init(Device *device, ThreadPool *pool, const ModelShape *shape,
                                  const ModelWeights *weights, BindProgress progress, DeviceWeights *ret_weights,
                                  Error *error);
void device_weights_done(Device *device, DeviceWeights *weights);
