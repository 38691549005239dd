/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of cuBLAS that are used, under their own names, from a library that is looked for at the first call: a
 * program with the CUDA parts starts on a machine without any library of NVIDIA's.
 */
#include <cublas_v2.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define LIBRARY "libcublas.so." TEXT(CUBLAS_VER_MAJOR)

static void *library;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const char *const names[] = {LIBRARY, "/usr/local/cuda/lib64/" LIBRARY};
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++) library = dlopen(names[i], RTLD_NOW);
}

static void *find(const char *name)
{
    (void)pthread_once(&once, load);
    return library ? dlsym(library, name) : NULL;
}

/* Calls the function of this name, whose type is that of what stands here. */
#define FORWARD(name, ...)                                                                                             \
    static __typeof__(name) *found;                                                                                    \
    __typeof__(name) *call = __atomic_load_n(&found, __ATOMIC_RELAXED);                                                \
    if (!call) {                                                                                                       \
        call = (__typeof__(name) *)find(TEXT(name));                                                                   \
        __atomic_store_n(&found, call, __ATOMIC_RELAXED);                                                              \
    }                                                                                                                  \
    return call ? call(__VA_ARGS__) : CUBLAS_STATUS_NOT_INITIALIZED

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    FORWARD(cublasCreate_v2, handle);
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    FORWARD(cublasDestroy_v2, handle);
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
    FORWARD(cublasSetStream_v2, handle, stream);
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t n_bytes)
{
    FORWARD(cublasSetWorkspace_v2, handle, workspace, n_bytes);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t trans_a, cublasOperation_t trans_b, int m, int n,
                            int k, const void *alpha, const void *a, cudaDataType a_type, int lda, const void *b,
                            cudaDataType b_type, int ldb, const void *beta, void *c, cudaDataType c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    FORWARD(cublasGemmEx, handle, trans_a, trans_b, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type,
            ldc, compute, algo);
}
