/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/rope_order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROPE_PAIRS = 4096 };

typedef struct Pair {
    double theta;
    uint32_t index; /* in the file */
} Pair;

/* Llama 3.1: wavelengths beyond the original context / low_freq are stretched in full, short ones stay, a blend
 * between. */
static double llama3_divisor(const RopeLlama3 *scaling, double theta)
{
    if (scaling->factor == 0) return 1;
    double turns = scaling->original_context * theta / (2 * M_PI);
    if (turns < scaling->low_freq) return scaling->factor;
    if (turns > scaling->high_freq) return 1;
    double smooth = (turns - scaling->low_freq) / (scaling->high_freq - scaling->low_freq);
    return 1 / ((1 - smooth) / scaling->factor + smooth);
}

/* The place of a pair, in fractions of one, that turns so often over the original context. */
static double yarn_place(const ModelShape *shape, double turns)
{
    return shape->rope_dim * log(shape->rope_original_context / (turns * 2 * M_PI)) / (2 * log(shape->rope_base));
}

static double yarn_divisor(const ModelShape *shape, uint32_t r)
{
    const RopeYarn *yarn = &shape->rope_yarn;
    if (yarn->factor == 0) return 1;
    double first = fmax(floor(yarn_place(shape, yarn->beta_fast)), 0);
    double last = fmin(ceil(yarn_place(shape, yarn->beta_slow)), shape->rope_dim - 1);
    double slowed = fmin(fmax((r - first) / fmax(last - first, 1e-3), 0), 1);
    return 1 / (slowed / yarn->factor + 1 - slowed);
}

static const char *divisors_name(const ModelShape *shape, const Gguf *gguf)
{
    if (gguf_tensor(gguf, "rope_freqs.weight")) return "rope_freqs.weight";
    return shape->rope_context > shape->rope_original_context ? "rope_factors_long.weight"
                                                              : "rope_factors_short.weight";
}

static bool find_divisors(const ModelShape *shape, const Gguf *gguf, const float **ret_divisors, Error *error)
{
    const char *name = gguf ? divisors_name(shape, gguf) : "";
    const GgufTensor *tensor = gguf ? gguf_tensor(gguf, name) : NULL;
    if (tensor) {
        const TensorView *view = &tensor->view;
        uint32_t n_pairs = shape->rope_dim / 2;
        if (view->type != DTYPE_F32 || view->n_dims != 1 || view->dim[0] != n_pairs ||
            (uintptr_t)view->data % sizeof(float) != 0)
            return error_set_param(error, ERR_INVALID, name, "tensor '%s' must be F32 [%u], the rotary pairs of a head",
                                   name, n_pairs);
        const float *divisors = view->data;
        for (uint32_t r = 0; r < n_pairs; r++)
            if (!isfinite(divisors[r]) || divisors[r] < 1e-6f || divisors[r] > 1e6f)
                return error_set_param(error, ERR_INVALID, name, "tensor '%s' [%u] is %g, not a sane divisor", name, r,
                                       (double)divisors[r]);
        *ret_divisors = divisors;
    }
    return true;
}

static int longest_wavelength_first(const void *a, const void *b)
{
    const Pair *x = a, *y = b;
    if (x->theta != y->theta) return x->theta < y->theta ? -1 : 1;
    return x->index > y->index ? -1 : 1;
}

static bool sort_pairs(const ModelShape *shape, const Gguf *gguf, Pair *pairs, Error *error)
{
    const float *divisors = NULL;
    if (shape->rope_dim / 2 > MAX_ROPE_PAIRS)
        return error_set(error, ERR_TOO_LARGE, "%u rotated channels a head, more than %d", shape->rope_dim,
                         2 * MAX_ROPE_PAIRS);
    if (!find_divisors(shape, gguf, &divisors, error)) return false;
    uint32_t n_pairs = shape->rope_dim / 2;
    for (uint32_t r = 0; r < n_pairs; r++) {
        double theta = pow(shape->rope_base, -2.0 * r / shape->rope_dim);
        double divisor = divisors ? (double)divisors[r] : llama3_divisor(&shape->rope_llama3, theta);
        pairs[r] = (Pair){theta / divisor / yarn_divisor(shape, r) / shape->rope_linear_factor, r};
    }
    qsort(pairs, n_pairs, sizeof *pairs, longest_wavelength_first);
    return true;
}

bool family_rope_theta(const ModelShape *shape, const Gguf *gguf, double *ret_theta, Error *error)
{
    Pair pairs[MAX_ROPE_PAIRS];
    if (!sort_pairs(shape, gguf, pairs, error)) return false;
    for (uint32_t j = 0; j < shape->rope_dim / 2; j++) ret_theta[j] = pairs[j].theta;
    return true;
}

bool rope_order_make(const ModelShape *shape, const Gguf *gguf, Arena *arena, RopeOrder *ret_order, Error *error)
{
    Pair pairs[MAX_ROPE_PAIRS];
    if (!sort_pairs(shape, gguf, pairs, error)) return false;
    uint32_t n_pairs = shape->rope_dim / 2;
    double *theta = arena_array(arena, n_pairs, sizeof *theta);
    uint32_t *source = arena_array(arena, shape->head_dim, sizeof *source);
    if (!theta || !source) return error_set(error, ERR_NO_MEMORY, "no memory for the channel order");

    uint32_t n_still = shape->head_dim - shape->rope_dim;
    for (uint32_t c = 0; c < n_still; c++) source[c] = shape->rope_dim + c;
    for (uint32_t j = 0; j < n_pairs; j++) {
        uint32_t r = pairs[j].index;
        bool interleaved = shape->rope_layout == ROPE_INTERLEAVED;
        theta[j] = pairs[j].theta;
        source[n_still + 2 * j] = interleaved ? 2 * r : r;
        source[n_still + 2 * j + 1] = interleaved ? 2 * r + 1 : r + n_pairs;
    }
    *ret_order = (RopeOrder){theta, source};
    return true;
}

void rope_order_apply(const RopeOrder *order, uint32_t head_dim, uint32_t n_heads, const void *src, size_t row_bytes,
                      void *dst)
{
    for (uint32_t h = 0; h < n_heads; h++) {
        const char *from = (const char *)src + (size_t)h * head_dim * row_bytes;
        char *to = (char *)dst + (size_t)h * head_dim * row_bytes;
        for (uint32_t c = 0; c < head_dim; c++)
            memcpy(to + c * row_bytes, from + order->source[c] * row_bytes, row_bytes);
    }
}
