/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that engine/ sees of the kernels: one struct of function pointers, filled once for a device. A kernel returns
 * false only for parameters it has no variant for, which the checks of a model at start-up rule out, or for a device
 * error.
 */
#pragma once
#include "kernels/attention/attend.h"
#include "kernels/attention/kv_bounds.h"
#include "kernels/attention/kv_store.h"
#include "kernels/linear/matmul.h"
#include "kernels/pointwise/embed.h"
#include "kernels/pointwise/glu.h"
#include "kernels/pointwise/rmsnorm.h"
#include "kernels/pointwise/rope.h"
#include "kernels/pointwise/softcap.h"
#include "kernels/pointwise/vector_add.h"
#include "kernels/sample/digest.h"
#include "kernels/select/scan.h"
#include "kernels/select/select.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct KernelTable {
    const char *name;    /* "cpu-amx-int8", "cpu-avx512-vnni", "cpu-avx2", "cpu-scalar", "cuda" */
    bool matmul_fuses;   /* matmul takes a norm or a gate of its input, and a gate of its results */
    bool kv_store_turns; /* kv_store norms and rotates Q and K: KvStoreParams.turn */
    bool attend_stores;  /* attend turns and stores the rows of a decode step: AttendParams.k */
    bool (*embed)(const EmbedParams *, Stream);
    bool (*rmsnorm)(const RmsNormParams *, Stream);
    bool (*matmul)(const MatmulParams *, Stream);
    bool (*rope_table)(const RopeTableParams *, Stream);
    bool (*rope)(const RopeParams *, Stream);
    bool (*kv_store)(const KvStoreParams *, Stream);
    bool (*kv_bounds)(const KvBoundsParams *, Stream);
    bool (*scan)(const ScanParams *, Stream);
    bool (*select)(const SelectParams *, Stream); /* where a device selects: NULL on the CPU, as scan on a device */
    bool (*attend)(const AttendParams *, Stream);
    bool (*glu)(const GluParams *, Stream);
    bool (*softcap)(const SoftcapParams *, Stream);
    bool (*vector_add)(const VectorAddParams *, Stream);
    bool (*digest)(const DigestParams *, Stream); /* of a device, as select */
} KernelTable;

/* The best row for this machine; and every row that it can run, best first, NULL past the last. */
const KernelTable *kernels_cpu(void);
const KernelTable *kernels_cpu_row(size_t i);
const KernelTable *kernels_ref(void); /* the reference twins behind the same interface, one thread: for tests */
#ifdef LW_CUDA
/* NULL and a message when the device is not usable. Kernels that have no CUDA form yet are NULL in it. */
const KernelTable *kernels_cuda(int device, Error *error);
#endif

#ifdef __cplusplus
}
#endif
