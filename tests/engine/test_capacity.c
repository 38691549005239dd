/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/capacity.h"
#include "engine/select/presets.h"

#include <criterion/criterion.h>
#include <string.h>

static Error error;

static Capacity open_one(const char *shape, KvType type, const char *preset, double streaming)
{
    const CapacityParams params = {.shape = shape_by_name(shape),
                                   .kv_types = kv_types_all(type),
                                   .streaming = streaming,
                                   .sink = 128,
                                   .recent = 256,
                                   .recent_prefill = 2048,
                                   .policy = preset_find(preset),
                                   .max_rows = 256};
    Capacity capacity;
    cr_assert(capacity_init(&params, &capacity, &error), "%s", error.text);
    return capacity;
}

static Capacity open_on_device(const char *shape, KvType type, double streaming)
{
    const CapacityParams params = {.shape = shape_by_name(shape),
                                   .kv_types = kv_types_all(type),
                                   .streaming = streaming,
                                   .sink = 128,
                                   .recent = 256,
                                   .recent_prefill = 2048,
                                   .policy = preset_find("dense"),
                                   .max_rows = 8192,
                                   .on_device = true,
                                   .max_passes = 4,
                                   .max_sequences = 64};
    Capacity capacity;
    cr_assert(capacity_init(&params, &capacity, &error), "%s", error.text);
    return capacity;
}

Test(test_capacity, of_a_dense_model_is_tokens_times_bytes)
{
    Capacity bf16 = open_one("llama-3.1-8b", KV_BF16, "dense", 0);
    const uint64_t token = 2 * 32 * 8 * 128 * 2; /* K and V of 32 layers, 8 KV heads of 128 channels */
    cr_expect_eq(capacity_sequence_bytes(&bf16, 131072), 131072 * token);
    cr_expect_eq(capacity_sequence_bytes(&bf16, 1), 64 * token, "a page at least");
    cr_expect_eq(capacity_sequences(&bf16, 131072 * token * 3 - 1, 131072, 131072), 2);
    cr_expect_eq(capacity_sequences(&bf16, 131072 * token * 3, 131072, 131072), 3);
    cr_expect_eq(capacity_longest(&bf16, 6400 * token, 1 << 20), 6400);
    cr_expect_eq(capacity_longest(&bf16, 6400 * token - 1, 1 << 20), 6336, "a page less");
    cr_expect_eq(capacity_longest(&bf16, 6400 * token, 100), 100);
    cr_expect_eq(capacity_longest(&bf16, 64 * token - 1, 1 << 20), 0);
    cr_expect_eq(capacity_longest(&bf16, UINT64_MAX, UINT32_MAX - 63), UINT32_MAX - 63);
    capacity_done(&bf16);
}

Test(test_capacity, smaller_types_and_streaming_heads_take_less)
{
    Capacity bf16 = open_one("llama-3.1-8b", KV_BF16, "dense", 0), int8 = open_one("llama-3.1-8b", KV_INT8, "dense", 0);
    Capacity half = open_one("llama-3.1-8b", KV_BF16, "dense", 0.5),
             all = open_one("llama-3.1-8b", KV_BF16, "dense", 1);
    const uint32_t n = 131072;
    double whole = (double)capacity_sequence_bytes(&bf16, n);
    cr_expect_float_eq((double)capacity_sequence_bytes(&int8, n) / whole, 0.52, 0.03);
    cr_expect_float_eq((double)capacity_sequence_bytes(&half, n) / whole, 0.51, 0.01);
    cr_expect_lt((double)capacity_sequence_bytes(&all, n) / whole, 0.03);
    cr_expect_eq(capacity_sequence_bytes(&all, n), capacity_sequence_bytes(&all, 2 * n), "it does not grow");
    cr_expect_gt(capacity_longest(&half, 1ull << 34, 1 << 24), capacity_longest(&bf16, 1ull << 34, 1 << 24));
    capacity_done(&bf16);
    capacity_done(&int8);
    capacity_done(&half);
    capacity_done(&all);
}

Test(test_capacity, policies_that_score_pages_keep_bounds)
{
    Capacity dense = open_one("llama-3.1-8b", KV_BF16, "dense", 0),
             pages = open_one("llama-3.1-8b", KV_BF16, "lserve-4k", 0);
    double ratio = (double)capacity_sequence_bytes(&pages, 65536) / (double)capacity_sequence_bytes(&dense, 65536);
    cr_expect(ratio > 1.001 && ratio < 1.2, "%g", ratio);
    capacity_done(&dense);
    capacity_done(&pages);
}

