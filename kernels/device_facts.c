/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/device_facts.h"

#include <cuda_runtime_api.h>

enum { MAX_DEVICES = 64, MIN_CAPABILITY = 80 };

static DeviceFacts facts[MAX_DEVICES];

static bool get(cudaError_t *rc, int *ret, enum cudaDeviceAttr attribute, int device)
{
    if (*rc == cudaSuccess) *rc = cudaDeviceGetAttribute(ret, attribute, device);
    return *rc == cudaSuccess;
}

static bool read_attributes(int device, DeviceFacts *ret, int *ret_capability, Error *error)
{
    cudaError_t rc = cudaSuccess;
    int major = 0, minor = 0, n = 0, block = 0, processor = 0;
    get(&rc, &major, cudaDevAttrComputeCapabilityMajor, device);
    get(&rc, &minor, cudaDevAttrComputeCapabilityMinor, device);
    get(&rc, &n, cudaDevAttrMultiProcessorCount, device);
    get(&rc, &block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (!get(&rc, &processor, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device))
        return error_set_param(error, ERR_DEVICE, "device", "CUDA device %d cannot be asked for its properties: %s",
                               device, cudaGetErrorString(rc));
    *ret_capability = 10 * major + minor;
    *ret = (DeviceFacts){.n_multiprocessors = (uint32_t)n,
                         .block_shared_bytes = (size_t)block,
                         .processor_shared_bytes = (size_t)processor,
                         .has_dependent_launch = major >= 9,
                         .has_group_products = major == 9 && minor == 0};
    return true;
}

bool device_facts_read(int device, Error *error)
{
    int n_devices = 0, capability = 0;
    DeviceFacts read;
    cudaError_t rc = cudaGetDeviceCount(&n_devices);
    if (rc != cudaSuccess)
        return error_set_param(error, ERR_DEVICE, "device", "no usable CUDA device: %s", cudaGetErrorString(rc));
    if (device < 0 || device >= n_devices || device >= MAX_DEVICES)
        return error_set_param(error, ERR_NOT_FOUND, "device", "no CUDA device %d: there are %d", device, n_devices);
    if (!read_attributes(device, &read, &capability, error)) return false;
    if (capability < MIN_CAPABILITY)
        return error_set_param(error, ERR_UNSUPPORTED, "device",
                               "CUDA device %d has compute capability %d.%d; at least %d.%d is needed", device,
                               capability / 10, capability % 10, MIN_CAPABILITY / 10, MIN_CAPABILITY % 10);
    rc = cudaSetDevice(device);
    if (rc != cudaSuccess)
        return error_set_param(error, ERR_DEVICE, "device", "CUDA device %d cannot be used: %s", device,
                               cudaGetErrorString(rc));
    facts[device] = read;
    return true;
}

void device_facts_use_old_code(void)
{
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess || device >= MAX_DEVICES) return;
    facts[device].has_dependent_launch = facts[device].has_group_products = false;
}

const DeviceFacts *device_facts(void)
{
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess || device >= MAX_DEVICES) return NULL;
    return facts[device].n_multiprocessors ? &facts[device] : NULL;
}
