/* SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"
#include "engine/model/synthetic_impl.h"
#include "kernels/linear/blocks.h"
#include "kernels/linear/dequant.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

enum { NONE = UINT16_MAX, SAMPLE_BLOCKS = 64, MXFP4_BIAS = 128 };

/* Where a block has its scales; all its other bytes are random. */
typedef struct BlockScales {
    DType type;
    uint16_t d_at, min_at;
    float min_ratio; /* of the minimum's factor to d, so that values have mean 0 */
} BlockScales;

static const BlockScales block_scales[] = {
    {DTYPE_Q4_0, offsetof(BlockQ4_0, d), NONE, 0},
    {DTYPE_Q4_1, offsetof(BlockQ4_1, d), offsetof(BlockQ4_1, m), -7.5f},
    {DTYPE_Q5_0, offsetof(BlockQ5_0, d), NONE, 0},
    {DTYPE_Q5_1, offsetof(BlockQ5_1, d), offsetof(BlockQ5_1, m), -15.5f},
    {DTYPE_Q8_0, offsetof(BlockQ8_0, d), NONE, 0},
    {DTYPE_Q2_K, offsetof(BlockQ2_K, d), offsetof(BlockQ2_K, dmin), 1.5f},
    {DTYPE_Q3_K, offsetof(BlockQ3_K, d), NONE, 0},
    {DTYPE_Q4_K, offsetof(BlockQ4_K, d), offsetof(BlockQ4_K, dmin), 7.5f},
    {DTYPE_Q5_K, offsetof(BlockQ5_K, d), offsetof(BlockQ5_K, dmin), 15.5f},
    {DTYPE_Q6_K, offsetof(BlockQ6_K, d), NONE, 0},
    {DTYPE_IQ4_NL, offsetof(BlockIQ4_NL, d), NONE, 0},
    {DTYPE_IQ4_XS, offsetof(BlockIQ4_XS, d), NONE, 0},
    {DTYPE_MXFP4, offsetof(BlockMXFP4, exponent), NONE, 0},
};

/* NULL: a type without blocks. */
static const BlockScales *find_scales(DType type)
{
    for (size_t i = 0; i < sizeof block_scales / sizeof *block_scales; i++)
        if (block_scales[i].type == type) return &block_scales[i];
    return NULL;
}

