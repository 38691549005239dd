/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU kernels of one instruction set. Meson compiles every *_cpu.c once for each row of its table with LW_ISA set
 * to the row's identifier, so that ISA(glu) is glu_avx2 in one object and glu_avx512 in another; kernels/table_cpu.c
 * picks a row at run time. Only sources compiled that way include this header.
 */
#pragma once
#include "kernels/linear/activations.h"
#include "kernels/table.h"

#define ISA_JOIN_NAMES(name, isa) name##_##isa
#define ISA_JOIN(name, isa) ISA_JOIN_NAMES(name, isa)
#define ISA(name) ISA_JOIN(name, LW_ISA)

bool ISA(embed)(const EmbedParams *params, Stream stream);
bool ISA(rmsnorm)(const RmsNormParams *params, Stream stream);
bool ISA(matmul)(const MatmulParams *params, Stream stream);
bool ISA(rope_table)(const RopeTableParams *params, Stream stream);
bool ISA(rope)(const RopeParams *params, Stream stream);
bool ISA(kv_store)(const KvStoreParams *params, Stream stream);
bool ISA(kv_bounds)(const KvBoundsParams *params, Stream stream);
bool ISA(scan)(const ScanParams *params, Stream stream);
bool ISA(attend)(const AttendParams *params, Stream stream);
bool ISA(glu)(const GluParams *params, Stream stream);
bool ISA(softcap)(const SoftcapParams *params, Stream stream);
bool ISA(vector_add)(const VectorAddParams *params, Stream stream);

/* Quantises one token; the same bits as activations_quantise_ref. */
void ISA(activations_quantise)(const Activations *activations, uint32_t t, const float *x);

/*
 * Parts of matmul: one group of 16 rows of out (the last one may be partial) for tokens [t0, t0 + n_tokens).
 * matmul_quant wants the activations in the block that its weight format goes with. A thread enters before its share of
 * a product with n_tokens tokens in all and leaves after it.
 */
void ISA(matmul_enter)(uint32_t n_tokens);
void ISA(matmul_leave)(uint32_t n_tokens);
enum { MATMUL_GROUP_ROWS = 16, MATMUL_TILE_TOKENS = 128 };
void ISA(matmul_quant)(const MatmulOut *out, uint32_t group, const Activations *activations, uint32_t t0,
                       uint32_t n_tokens);
void ISA(matmul_float)(const MatmulParams *params, const MatmulOut *out, uint32_t group, uint32_t t0,
                       uint32_t n_tokens);

/*
 * Parts of attend, for one sector as it lies in a page: channel c of its keys to ret + 64 c, values to rows of
 * attend_pad(v_dim); of quantised types the numbers alone, without scale and zero. Scales: [16] each. Of keys only the
 * blocks of bytes that hold the first n_channels are read.
 */
void ISA(kv_unpack_keys)(const KvLayout *layout, const char *sector, uint32_t n_channels, float *ret);
void ISA(kv_unpack_values)(const KvLayout *layout, const char *sector, float *ret);
void ISA(kv_unpack_scales)(const char *scales, float *ret_scale, float *ret_zero);

/* The first n_channels of a sector's keys as they are read, turned by cos_sin (rope_turns_get; NULL: not turned). */
void ISA(kv_read_keys)(const KvLayout *layout, const char *sector, uint32_t n_channels, const RopeTurns *turns,
                       const float *cos_sin, float *ret);
const KernelTable *ISA(kernels_table)(void);