Test(test_capacity, windows_count_once)
{
    Capacity gemma = open_one("gemma3-270m", KV_BF16, "dense", 0.5);
    const ModelShape *shape = shape_by_name("gemma3-270m");
    uint64_t first = capacity_sequence_bytes(&gemma, 16384), second = capacity_sequence_bytes(&gemma, 32768);
    const KvTypes types = kv_types_all(KV_BF16);
    cr_expect_lt(second - first, 16384 * kv_token_bytes(shape, &types) / 3, "most layers look back a window");
    capacity_done(&gemma);
}

Test(test_capacity, a_device_keeps_images_for_all_passes)
{
    Capacity int8 = open_on_device("llama-3.1-8b", KV_INT8, 0), bf16 = open_on_device("llama-3.1-8b", KV_BF16, 0);
    const uint64_t room = 61ull << 30, image = 64 * 2 * 32 * 8 * 128 * 2; /* of a page, in 16 bits */
    const uint64_t images = (4 * (8192 / 64 + 1) + 64) * image,
                   each = capacity_sequence_bytes(&int8, 131072) - 2 * image;
    cr_expect_float_eq((double)each / (131072.0 * 2 * 32 * 8 * (128 + 4)), 1, 0.001);
    cr_expect_eq(capacity_sequences(&int8, room, 131072, 131072), (room - images) / each);
    cr_expect_eq(capacity_sequences(&bf16, room, 131072, 131072), room / (131072ull * 2 * 32 * 8 * 128 * 2));
    cr_expect_eq(capacity_longest(&int8, room, 1 << 24), kv_n_pages(capacity_longest(&int8, room, 1 << 24)) * 64);
    capacity_done(&int8);
    capacity_done(&bf16);
}

Test(test_capacity, a_device_divides_its_memory_for_good)
{
    Capacity host = open_one("gemma3-270m", KV_BF16, "dense", 0), device = open_on_device("gemma3-270m", KV_BF16, 0);
    const uint64_t room = 8ull << 30;
    uint64_t of_32k = capacity_sequences(&device, room, 32768, 32768);
    cr_expect_gt(capacity_sequences(&host, room, 32768, 32768), of_32k + of_32k / 2, "windows have their share too");
    cr_expect_eq(capacity_sequences(&device, room, 1 << 24, capacity_longest(&device, room, 1 << 24)), 1);
    cr_expect_eq(capacity_sequences(&device, room, 1 << 24, capacity_longest(&device, room, 1 << 24) + 1), 0);
    capacity_done(&host);
    capacity_done(&device);
}

/* The policy without streaming heads has a share of its own, though no request may want it. */
Test(test_capacity, streaming_heads_of_a_device_have_the_dense_ones_beside_them)
{
    Capacity half = open_on_device("llama-3.1-8b", KV_BF16, 0.5), dense = open_on_device("llama-3.1-8b", KV_BF16, 0);
    cr_expect_lt(capacity_longest(&half, 1ull << 35, 1 << 24), capacity_longest(&dense, 1ull << 35, 1 << 24));
    cr_expect_lt(capacity_sequence_bytes(&half, 131072), capacity_sequence_bytes(&dense, 131072) * 6 / 10);
    capacity_done(&half);
    capacity_done(&dense);
}

Test(test_capacity, buffers_grow_with_rows_and_vocabulary)
{
    const ModelShape *shape = shape_by_name("llama-3.1-8b");
    uint64_t small = capacity_buffer_bytes(shape, 1, 256, 64), large = capacity_buffer_bytes(shape, 4, 8192, 64);
    cr_expect_gt(small, 64ull * shape->n_vocab * 4);
    cr_expect(large > 2ull << 30 && large < 4ull << 30, "%llu", (unsigned long long)large);
}

Test(test_capacity, refuses_ranges_that_are_no_pages)
{
    const CapacityParams params = {.shape = shape_by_name("llama-3.1-8b"),
                                   .kv_types = kv_types_all(KV_F16),
                                   .streaming = 0.5,
                                   .sink = 100,
                                   .recent = 256,
                                   .recent_prefill = 256,
                                   .policy = preset_find("dense"),
                                   .max_rows = 1};
    Capacity capacity;
    cr_expect_not(capacity_init(&params, &capacity, &error));
}
