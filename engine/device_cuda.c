/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/device.h"
#include "kernels/linear/matmul_queue.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLAS_WORKSPACE_BYTES = 64 << 20 };

typedef struct CudaDevice {
    Device device; /* first */
    int ordinal;
    cudaStream_t stream;
    cublasHandle_t blas;
    void *workspace;
    cudaEvent_t fences[DEVICE_FENCES];
} CudaDevice;

struct DeviceGraph {
    cudaGraphExec_t exec;
};

static CudaDevice *cuda_of(Device *device)
{
    return (CudaDevice *)device;
}

/* Remembers a failure. */
static bool checked(Device *device, cudaError_t rc)
{
    if (rc != cudaSuccess) device->has_failed = true;
    return rc == cudaSuccess;
}

/* Whatever is put on the stream besides kernels comes behind the products that wait. */
static bool send_products(Device *device)
{
    bool ok = matmul_queue_send(device->stream);
    if (!ok) device->has_failed = true;
    return ok;
}

/* A refusal that harms nothing is told, and not kept for the next launch. */
static bool accepted(cudaError_t rc)
{
    if (rc != cudaSuccess) (void)cudaGetLastError();
    return rc == cudaSuccess;
}

/* What is current belongs to the calling thread, and others change it too, so nothing is remembered of it here. */
static void cuda_use(Device *device)
{
    checked(device, cudaSetDevice(cuda_of(device)->ordinal));
}

static void *cuda_alloc(Device *device, uint64_t bytes)
{
    void *memory = NULL;
    if (!accepted(cudaMalloc(&memory, bytes))) return NULL;
    if (checked(device, cudaMemsetAsync(memory, 0, bytes, cuda_of(device)->stream))) return memory;
    (void)cudaFree(memory);
    return NULL;
}

static void cuda_free(Device *device, void *memory, uint64_t bytes)
{
    (void)bytes;
    if (memory) checked(device, cudaFree(memory));
}

static void *cuda_pin(Device *device, uint64_t bytes)
{
    void *memory = NULL;
    (void)device;
    return accepted(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault)) ? memory : NULL;
}

static void cuda_unpin(Device *device, void *memory, uint64_t bytes)
{
    (void)bytes;
    if (memory) checked(device, cudaFreeHost(memory));
}

static bool cuda_copy(Device *device, void *to, const void *from, size_t n)
{
    return n == 0 || (send_products(device) &&
                      checked(device, cudaMemcpyAsync(to, from, n, cudaMemcpyDefault, cuda_of(device)->stream)));
}

static bool cuda_sync(Device *device)
{
    return send_products(device) && checked(device, cudaStreamSynchronize(cuda_of(device)->stream));
}

static bool cuda_fence(Device *device, uint32_t i)
{
    return send_products(device) &&
           checked(device, cudaEventRecord(cuda_of(device)->fences[i], cuda_of(device)->stream));
}

static bool cuda_wait(Device *device, uint32_t i)
{
    return checked(device, cudaEventSynchronize(cuda_of(device)->fences[i]));
}

static bool cuda_graph_begin(Device *device)
{
    return send_products(device) &&
           accepted(cudaStreamBeginCapture(cuda_of(device)->stream, cudaStreamCaptureModeThreadLocal));
}

static DeviceGraph *cuda_graph_end(Device *device)
{
    cudaGraph_t captured = NULL;
    DeviceGraph *graph = calloc(1, sizeof *graph);
    bool all_sent = send_products(device);
    if (!accepted(cudaStreamEndCapture(cuda_of(device)->stream, &captured)) || !graph || !all_sent) goto failed;
    if (!accepted(cudaGraphInstantiate(&graph->exec, captured, 0))) goto failed;
    (void)cudaGraphDestroy(captured);
    return graph;
failed:
    if (captured) (void)cudaGraphDestroy(captured);
    free(graph);
    return NULL;
}

static bool cuda_graph_run(Device *device, DeviceGraph *graph)
{
    return send_products(device) && checked(device, cudaGraphLaunch(graph->exec, cuda_of(device)->stream));
}

static void cuda_graph_free(DeviceGraph *graph)
{
    if (!graph) return;
    (void)cudaGraphExecDestroy(graph->exec);
    free(graph);
}

