/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_ORDINAL = 63 };

static void host_use(Device *device)
{
    (void)device;
}

static void *host_alloc(Device *device, uint64_t bytes)
{
    (void)device;
    void *memory = bytes > SIZE_MAX
                       ? MAP_FAILED
                       : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void host_free(Device *device, void *memory, uint64_t bytes)
{
    (void)device;
    if (memory) munmap(memory, bytes);
}

static bool host_copy(Device *device, void *to, const void *from, size_t n)
{
    (void)device;
    memcpy(to, from, n);
    return true;
}

static bool host_sync(Device *device)
{
    (void)device;
    return true;
}

static void host_close(Device *device)
{
    (void)device;
}

static size_t host_attend_scratch(const AttendNeed *need)
{
    return attend_scratch_bytes(need->n_workers, need->n_heads, need->max_dim, need->context);
}

/* What a graph or a fence would be for does not happen on the host. */
static const DeviceOps host_ops = {.use = host_use,
                                   .alloc = host_alloc,
                                   .free = host_free,
                                   .pin = host_alloc,
                                   .unpin = host_free,
                                   .copy = host_copy,
                                   .sync = host_sync,
                                   .close = host_close,
                                   .matmul_scratch = matmul_scratch_bytes,
                                   .attend_scratch = host_attend_scratch};

Device *device_host(void)
{
    static Device device = {.ops = &host_ops, .is_host = true, .name = "cpu"};
    return &device;
}

bool device_name_is_cuda(const char *name, int *ret_ordinal)
{
    *ret_ordinal = 0;
    if (!name || strncmp(name, "cuda", 4)) return false;
    if (!name[4]) return true;
    const char *digits = name + 5;
    size_t n = strlen(digits);
    if (name[4] != ':' || n < 1 || n > 2 || strspn(digits, "0123456789") != n) return false;
    *ret_ordinal = atoi(digits);
    return *ret_ordinal <= MAX_ORDINAL;
}

static bool open_cuda(int ordinal, Device **ret_device, Error *error)
{
#ifdef LW_CUDA
    return device_open_cuda(ordinal, ret_device, error);
#else
    (void)ordinal, (void)ret_device;
    return error_set_param(error, ERR_UNSUPPORTED, "device", "this build has no CUDA");
#endif
}

bool device_open(const char *name, Device **ret_device, Error *why_not, Error *error)
{
    int ordinal;
    bool is_auto = name && !strcmp(name, "auto");
    *why_not = (Error){0};
    if (device_name_is_cuda(name, &ordinal)) return open_cuda(ordinal, ret_device, error);
    if (!is_auto && name && strcmp(name, "cpu"))
        return error_set_param(error, ERR_INVALID, "device", "device '%.60s' is not auto, cpu, cuda or cuda:N", name);
    if (is_auto && open_cuda(0, ret_device, why_not)) return true;
    *ret_device = device_host();
    return true;
}

void device_close(Device *device)
{
    if (device) device->ops->close(device);
}
