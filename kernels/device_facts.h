/* SPDX-License-Identifier: Apache-2.0 */
/* What launchers must know of the current CUDA device. Read once by kernels_cuda, then constant; any thread. */
#pragma once
#include "base/error.h"
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct DeviceFacts {
    uint32_t n_multiprocessors;
    size_t block_shared_bytes;     /* most that one block may have */
    size_t processor_shared_bytes; /* of a multiprocessor, 1 KiB of it taken by each block */
    bool has_dependent_launch;     /* programmatic dependent launch */
    bool has_group_products;       /* products of warp groups, as compute capability 9.0 has them (hopper.cuh) */
} DeviceFacts;

/* Checks device and makes it current for the calling thread. */
LW_CHECK bool device_facts_read(int device, Error *error);
/* The kernels are to be those of older devices, as where the driver compiles them: nothing that is newer is used. */
void device_facts_use_old_code(void);
/* Of the calling thread's current device; NULL before device_facts_read. */
const DeviceFacts *device_facts(void);

#ifdef __cplusplus
}
#endif
