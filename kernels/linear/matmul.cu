/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/matmul.h"

#include "kernels/launch.cuh"
#include "kernels/linear/device_layout.h"
#include "kernels/linear/gemm.h"
#include "kernels/linear/gemv.h"
#include "kernels/linear/gemv_f32.h"
#include "kernels/linear/operand.h"
#include "kernels/linear/widen.h"

#include <cublas_v2.h>

namespace lw
{
namespace
{

constexpr size_t kAlign = 256, kWideBytes = (size_t)64 << 20; /* weights of one cuBLAS call, in bfloat16 */

size_t aligned(size_t n)
{
    return (n + kAlign - 1) / kAlign * kAlign;
}

uint32_t operand_cols(uint32_t n_cols)
{
    return (n_cols + OPERAND_COL_STEP - 1) / OPERAND_COL_STEP * OPERAND_COL_STEP;
}

size_t wide_bytes(uint32_t n_cols)
{
    size_t tile = (size_t)DEVICE_TILE_ROWS * operand_cols(n_cols) * sizeof(uint16_t);
    return tile > kWideBytes ? tile : kWideBytes;
}

template <class Row> const Row *find_in(const Row *(*rows_of)(uint32_t *), DType type)
{
    uint32_t n = 0;
    const Row *rows = rows_of(&n);
    for (uint32_t i = 0; i < n; i++)
        if (rows[i].type == type) return &rows[i];
    return nullptr;
}

const GemvRow *gemv_row_of(DType type)
{
    const GemvRow *row = find_in(gemv_rows_32, type);
    if (!row) row = find_in(gemv_rows_k, type);
    return row ? row : find_in(gemv_rows_float, type);
}

/* ---- 17 to 64 tokens ---- */

struct WideForm {
    const GemvWideRow *row;
    GemvKernel kernel; /* NULL: the type, the device or the number of tokens has none */
    uint32_t n_stages;
    size_t shared_bytes;

