/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/table.h"

#include <cuda_runtime_api.h>

const KernelTable *kernels_cuda(int device, Error *error)
{
    static const KernelTable table = {.name = "cuda", .vector_add = vector_add_cuda};
    int n_devices = 0;
    cudaError_t rc = cudaGetDeviceCount(&n_devices);
    if (rc == cudaSuccess && (device < 0 || device >= n_devices)) {
        error_set_param(error, ERR_NOT_FOUND, "device", "no CUDA device %d: there are %d", device, n_devices);
        return NULL;
    }
    if (rc == cudaSuccess) rc = cudaSetDevice(device);
    if (rc != cudaSuccess) {
        error_set_param(error, ERR_DEVICE, "device", "no usable CUDA device: %s", cudaGetErrorString(rc));
        return NULL;
    }
    return &table;
}
