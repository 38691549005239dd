/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/rope_order.h"
#include "kernels/pointwise/rope.h"
#include "tests/support/gguf_writer.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static Error error;

static ModelShape shape_of(uint32_t head_dim, uint32_t rope_dim, RopeLayout layout)
{
    return (ModelShape){
        .head_dim = head_dim, .rope_dim = rope_dim, .rope_layout = layout, .rope_base = 10000, .rope_linear_factor = 1};
}

static void expect_source(const ModelShape *shape, const uint32_t *wanted)
{
    Arena arena;
    RopeOrder order;
    arena_init(&arena, 4096, SIZE_MAX);
    cr_assert(rope_order_make(shape, NULL, &arena, &order, &error), "%s", error.text);
    for (uint32_t c = 0; c < shape->head_dim; c++)
        cr_expect_eq(order.source[c], wanted[c], "channel %u comes from %u, not %u", c, order.source[c], wanted[c]);
    for (uint32_t j = 1; j < shape->rope_dim / 2; j++) cr_expect_lt(order.theta[j - 1], order.theta[j]);
    arena_done(&arena);
}

Test(test_rope_order, interleaved)
{
    ModelShape shape = shape_of(8, 8, ROPE_INTERLEAVED);
    expect_source(&shape, (uint32_t[]){6, 7, 4, 5, 2, 3, 0, 1});
}

Test(test_rope_order, half_split)
{
    ModelShape shape = shape_of(8, 8, ROPE_HALF_SPLIT);
    expect_source(&shape, (uint32_t[]){3, 7, 2, 6, 1, 5, 0, 4});
}

Test(test_rope_order, channels_without_rotation_come_first)
{
    ModelShape interleaved = shape_of(8, 4, ROPE_INTERLEAVED), half = shape_of(8, 4, ROPE_HALF_SPLIT);
    expect_source(&interleaved, (uint32_t[]){4, 5, 6, 7, 2, 3, 0, 1});
    expect_source(&half, (uint32_t[]){4, 5, 6, 7, 1, 3, 0, 2});
    ModelShape one_pair = shape_of(2, 2, ROPE_HALF_SPLIT);
    expect_source(&one_pair, (uint32_t[]){0, 1});
}

/* The rotation of a head as its own family writes it, in fp64. */
static void rotate_plain(const ModelShape *shape, double position, const float *x, double *y)
{
    uint32_t n_pairs = shape->rope_dim / 2;
    for (uint32_t c = 0; c < shape->head_dim; c++) y[c] = (double)x[c];
    for (uint32_t r = 0; r < n_pairs; r++) {
        double angle = position * pow(shape->rope_base, -2.0 * r / shape->rope_dim);
        uint32_t a = shape->rope_layout == ROPE_INTERLEAVED ? 2 * r : r;
        uint32_t b = shape->rope_layout == ROPE_INTERLEAVED ? 2 * r + 1 : r + n_pairs;
        y[a] = (double)x[a] * cos(angle) - (double)x[b] * sin(angle);
        y[b] = (double)x[a] * sin(angle) + (double)x[b] * cos(angle);
    }
}

static double score_plain(const ModelShape *shape, const float *q, uint32_t m, const float *k, uint32_t n)
{
    double a[64], b[64], sum = 0;
    rotate_plain(shape, m, q, a);
    rotate_plain(shape, n, k, b);
    for (uint32_t c = 0; c < shape->head_dim; c++) sum += a[c] * b[c];
    return sum;
}

static double score_reordered(const ModelShape *shape, const RopeOrder *order, const float *q, uint32_t m,
                              const float *k, uint32_t n)
{
    float x[2][64], cos_sin[2][64];
    double sum = 0;
    rope_order_apply(order, shape->head_dim, 1, q, sizeof *q, x[0]);
    rope_order_apply(order, shape->head_dim, 1, k, sizeof *k, x[1]);
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t position = i ? n : m, n_pairs = shape->rope_dim / 2;
        cr_assert(rope_table_ref(&(RopeTableParams){order->theta, &position, cos_sin[i], 1, n_pairs, 1}));
        cr_assert(rope_ref(&(RopeParams){x[i], cos_sin[i], 1, 1, shape->head_dim, n_pairs}));
    }
    for (uint32_t c = 0; c < shape->head_dim; c++) sum += (double)x[0][c] * (double)x[1][c];
    return sum;
}

