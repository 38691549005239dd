/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where kernels run: a CPU thread pool or a CUDA stream. Kernel functions take it as their second argument; the
 * reference twins take none and run on the caller's thread. The engine thread owns it.
 */
#pragma once
#include "base/threads.h"

typedef struct MatmulQueue MatmulQueue;

typedef struct Stream {
    ThreadPool *pool;   /* CPU; NULL means the caller's thread alone */
    void *native;       /* cudaStream_t; NULL on the CPU */
    void *blas;         /* cublasHandle_t on that stream, with a workspace of its own; for matmul of many tokens */
    MatmulQueue *queue; /* products that have not been launched yet (matmul_queue.h); NULL: all are at once */
} Stream;