static uint64_t next_bits(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static void fill_bytes(uint64_t *state, uint8_t *bytes, size_t n)
{
    for (; n >= 8; n -= 8, bytes += 8) {
        uint64_t bits = next_bits(state);
        memcpy(bytes, &bits, 8);
    }
    uint64_t bits = next_bits(state);
    memcpy(bytes, &bits, n);
}

static void set_scales(const BlockScales *scales, uint8_t *block, float d)
{
    if (scales->type == DTYPE_MXFP4) {
        block[scales->d_at] = (uint8_t)(MXFP4_BIAS + (int)rintf(log2f(d)));
        return;
    }
    uint16_t half = f16_from_f32(d), min_half = f16_from_f32(d * scales->min_ratio);
    memcpy(block + scales->d_at, &half, sizeof half);
    if (scales->min_at != NONE) memcpy(block + scales->min_at, &min_half, sizeof min_half);
}

static void fill_blocks(const BlockScales *scales, uint64_t *state, uint8_t *row, uint32_t n_blocks, float d)
{
    size_t block_bytes = dtype_info(scales->type)->block_bytes;
    fill_bytes(state, row, n_blocks * block_bytes);
    for (uint32_t b = 0; b < n_blocks; b++) set_scales(scales, row + b * block_bytes, d);
}

/* The d with which random blocks have that standard deviation. */
static bool find_d(const BlockScales *scales, float deviation, float *ret_d)
{
    uint8_t blocks[SAMPLE_BLOCKS * sizeof(BlockQ6_K)];
    float values[SAMPLE_BLOCKS * BLOCK_K];
    size_t n = (size_t)SAMPLE_BLOCKS * dtype_info(scales->type)->block_elements;
    uint64_t state = 0;
    double sum = 0;
    fill_blocks(scales, &state, blocks, SAMPLE_BLOCKS, 1);
    if (!dequant_row_ref(scales->type, blocks, values, n)) return false;
    for (size_t i = 0; i < n; i++) sum += (double)values[i] * (double)values[i];
    *ret_d = deviation / (float)sqrt(sum / (double)n);
    return true;
}

/* Uniform around the mean. */
static float next_value(const SyntheticTensor *tensor, uint64_t *state)
{
    float unit = (float)(next_bits(state) >> 40) * 0x1p-23f - 1;
    return tensor->mean + tensor->deviation * 1.7320508f * unit;
}

static void fill_floats(const SyntheticTensor *tensor, uint64_t *state, uint8_t *row)
{
    for (uint32_t c = 0; c < tensor->n_cols; c++) {
        float value = tensor->values ? tensor->values[c] : next_value(tensor, state);
        uint16_t half = tensor->type == DTYPE_F16 ? f16_from_f32(value) : bf16_from_f32(value);
        if (tensor->type == DTYPE_F32)
            memcpy(row + c * sizeof value, &value, sizeof value);
        else
            memcpy(row + c * sizeof half, &half, sizeof half);
    }
}

typedef struct FillJob {
    const SyntheticTensor *tensor;
    const BlockScales *scales;
    float d;
    uint64_t seed; /* of the tensor */
    uint8_t *data;
} FillJob;

static void fill_rows(void *arg, uint32_t worker, uint32_t n_workers)
{
    const FillJob *job = arg;
    const SyntheticTensor *tensor = job->tensor;
    size_t row_bytes = dtype_row_bytes(tensor->type, tensor->n_cols);
    uint32_t end = (uint32_t)((uint64_t)tensor->n_rows * (worker + 1) / n_workers);
    for (uint32_t r = (uint32_t)((uint64_t)tensor->n_rows * worker / n_workers); r < end; r++) {
        uint64_t row_seed = job->seed + r, state = next_bits(&row_seed);
        uint8_t *row = job->data + r * row_bytes;
        if (job->scales)
            fill_blocks(job->scales, &state, row, tensor->n_cols / dtype_info(tensor->type)->block_elements, job->d);
        else
            fill_floats(tensor, &state, row);
    }
}

static bool fill_tensors(const Synthetic *synthetic, uint64_t seed, ThreadPool *pool, uint8_t *data, Error *error)
{
    for (uint32_t i = 0; i < synthetic->n_tensors; i++) {
        const SyntheticTensor *tensor = &synthetic->tensors[i];
        FillJob job = {.tensor = tensor, .scales = find_scales(tensor->type), .data = data + tensor->offset};
        job.seed = next_bits(&seed);
        if (job.scales && !find_d(job.scales, tensor->deviation, &job.d))
            return error_set(error, ERR_UNSUPPORTED, "no synthetic weights of type %s", dtype_info(tensor->type)->name);
        threads_run(pool, fill_rows, &job);
    }
    return true;
}

bool synthetic_fill(Synthetic *synthetic, uint64_t seed, ThreadPool *pool, Error *error)
{
    size_t n_bytes = synthetic->header_bytes + synthetic->data_bytes;
    int failure = posix_fallocate(synthetic->fd, 0, (off_t)n_bytes);
    if (failure)
        return error_set(error, ERR_NO_MEMORY, "no memory for weights of %zu bytes: %s", n_bytes, strerror(failure));
    void *file = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, synthetic->fd, 0);
    if (file == MAP_FAILED)
        return error_set(error, ERR_NO_MEMORY, "mapping weights of %zu bytes: %s", n_bytes, strerror(errno));
    bool ok = fill_tensors(synthetic, seed, pool, (uint8_t *)file + synthetic->header_bytes, error);
    munmap(file, n_bytes);
    return ok;
}