static void cuda_close(Device *device)
{
    CudaDevice *cuda = cuda_of(device);
    cuda_use(device);
    for (int i = 0; i < DEVICE_FENCES; i++)
        if (cuda->fences[i]) (void)cudaEventDestroy(cuda->fences[i]);
    if (cuda->blas) (void)cublasDestroy(cuda->blas);
    if (cuda->workspace) (void)cudaFree(cuda->workspace);
    matmul_queue_free(device->stream.queue);
    if (cuda->stream) (void)cudaStreamDestroy(cuda->stream);
    free(cuda);
}

static size_t cuda_attend_scratch(const AttendNeed *need)
{
    return attend_cuda_scratch_bytes(need->split_rows, need->n_heads, need->n_kv_heads, need->max_dim,
                                     need->is_deterministic);
}

static const DeviceOps cuda_ops = {.use = cuda_use,
                                   .alloc = cuda_alloc,
                                   .free = cuda_free,
                                   .pin = cuda_pin,
                                   .unpin = cuda_unpin,
                                   .copy = cuda_copy,
                                   .sync = cuda_sync,
                                   .close = cuda_close,
                                   .matmul_scratch = matmul_cuda_scratch_bytes,
                                   .attend_scratch = cuda_attend_scratch,
                                   .digest_scratch = digest_scratch_bytes,
                                   .fence = cuda_fence,
                                   .wait = cuda_wait,
                                   .graph_begin = cuda_graph_begin,
                                   .graph_end = cuda_graph_end,
                                   .graph_run = cuda_graph_run,
                                   .graph_free = cuda_graph_free};

/* cuBLAS would take a workspace of its own at the first product, which a graph cannot. */
static bool open_blas(CudaDevice *cuda)
{
    return cudaMalloc(&cuda->workspace, BLAS_WORKSPACE_BYTES) == cudaSuccess &&
           cublasCreate(&cuda->blas) == CUBLAS_STATUS_SUCCESS &&
           cublasSetStream(cuda->blas, cuda->stream) == CUBLAS_STATUS_SUCCESS &&
           cublasSetWorkspace(cuda->blas, cuda->workspace, BLAS_WORKSPACE_BYTES) == CUBLAS_STATUS_SUCCESS;
}

static bool open_parts(CudaDevice *cuda, Error *error)
{
    size_t free_bytes = 0, total_bytes = 0;
    struct cudaDeviceProp properties;
    cudaError_t rc = cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking);
    for (int i = 0; rc == cudaSuccess && i < DEVICE_FENCES; i++)
        rc = cudaEventCreateWithFlags(&cuda->fences[i], cudaEventDisableTiming);
    if (rc == cudaSuccess) rc = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (rc == cudaSuccess) rc = cudaGetDeviceProperties(&properties, cuda->ordinal);
    if (rc != cudaSuccess)
        return error_set_param(error, ERR_DEVICE, "device", "CUDA device %d cannot be used: %s", cuda->ordinal,
                               cudaGetErrorString(rc));
    if (!open_blas(cuda))
        return error_set_param(error, ERR_DEVICE, "device",
                               "cuBLAS (libcublas.so.%d) cannot be loaded, or not be used on CUDA device %d",
                               CUBLAS_VER_MAJOR, cuda->ordinal);
    cuda->device.stream.queue = matmul_queue_new();
    if (!cuda->device.stream.queue)
        return error_set_param(error, ERR_NO_MEMORY, "device", "no memory on CUDA device %d", cuda->ordinal);
    cuda->device.total_bytes = total_bytes;
    cuda->device.free_bytes = free_bytes;
    cuda->device.stream.native = cuda->stream;
    cuda->device.stream.blas = cuda->blas;
    snprintf(cuda->device.name, sizeof cuda->device.name, "cuda:%d (%.64s)", cuda->ordinal, properties.name);
    return true;
}

bool device_open_cuda(int ordinal, Device **ret_device, Error *error)
{
    const KernelTable *kernels = kernels_cuda(ordinal, error);
    if (!kernels) return false;
    CudaDevice *cuda = calloc(1, sizeof *cuda);
    if (!cuda) return error_set(error, ERR_NO_MEMORY, "no memory for a CUDA device");
    cuda->device.ops = &cuda_ops;
    cuda->device.kernels = kernels;
    cuda->ordinal = ordinal;
    if (!open_parts(cuda, error)) {
        cuda_close(&cuda->device);
        return false;
    }
    *ret_device = &cuda->device;
    return true;
}