Test(test_rope_order, scores_do_not_change)
{
    const struct {
        uint32_t head_dim, rope_dim;
    } sizes[] = {{64, 64}, {16, 8}, {2, 2}, {64, 2}};
    const uint32_t positions[][2] = {{0, 0}, {1, 0}, {100, 37}, {8191, 3}, {1000000, 999983}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int layout = ROPE_INTERLEAVED; layout <= ROPE_HALF_SPLIT; layout++) {
            ModelShape shape = shape_of(sizes[i].head_dim, sizes[i].rope_dim, (RopeLayout)layout);
            Arena arena;
            RopeOrder order;
            float q[64], k[64];
            arena_init(&arena, 4096, SIZE_MAX);
            cr_assert(rope_order_make(&shape, NULL, &arena, &order, &error), "%s", error.text);
            for (uint32_t c = 0; c < 64; c++) q[c] = sinf(3.7f * (float)c + 1), k[c] = cosf(2.3f * (float)c * (float)c);
            for (size_t p = 0; p < sizeof positions / sizeof *positions; p++)
                cr_expect_float_eq(score_plain(&shape, q, positions[p][0], k, positions[p][1]),
                                   score_reordered(&shape, &order, q, positions[p][0], k, positions[p][1]), 1e-5,
                                   "head size %u, %u rotated, layout %d, positions %u and %u", shape.head_dim,
                                   shape.rope_dim, layout, positions[p][0], positions[p][1]);
            arena_done(&arena);
        }
}

Test(test_rope_order, rows_move_whole_and_stay_in_their_head)
{
    ModelShape shape = shape_of(4, 4, ROPE_HALF_SPLIT);
    Arena arena;
    RopeOrder order;
    char moved[25] = "";
    arena_init(&arena, 4096, SIZE_MAX);
    cr_assert(rope_order_make(&shape, NULL, &arena, &order, &error));
    rope_order_apply(&order, 4, 2, "a0a1a2a3b0b1b2b3", 2, moved);
    cr_assert_str_eq(moved, "a1a3a0a2b1b3b0b2");
    arena_done(&arena);
}

/* Figures of Llama 3.1 8B's configuration: the first pairs keep their wavelength, the last are stretched 8 times. */
Test(test_rope_order, llama3_stretch_of_named_shapes)
{
    double theta[64];
    cr_assert(family_rope_theta(shape_by_name("llama-3.1-8b"), NULL, theta, &error));
    cr_assert_float_eq(theta[63], 1, 1e-12);
    cr_assert_float_eq(theta[0], pow(5e5, -126.0 / 128) / 8, 1e-15);
    for (int j = 1; j < 64; j++) cr_assert_lt(theta[j - 1], theta[j]);
    /* a pair in the blend: wavelength 2 pi 5e5^(60/128) = 2948 tokens, 8192 / 2948 = 2.7789 turns */
    double smooth = (8192 / (2 * M_PI * pow(5e5, 60.0 / 128)) - 1) / 3;
    cr_assert_float_eq(theta[33], pow(5e5, -60.0 / 128) * ((1 - smooth) / 8 + smooth), 1e-12);
}

Test(test_rope_order, linear_scaling)
{
    ModelShape shape = shape_of(4, 4, ROPE_INTERLEAVED);
    double theta[2];
    shape.rope_linear_factor = 4;
    cr_assert(family_rope_theta(&shape, NULL, theta, &error));
    cr_assert_float_eq(theta[1], 0.25, 1e-15);
    cr_assert_float_eq(theta[0], 0.0025, 1e-15);
}

