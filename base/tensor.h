/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element types and the view of an n-dimensional array that somebody else owns. The numbers of DType are those of the
 * GGUF file format, so that a file's type id needs no translation. Any thread.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum DType {
    DTYPE_F32 = 0,
    DTYPE_F16 = 1,
    DTYPE_Q4_0 = 2,
    DTYPE_Q4_1 = 3,
    DTYPE_Q5_0 = 6,
    DTYPE_Q5_1 = 7,
    DTYPE_Q8_0 = 8,
    DTYPE_Q2_K = 10,
    DTYPE_Q3_K = 11,
    DTYPE_Q4_K = 12,
    DTYPE_Q5_K = 13,
    DTYPE_Q6_K = 14,
    DTYPE_IQ4_NL = 20,
    DTYPE_IQ4_XS = 23,
    DTYPE_BF16 = 30,
    DTYPE_MXFP4 = 39,
} DType;

typedef struct DTypeInfo {
    const char *name;
    uint32_t block_elements; /* elements that share a scale, along dim[0] */
    uint32_t block_bytes;
} DTypeInfo;

/* NULL for a type that longwave does not compute with. */
const DTypeInfo *dtype_info(DType type);
/* Also the formats that a file may hold without longwave computing with them; NULL for an unknown id. */
const DTypeInfo *dtype_known(uint32_t id);
/* The name, or "type 99" for an unknown id. */
typedef struct DTypeName {
    char text[16];
} DTypeName;
DTypeName dtype_name(uint32_t id);
/* Bytes of n elements, n a multiple of the block. */
size_t dtype_row_bytes(DType type, uint64_t n);

enum { TENSOR_MAX_DIMS = 4 };

typedef struct TensorView {
    const void *data;
    DType type;
    uint32_t n_dims;
    uint64_t dim[TENSOR_MAX_DIMS]; /* dim[0] is contiguous; unused ones are 1 */
} TensorView;

#ifdef __cplusplus
}
#endif
