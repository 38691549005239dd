/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a weight matrix lies in device memory: in tiles of 16 rows, packed once when it is uploaded, so that every lane
 * of a warp reads aligned 16-byte pieces and has its share of a tensor core's operand in them. Columns are padded with
 * zeros to whole units, rows to whole tiles. Any thread; a tile can be packed alone.
 *
 * F32, F16, BF16: 16 rows, one after another. Quantised types: 16 row factors (fp32, in 128 bytes), then one unit after
 * another. In a unit lane 4 g + t holds, of rows g and g + 8, columns 32 t .. 32 t + 31 of each 128: the quants in
 * planes of bits, scales, and the block's own scale. A row's values are stored times a power of two, and its factor
 * undoes that: it brings d to the top of the range of binary16, in which the kernels multiply.
 */
#pragma once
#include "base/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

enum {
    DEVICE_TILE_ROWS = 16,
    DEVICE_TILE_HEAD_BYTES = 128,
    DEVICE_UNIT_ALIGN = 128, /* units are copied one by one: lines of memory that two share are read twice */
    DEVICE_FLOAT_UNIT_COLS = 64,
    DEVICE_ROW_EXPONENT = 24, /* a stored value is quant * 2^-24 * scale: the quant's bits are read as binary16 */
};

/* One row of the table of quantised formats. */
typedef struct DeviceFormat {
    DType type;
    uint32_t unit_cols;
    uint32_t low_bits, high_bits; /* of a quant, each in its own plane; high_bits may be 0 */
    uint32_t bias;                /* added to BlockValues.q */
    uint32_t part_cols;           /* columns that share a scale inside a block of 256: 32 or 16 */
    bool is_looked_up;            /* low plane: the file's own nibbles, in order */
    bool has_min;
    uint32_t scale_bytes; /* a lane's, see device_layout.c */
    uint32_t head_bytes;  /* of rows g and g + 8, for formats in blocks of 256 */
} DeviceFormat;

/* NULL: not a quantised type of the table. */
const DeviceFormat *device_format(DType type);
size_t device_unit_bytes(const DeviceFormat *format);

/* Columns with the padding; 0 for a type that has no layout. */
uint32_t device_padded_cols(DType type, uint32_t n_cols);
size_t device_tile_bytes(DType type, uint32_t n_cols);
size_t device_matrix_bytes(DType type, uint32_t n_rows, uint32_t n_cols);
/* Packs tiles [first_tile, first_tile + n_tiles) of a matrix whose rows lie as in the file. False: no layout. */
bool device_matrix_pack(DType type, const void *rows, uint32_t n_rows, uint32_t n_cols, uint32_t first_tile,
                        uint32_t n_tiles, void *ret);

#ifdef __cplusplus
}
#endif