Test(test_rope_order, yarn)
{
    ModelShape shape = shape_of(64, 64, ROPE_HALF_SPLIT);
    double theta[32];
    shape.rope_original_context = 512;
    shape.rope_yarn = (RopeYarn){4, 32, 1};
    cr_assert(family_rope_theta(&shape, NULL, theta, &error));
    /* 32 turns over 512 tokens are at pair 3.2, so the ramp begins at 3; one turn is at 15.2, so it ends at 16 */
    for (int r = 0; r < 32; r++) {
        double slowed = r <= 3 ? 0 : r >= 16 ? 1 : (r - 3) / 13.0;
        cr_expect_float_eq(theta[31 - r] / pow(1e4, -r / 32.0), slowed / 4 + 1 - slowed, 1e-12, "pair %d", r);
    }
}

/* Whatever numbers a file has, pairs end up between their own velocity and that divided by the factor. */
Test(test_rope_order, yarn_of_odd_numbers_stays_in_range)
{
    static const double bases[] = {1, 1.0000001, 2, 1e15}, turns[] = {1e-3, 1, 1e6};
    static const uint32_t contexts[] = {1, 2, 1 << 28};
    for (size_t i = 0; i < 4 * 3 * 3 * 3; i++) {
        ModelShape shape = shape_of(8, 8, ROPE_INTERLEAVED);
        double theta[4];
        shape.rope_base = bases[i % 4];
        shape.rope_original_context = contexts[i / 4 % 3];
        shape.rope_yarn = (RopeYarn){16, turns[i / 12 % 3], turns[i / 36]};
        cr_assert(family_rope_theta(&shape, NULL, theta, &error));
        for (int j = 0; j < 4; j++) cr_expect(theta[j] > 0 && theta[j] <= 1, "%zu: %g", i, theta[j]);
    }
}

static bool theta_with_divisors(DType type, uint64_t n, const float *divisors, double *theta)
{
    ModelShape shape = shape_of(8, 8, ROPE_INTERLEAVED);
    GgufWriter writer;
    Buffer bytes;
    Gguf *gguf = NULL;
    gguf_writer_init(&writer);
    buffer_init(&bytes, 1 << 20);
    gguf_writer_tensor(&writer, "rope_freqs.weight", type, 1, &n, divisors, dtype_row_bytes(type, n));
    gguf_writer_finish(&writer, &bytes);
    cr_assert(gguf_open_memory(bytes.data, bytes.n, "test", &gguf, &error), "%s", error.text);
    bool ok = family_rope_theta(&shape, gguf, theta, &error);
    gguf_close(gguf);
    gguf_writer_done(&writer);
    buffer_done(&bytes);
    return ok;
}

Test(test_rope_order, divisors_of_the_file)
{
    double theta[4];
    cr_assert(theta_with_divisors(DTYPE_F32, 4, (float[]){1, 1, 2, 8}, theta), "%s", error.text);
    cr_assert_float_eq(theta[0], 1e-3 / 8, 1e-15);
    cr_assert_float_eq(theta[1], 1e-2 / 2, 1e-15);
    cr_assert_float_eq(theta[3], 1, 1e-15);
}

Test(test_rope_order, divisors_that_change_the_order_are_sorted)
{
    double theta[4];
    cr_assert(theta_with_divisors(DTYPE_F32, 4, (float[]){100000, 1, 1, 1}, theta), "%s", error.text);
    cr_assert_float_eq(theta[0], 1e-5, 1e-15);
    cr_assert_float_eq(theta[3], 0.1, 1e-15);
}

Test(test_rope_order, bad_divisors_are_named)
{
    double theta[4] = {7};
    const float bad[] = {0, -1, NAN, INFINITY, 1e-9f};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_not(theta_with_divisors(DTYPE_F32, 4, (float[]){1, 1, bad[i], 1}, theta), "%g", (double)bad[i]);
        cr_assert_str_eq(error.param, "rope_freqs.weight");
    }
    cr_assert_not(theta_with_divisors(DTYPE_F32, 3, (float[]){1, 1, 1}, theta));
    cr_assert_not(theta_with_divisors(DTYPE_F16, 4, (float[]){1, 1, 1, 1}, theta));
    cr_assert_eq(theta[0], 7);
}
