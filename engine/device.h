/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where an engine computes: the host itself, or a CUDA device with memory of its own. What is enqueued runs in order on
 * one stream; device_sync waits for all of it, device_copy to ordinary host memory for itself. A CUDA device that has
 * failed once is not to be trusted any more: has_failed stays. One thread at a time, after device_use on it.
 */
#pragma once
#include "kernels/table.h"

typedef struct Device Device;
typedef struct DeviceGraph DeviceGraph; /* a sequence of launches that runs as one */

/* The most that attention will be asked for. */
typedef struct AttendNeed {
    uint32_t n_workers, context; /* the host */
    uint32_t split_rows;         /* a device: of all split spans of a call together */
    bool is_deterministic;
    uint32_t n_heads, n_kv_heads, max_dim;
} AttendNeed;

typedef struct DeviceOps {
    void (*use)(Device *device);
    void *(*alloc)(Device *device, uint64_t bytes); /* zeros, aligned to 256; NULL: no memory */
    void (*free)(Device *device, void *memory, uint64_t bytes);
    void *(*pin)(Device *device, uint64_t bytes); /* host memory that copies need not stage; NULL: no memory */
    void (*unpin)(Device *device, void *memory, uint64_t bytes);
    bool (*copy)(Device *device, void *to, const void *from, size_t n);
    bool (*sync)(Device *device);
    void (*close)(Device *device);
    size_t (*matmul_scratch)(uint32_t n_tokens, uint32_t n_cols);
    size_t (*attend_scratch)(const AttendNeed *need);
    size_t (*digest_scratch)(uint32_t max_rows, uint32_t n_vocab); /* of a device */
    /* Fences: fence(i) marks the place that work has come to, wait(i) waits until that place is reached. */
    bool (*fence)(Device *device, uint32_t i);
    bool (*wait)(Device *device, uint32_t i);
    /* What is enqueued between begin and end becomes a graph instead of running. Both may fail and harm nothing: what
     * would have been the graph did not run. */
    bool (*graph_begin)(Device *device);
    DeviceGraph *(*graph_end)(Device *device); /* NULL: no graph */
    bool (*graph_run)(Device *device, DeviceGraph *graph);
    void (*graph_free)(DeviceGraph *graph); /* NULL is fine */
} DeviceOps;

enum { DEVICE_FENCES = 8 };

struct Device {
    const DeviceOps *ops;
    const KernelTable *kernels;
    Stream stream; /* its thread pool is the engine's */
    bool is_host;
    bool has_failed;
    uint64_t total_bytes; /* of the device; 0: the host */
    uint64_t free_bytes;  /* of them, what nobody held when it was opened */
    char name[96];        /* "cuda:0 (NVIDIA H200)", "cpu-avx2" */
};

/*
 * name: "cpu", "cuda" or "cuda:N", or "auto": a CUDA device where there is one that this build can use, else the CPU;
 * why_not says why then, or has ERR_NONE. NULL is "cpu". Any other failure is an error.
 */
LW_CHECK bool device_open(const char *name, Device **ret_device, Error *why_not, Error *error);
void device_close(Device *device); /* NULL is fine */

/* "cuda", "cuda:N" -> the number of the device; false: the name says something else. */
bool device_name_is_cuda(const char *name, int *ret_ordinal);

static inline void device_use(Device *device)
{
    device->ops->use(device);
}

/* Between any two places: memory of the device, pinned or ordinary host memory. */
LW_CHECK static inline bool device_copy(Device *device, void *to, const void *from, size_t n)
{
    return device->ops->copy(device, to, from, n);
}

LW_CHECK static inline bool device_sync(Device *device)
{
    return device->ops->sync(device);
}

Device *device_host(void); /* needs no closing; its stream has no threads */
#ifdef LW_CUDA
LW_CHECK bool device_open_cuda(int ordinal, Device **ret_device, Error *error);
#endif