    explicit operator bool() const
    {
        return kernel != nullptr;
    }
};

const GemvWideRow *wide_row_of(DType type)
{
    const GemvWideRow *row = find_in(gemv_wide_rows_32, type);
    return row ? row : find_in(gemv_wide_rows_k, type);
}

WideForm wide_form_of(const MatmulParams *params, DType type)
{
    const DeviceFacts *facts = device_facts();
    const GemvWideRow *row = wide_row_of(type);
    WideForm ret = {};
    if (!facts || !row || params->is_deterministic || params->n_tokens <= GEMV_MAX_TOKENS) return ret;
    const size_t limit = facts->block_shared_bytes - GEMV_STATIC_BYTES;
    for (const auto &form : row->form) {
        if (params->n_tokens > form.n_tokens) continue;
        if (form.sum_bytes + row->stage_bytes > limit) return ret;
        const size_t n_stages = (limit - form.sum_bytes) / row->stage_bytes;
        ret.row = row;
        ret.kernel = form.kernel;
        ret.n_stages = n_stages < GEMV_MAX_STAGES ? (uint32_t)n_stages : (uint32_t)GEMV_MAX_STAGES;
        ret.shared_bytes = ret.n_stages * (size_t)row->stage_bytes + form.sum_bytes;
        return ret;
    }
    return ret;
}

/* ---- more than 16 tokens, where warp groups multiply ---- */

bool is_for_gemm(const MatmulParams *params, DType type)
{
    return !params->is_deterministic && params->n_tokens > GEMV_MAX_TOKENS && params->n_tokens <= GEMM_MOST_TOKENS &&
           gemm_takes(type, params->n_tokens);
}

/* ---- the operand ---- */

struct Scratch {
    Operand operand;
    GemmScratch gemm;
    uint16_t *wide; /* [tiles of 16 rows, padded columns]; only for many tokens */
};

/* All arrays that n_tokens may want; ret may be NULL. The bytes of all. */
size_t lay_out(char *start, uint32_t n_tokens, uint32_t n_cols, Scratch *ret)
{
    const bool few = n_tokens <= MATMUL_CUDA_ROWS;
    const size_t cols = operand_cols(n_cols), n = n_tokens * cols;
    const size_t of_16 = aligned(n * sizeof(uint16_t)), of_32 = aligned(n * sizeof(float));
    size_t at = aligned(n_tokens * sizeof(float)), bfloat = at, full = bfloat + of_16, half = full + of_32;
    size_t pieces = half + 3 * of_16, of_pieces = aligned(operand_piece_tokens(n_tokens) * cols * sizeof(uint16_t));
    size_t end = few ? pieces + of_pieces : half + wide_bytes(n_cols);
    end = gemm_lay_out(start, end, n_tokens, (uint32_t)cols, ret ? &ret->gemm : nullptr);
    if (!ret) return end;
    ret->operand.scale = (float *)start;
    ret->operand.bfloat = (uint16_t *)(start + bfloat);
    ret->operand.full = (float *)(start + full);
    ret->operand.half = few ? (uint16_t *)(start + half) : nullptr;
    ret->operand.half_low = few ? (uint16_t *)(start + half + of_16) : nullptr;
    ret->operand.bfloat_low = few ? (uint16_t *)(start + half + 2 * of_16) : nullptr;
    ret->operand.pieces = few ? (uint16_t *)(start + pieces) : nullptr;
    ret->operand.n_groups = operand_piece_tokens(n_tokens) / 8;
    ret->operand.cols = (uint32_t)cols;
    ret->wide = few ? nullptr : (uint16_t *)(start + half);
    return end;
}

/* Keeps the arrays that the outputs' types read. */
void keep_wanted(const MatmulParams *params, Operand *operand)
{
    bool half = false, half_low = false, bfloat = false, full = false, pieces = false;
    for (uint32_t i = 0; i < params->n_out; i++) {
        DType type = params->out[i].type;
        if (is_for_gemm(params, type)) continue;
        full |= type == DTYPE_F32;
        half_low |= type == DTYPE_F16;
        bfloat |= type == DTYPE_BF16;
        if (wide_form_of(params, type))
            pieces = true;
        else
            half |= type != DTYPE_F32 && type != DTYPE_BF16;
    }
    if (!pieces) operand->pieces = nullptr;
    if (params->n_tokens > MATMUL_CUDA_ROWS) bfloat |= half;
    if (!half) operand->half = nullptr;
    if (!half_low) operand->half_low = nullptr;
    if (!bfloat) operand->bfloat = operand->bfloat_low = nullptr;
    if (!full) operand->full = nullptr;
}

/* ---- few tokens ---- */

uint32_t at_most(uint32_t x, uint32_t most)
{
    return x < most ? x : most;
}

size_t shared_limit(const DeviceFacts *facts)
{
    return facts->block_shared_bytes - GEMV_STATIC_BYTES;
}

/* The form for 8 wants so much for its rings that devices with little shared memory use the other, which is slower. */
const GemvForm &form_of(const GemvRow *row, const DeviceFacts *facts, uint32_t n_tokens)
{
    const GemvForm &form = row->by_8;
    const size_t stage = (size_t)form.n_warps * form.n_tiles * row->unit_bytes, limit = shared_limit(facts);
    return n_tokens <= 8 && stage + stage / 2 <= limit ? form : row->by_16;
}

/* Shares a multiprocessor's shared memory out; x is held in parts where it is too large. */
bool plan_shared(const GemvRow *row, const DeviceFacts *facts, GemvArgs *args, size_t *ret_bytes)
{
    const GemvForm &form = form_of(row, facts, args->n_tokens);
    const uint32_t n_warps = form.n_warps;
    const size_t tiles = (size_t)n_warps * form.n_tiles;
    const size_t stage = tiles * row->unit_bytes, kinds = row->is_split ? 2 : 1;
    const size_t limit = shared_limit(facts);
    const size_t x_row = (size_t)row->unit_cols * 2, pads = kinds * args->n_tokens * GEMV_X_PAD_BYTES;
    const size_t x = kinds * args->n_tokens * x_row * args->n_units + pads;
    args->n_buffers = args->n_tokens <= 4 ? GEMV_MAX_BUFFERS : 1;
    const size_t sums = args->n_buffers * tiles * args->n_tokens * GEMV_RED_STRIDE * sizeof(float);
    args->chunk_units = args->n_units;
    if (sums + x + stage > limit) { /* then x in parts that every warp has a share in */
        size_t ring = sums + pads + 2 * stage + kinds * args->n_tokens * x_row <= limit ? 2 * stage : stage;
        if (sums + pads + ring > limit) return false;
        uint32_t units = (uint32_t)((limit - sums - pads - ring) / (kinds * args->n_tokens * x_row));
        if (units >= n_warps) units -= units % n_warps;
        if (units == 0) return false;
        if (units < args->chunk_units) args->chunk_units = units;
    }
    const size_t held = sums + pads + kinds * args->n_tokens * x_row * args->chunk_units;
    args->n_stages = at_most((uint32_t)((limit - held) / stage), GEMV_MAX_STAGES);
    args->n_first = at_most(args->n_stages, row->is_split ? 2 : 1);
    *ret_bytes = held + args->n_stages * stage;
    return args->n_stages > 0;
}

/* Whether the kernel of out[0]'s type gates the results of up to 8 tokens itself. */
bool gates_inside(const MatmulParams *params)
{
    const MatmulOut *out = params->out;
    const DeviceFacts *facts = device_facts();
    const GemvRow *row = gemv_row_of(out[0].type);
    bool good = params->is_gated && facts && row && out[0].type == out[1].type;
    for (uint32_t i = 2; i < params->n_out; i++) good &= out[i].type != out[0].type;
    if (good && (is_for_gemm(params, row->type) || wide_form_of(params, row->type))) return true;
    good &= row && &form_of(row, facts, 8) == &row->by_8;
    if (!good || params->n_tokens > (params->is_deterministic ? MATMUL_CUDA_ROWS : 8)) return false;
    /* A gate takes whole sums, so x may not come in parts. */
    GemvArgs args = {};
    size_t shared_bytes;
    args.n_units = device_padded_cols(row->type, params->n_cols) / row->unit_cols;
    args.n_tokens = params->is_deterministic ? 1 : params->n_tokens;
    return plan_shared(row, facts, &args, &shared_bytes) && args.chunk_units == args.n_units;
}

/* Outputs of params that have row's type, tokens [t0, t0 + n). */
GemvArgs gemv_args(const MatmulParams *params, const Operand &x, const GemvRow *row, const GemvForm &form, uint32_t t0,
                   uint32_t n, bool is_raw)
{
    GemvArgs args = {};
    const bool is_bfloat = row->type == DTYPE_BF16;
    const size_t at = (size_t)t0 * x.cols;
    for (uint32_t i = 0; i < params->n_out; i++) {
        const MatmulOut &out = params->out[i];
        if (out.type != row->type || out.n_rows == 0) continue;
        args.out[args.n_out++] = {
            (const char *)out.w, out.y + t0 * out.y_stride, out.bias, out.y_stride, out.n_rows, args.n_tiles,
            out.accumulate};
        args.n_tiles += (out.n_rows + DEVICE_TILE_ROWS - 1) / DEVICE_TILE_ROWS;
    }
    args.n_units = device_padded_cols(row->type, params->n_cols) / row->unit_cols;
    args.n_tokens = n;
    args.tile_bytes = device_tile_bytes(row->type, params->n_cols);
    args.is_glu = gates_inside(params) && params->out[0].type == row->type;
    args.activation = params->glu_activation;
    args.pass_step = args.tile_bytes * (args.is_glu ? 1 : form.n_tiles);
    args.x = (is_bfloat ? x.bfloat : x.half) + at;
    args.x_low = !row->is_split ? nullptr : (is_bfloat ? x.bfloat_low : x.half_low) + at;
    args.x_scale = is_bfloat ? nullptr : x.scale + t0;
    args.x_stride = x.cols;
    args.raw = operand_source(params);
    args.is_raw = is_raw;
    return args;
}

/* Whether every block may make its operand by itself, which saves a launch: few tokens that shared memory holds. */
bool can_be_raw(const MatmulParams *params, const Operand &x)
{
    const DeviceFacts *facts = device_facts();
    if (!facts || params->is_deterministic || params->n_tokens > GEMV_MAX_RAW_TOKENS) return false;
    if (!operand_source(params).is_aligned || params->glu_up) return false;
    for (uint32_t i = 0; i < params->n_out; i++) {
        const GemvRow *row = gemv_row_of(params->out[i].type);
        size_t shared_bytes;
        if (!row || &form_of(row, facts, params->n_tokens) != &row->by_8) return false;
        GemvArgs args = gemv_args(params, x, row, row->by_8, 0, params->n_tokens, true);
        uint32_t n_warps = row->by_8.n_warps, warp_units = (args.n_units + n_warps - 1) / n_warps;
        uint32_t most = GEMV_MAX_RAW_COLS / (params->norm_weight ? 2 : 1);
        if (warp_units * row->unit_cols * n_warps > most) return false;
        if (!plan_shared(row, facts, &args, &shared_bytes) || args.chunk_units < args.n_units) return false;
    }
    return true;
}

uint32_t share_tiles(const DeviceFacts *facts, GemvArgs *args)
{
    const uint32_t blocks = at_most(gemv_groups(*args), facts->n_multiprocessors);
    gemv_share(args, blocks);
    return blocks;
}

bool run_gemv(const MatmulParams *params, const Operand &x, const GemvRow *row, bool is_raw, Stream stream)
{
    const DeviceFacts *facts = device_facts();
    for (uint32_t t0 = 0, n; facts && t0 < params->n_tokens; t0 += n) {
        n = at_most(params->n_tokens - t0, params->is_deterministic ? 8 : GEMV_MAX_TOKENS);
        const GemvForm &form = form_of(row, facts, n); /* for up to 8 tokens the same one */
        GemvArgs args = gemv_args(params, x, row, form, t0, n, is_raw);
        size_t shared_bytes = 0;
        if (args.n_tiles == 0) return true;
        if (!plan_shared(row, facts, &args, &shared_bytes)) return false;
        while (params->is_deterministic && n > 1 && args.chunk_units < args.n_units) { /* parts of x are added apart */
            args = gemv_args(params, x, row, form, t0, --n, is_raw);
            if (!plan_shared(row, facts, &args, &shared_bytes)) return false;
        }
        const uint32_t blocks = share_tiles(facts, &args);
        if (!launch(form.kernel, dim3(blocks), 32 * form.n_warps, shared_bytes, stream, args)) return false;
    }
    return facts != nullptr;
}

/* ---- one or two tokens ---- */

/* Whether kernels for so few take all products; run: they do. False: one cannot, or a launch failed. */
bool dot_products(const MatmulParams *params, bool run, Stream stream)
{
    const Operand none = {};
    for (uint32_t i = 0; i < params->n_out; i++) {
        const GemvRow *row = gemv_row_of(params->out[i].type);
        bool is_done = false; /* together with an earlier output */
        for (uint32_t j = 0; j < i; j++) is_done |= params->out[j].type == params->out[i].type;
        if (!row) return false;
        const GemvArgs args = gemv_args(params, none, row, row->by_8, 0, params->n_tokens, true);
        if (is_done || args.n_tiles == 0) continue;
        if (run ? !gemv_chain_add(row, args, stream) : !gemv_chain_fits(row, args)) return false;
    }
    return true;
}

/* Their sums follow the grid, so a token's bits are not those that it has in a batch. */
bool can_dot(const MatmulParams *params)
{
    return params->n_tokens <= GEMV_DOT_TOKENS && !params->is_deterministic && !params->glu_up &&
           operand_source(params).is_aligned && dot_products(params, false, Stream{});
}

bool run_wide(const MatmulParams *params, const Operand &x, const WideForm &wide, Stream stream)
{
    const DeviceFacts *facts = device_facts();
    const GemvRow *row = gemv_row_of(wide.row->type);
    GemvArgs args = gemv_args(params, x, row, row->by_16, 0, params->n_tokens, false);
    if (!facts || args.n_tiles == 0) return facts != nullptr;
    args.x = x.pieces;
    args.n_stages = wide.n_stages;
    const uint32_t blocks = share_tiles(facts, &args);
    return launch(wide.kernel, dim3(blocks), wide.row->n_threads, wide.shared_bytes, stream, args);
}

bool run_f32(const MatmulParams *params, const Operand &x, Stream stream)
{
    for (uint32_t i = 0; i < params->n_out; i++) {
        const MatmulOut &out = params->out[i];
        if (out.type != DTYPE_F32 || out.n_rows == 0) continue;
        GemvF32Args args = {
            (const float *)out.w, x.full,        out.y,      out.bias,
            out.y_stride,         x.cols,        out.n_rows, device_padded_cols(DTYPE_F32, params->n_cols),
            params->n_tokens,     out.accumulate};
        if (!gemv_f32_launch(&args, stream)) return false;
    }
    return true;
}

/* ---- cuBLAS ---- */

__global__ void add_bias(float *y, size_t y_stride, const float *bias, uint32_t n_rows, uint32_t n_tokens)
{
    grid_release();
    grid_wait();
    for (uint32_t r = blockIdx.x * blockDim.x + threadIdx.x; r < n_rows; r += gridDim.x * blockDim.x)
        for (uint32_t t = blockIdx.y; t < n_tokens; t += gridDim.y) y[t * y_stride + r] += bias[r];
}

/* Rows [row, row + n) of out; w is their start, in type. */
bool run_blas(const MatmulParams *params, const MatmulOut &out, const Operand &x, const void *w, cudaDataType type,
              uint32_t row, uint32_t n, Stream stream)
{
    const float one = 1, beta = out.accumulate ? 1 : 0;
    const int cols = (int)device_padded_cols(out.type, params->n_cols);
    const void *from = type == CUDA_R_32F ? (const void *)x.full : x.bfloat;
    return matmul_queue_send(stream) &&
           cublasGemmEx((cublasHandle_t)stream.blas, CUBLAS_OP_T, CUBLAS_OP_N, (int)n, (int)params->n_tokens, cols,
                        &one, w, type, cols, from, type, (int)x.cols, &beta, out.y + row, CUDA_R_32F, (int)out.y_stride,
                        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS;
}

bool run_bias(const MatmulParams *params, const MatmulOut &out, Stream stream)
{
    constexpr unsigned kThreads = 256;
    return !out.bias || launch(add_bias, dim3(blocks_for(out.n_rows, kThreads, 1024), at_most(params->n_tokens, 1024)),
                               kThreads, 0, stream, out.y, out.y_stride, out.bias, out.n_rows, params->n_tokens);
}

/* Weights of F32 or BF16, as they are. */
bool run_blas_rows(const MatmulParams *params, const MatmulOut &out, const Operand &x, Stream stream)
{
    const cudaDataType type = out.type == DTYPE_F32 ? CUDA_R_32F : CUDA_R_16BF;
    if (out.n_rows == 0) return true;
    return stream.blas && run_blas(params, out, x, out.w, type, 0, out.n_rows, stream) && run_bias(params, out, stream);
}

/* Rows that lie as cuBLAS wants them, for which it is the faster way when tokens are not few. */
bool is_for_blas(const MatmulParams *params, DType type)
{
    return (type == DTYPE_F32 || type == DTYPE_BF16) && params->n_tokens > MATMUL_CUDA_PLAIN_ROWS &&
           !params->is_deterministic;
}

/* All outputs that warp groups multiply; ret: whether there are others. */
bool multiply_by_groups(const MatmulParams *params, const Scratch &scratch, bool *ret_others, Stream stream)
{
    bool is_filled = false;
    *ret_others = false;
    for (uint32_t i = 0; i < params->n_out; i++) {
        const DType type = params->out[i].type;
        bool is_done = false; /* together with an earlier output */
        for (uint32_t j = 0; j < i; j++) is_done |= params->out[j].type == params->out[i].type;
        if (!is_for_gemm(params, type)) *ret_others = true;
        if (is_done || !is_for_gemm(params, type)) continue;
        const GemvRow *row = gemv_row_of(type);
        const GemvArgs args = gemv_args(params, scratch.operand, row, row->by_16, 0, params->n_tokens, false);
        if (!is_filled && !gemm_fill(params, scratch.gemm, stream)) return false;
        is_filled = true;
        if (!gemm_run(type, args, scratch.gemm, i, stream)) return false;
    }
    return true;
}

bool multiply_few(const MatmulParams *params, const Operand &x, Stream stream)
{
    if (can_dot(params)) return dot_products(params, true, stream);
    const bool is_raw = can_be_raw(params, x);
    if (!is_raw && !operand_fill(params, &x, stream)) return false;
    for (uint32_t i = 0; i < params->n_out; i++) {
        DType type = params->out[i].type;
        bool is_done = false; /* together with an earlier output */
        for (uint32_t j = 0; j < i; j++) is_done |= params->out[j].type == params->out[i].type;
        if (is_for_blas(params, type)) {
            if (!run_blas_rows(params, params->out[i], x, stream)) return false;
            continue;
        }
        if (is_done || is_for_gemm(params, type)) continue;
        if (const WideForm wide = wide_form_of(params, type)) {
            if (!run_wide(params, x, wide, stream)) return false;
            continue;
        }
        if (type == DTYPE_F32 ? !run_f32(params, x, stream) : !run_gemv(params, x, gemv_row_of(type), is_raw, stream))
            return false;
    }
    return true;
}

/* ---- the gate, where no product's kernel has done it ---- */

__global__ void gate_results(float *gate, size_t gate_stride, const float *up, size_t up_stride, uint32_t n_rows,
                             uint32_t n_tokens, GluActivation activation)
{
    grid_release();
    grid_wait();
    for (uint32_t r = blockIdx.x * blockDim.x + threadIdx.x; r < n_rows; r += gridDim.x * blockDim.x)
        for (uint32_t t = blockIdx.y; t < n_tokens; t += gridDim.y) {
            float *y = gate + t * gate_stride + r;
            *y = glu_value(activation, *y) * up[t * up_stride + r];
        }
}

bool run_gate(const MatmulParams *params, Stream stream)
{
    constexpr unsigned kThreads = 256;
    const MatmulOut &gate = params->out[0], &up = params->out[1];
    if (!params->is_gated || gate.n_rows == 0 || gates_inside(params)) return true;
    return launch(gate_results, dim3(blocks_for(gate.n_rows, kThreads, 1024), at_most(params->n_tokens, 1024)),
                  kThreads, 0, stream, gate.y, gate.y_stride, (const float *)up.y, up.y_stride, gate.n_rows,
                  params->n_tokens, params->glu_activation);
}

/* ---- many tokens ---- */

bool multiply_widened(const MatmulParams *params, const MatmulOut &out, const Scratch &scratch, Stream stream)
{
    const uint32_t cols = device_padded_cols(out.type, params->n_cols);
    const size_t tile_bytes = device_tile_bytes(out.type, params->n_cols), wide = wide_bytes(params->n_cols);
    const uint32_t tiles = (out.n_rows + DEVICE_TILE_ROWS - 1) / DEVICE_TILE_ROWS;
    const uint32_t most = (uint32_t)(wide / ((size_t)DEVICE_TILE_ROWS * cols * sizeof(uint16_t)));
    const WidenKernel kernel = widen_kernel(out.type);
    const DeviceFormat *format = device_format(out.type);
    const uint32_t unit_cols = format ? format->unit_cols : (uint32_t)DEVICE_FLOAT_UNIT_COLS;
    if (!kernel) return false;
    for (uint32_t tile = 0; tile < tiles; tile += most) {
        uint32_t n = at_most(tiles - tile, most), row = tile * DEVICE_TILE_ROWS;
        uint32_t n_rows = at_most(out.n_rows - row, n * DEVICE_TILE_ROWS);
        WidenArgs args = {(const char *)out.w + tile * tile_bytes, tile_bytes, n, cols / unit_cols, scratch.wide, cols};
        if (!widen(kernel, &args, stream) ||
            !run_blas(params, out, scratch.operand, scratch.wide, CUDA_R_16BF, row, n_rows, stream))
            return false;
    }
    return true;
}

bool multiply_many(const MatmulParams *params, const Scratch &scratch, Stream stream)
{
    if (!stream.blas || !operand_fill(params, &scratch.operand, stream)) return false;
    for (uint32_t i = 0; i < params->n_out; i++) {
        const MatmulOut &out = params->out[i];
        bool good = out.n_rows == 0 || is_for_gemm(params, out.type);
        if (!good && (out.type == DTYPE_F32 || out.type == DTYPE_BF16))
            good = run_blas_rows(params, out, scratch.operand, stream);
        else if (!good)
            good = multiply_widened(params, out, scratch, stream) && run_bias(params, out, stream);
        if (!good) return false;
    }
    return true;
}

/* As many calls for few tokens each, one after another in the same scratch. */
bool multiply_pieces(MatmulParams params, Stream stream)
{
    uint32_t left = params.n_tokens;
    while (left > 0) {
        params.n_tokens = at_most(left, MATMUL_CUDA_ROWS);
        if (!matmul_cuda(&params, stream)) return false;
        left -= params.n_tokens;
        params.x += params.n_tokens * params.x_stride;
        if (params.glu_up) params.glu_up += params.n_tokens * params.x_stride;
        for (uint32_t i = 0; i < params.n_out; i++) params.out[i].y += params.n_tokens * params.out[i].y_stride;
    }
    return true;
}

/* A kernel that waits for the one in front has been compiled for devices that can. */
bool check_code(Error *error)
{
    constexpr int kDependentLaunch = 90;
    cudaFuncAttributes attributes;
    cudaError_t rc = cudaFuncGetAttributes(&attributes, add_bias);
    if (rc != cudaSuccess)
        return error_set_param(error, ERR_DEVICE, "device", "this build has no kernels for this device: %s",
                               cudaGetErrorString(rc));
    if (attributes.ptxVersion < kDependentLaunch) device_facts_use_old_code();
    return true;
}

bool prepare_kernel(const void *kernel, DType type, size_t shared_bytes, Error *error)
{
    cudaError_t rc = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
    return rc == cudaSuccess ||
           error_set_param(error, ERR_DEVICE, "device", "this build has no kernel for %s on this device: %s",
                           dtype_name(type).text, cudaGetErrorString(rc));
}

bool prepare_rows(const GemvRow *(*rows_of)(uint32_t *), size_t shared_bytes, Error *error)
{
    uint32_t n = 0;
    const GemvRow *rows = rows_of(&n);
    for (uint32_t i = 0; i < n; i++) {
        const GemvRow &row = rows[i];
        const size_t dot_bytes = shared_bytes - (GEMV_DOT_STATIC_BYTES - GEMV_STATIC_BYTES);
        if (!prepare_kernel((const void *)row.by_8.kernel, row.type, shared_bytes, error) ||
            !prepare_kernel((const void *)row.by_16.kernel, row.type, shared_bytes, error) ||
            !prepare_kernel((const void *)row.dot.kernel[0], row.type, dot_bytes, error) ||
            !prepare_kernel((const void *)row.dot.kernel[1], row.type, dot_bytes, error))
            return false;
    }
    return true;
}

bool prepare_wide(const GemvWideRow *(*rows_of)(uint32_t *), size_t shared_bytes, Error *error)
{
    uint32_t n = 0;
    const GemvWideRow *rows = rows_of(&n);
    for (uint32_t i = 0; i < n; i++)
        for (const auto &form : rows[i].form)
            if (!prepare_kernel((const void *)form.kernel, rows[i].type, shared_bytes, error)) return false;
    return true;
}

} // namespace
} // namespace lw

extern "C" size_t matmul_cuda_scratch_bytes(uint32_t n_tokens, uint32_t n_cols)
{
    return lw::lay_out(nullptr, n_tokens, n_cols, nullptr);
}

extern "C" bool matmul_cuda_prepare(Error *error)
{
    const DeviceFacts *facts = device_facts();
    if (!facts) return error_set(error, ERR_INTERNAL, "kernels are prepared before the device is known");
    const size_t bytes = facts->block_shared_bytes - lw::GEMV_STATIC_BYTES;
    return lw::check_code(error) && lw::prepare_rows(lw::gemv_rows_32, bytes, error) &&
           lw::prepare_rows(lw::gemv_rows_k, bytes, error) && lw::prepare_rows(lw::gemv_rows_float, bytes, error) &&
           lw::prepare_wide(lw::gemv_wide_rows_32, bytes, error) && lw::gemm_prepare(error) &&
           lw::prepare_wide(lw::gemv_wide_rows_k, bytes, error);
}

extern "C" bool matmul_cuda(const MatmulParams *params, Stream stream)
{
    lw::Scratch scratch;
    if (params->n_out > MATMUL_MAX_OUT || (params->norm_weight && params->glu_up)) return false;
    if (params->is_gated && (params->n_out < 2 || params->out[0].n_rows != params->out[1].n_rows ||
                             params->out[0].accumulate || params->out[1].accumulate))
        return false;
    for (uint32_t i = 0; i < params->n_out; i++)
        if (params->out[i].type != DTYPE_F32 && !lw::gemv_row_of(params->out[i].type)) return false;
    if (params->n_tokens == 0 || params->n_out == 0) return true;
    if (params->is_deterministic && params->n_tokens > MATMUL_CUDA_ROWS) return lw::multiply_pieces(*params, stream);
    lw::lay_out((char *)params->scratch, params->n_tokens, params->n_cols, &scratch);
    lw::keep_wanted(params, &scratch.operand);
    bool others, good = lw::multiply_by_groups(params, scratch, &others, stream);
    if (good && others)
        good = params->n_tokens <= MATMUL_CUDA_ROWS ? lw::multiply_few(params, scratch.operand, stream)
                                                    : lw::multiply_many(params, scratch, stream);
    return good && lw::run_gate(params, stream);
}
