/* SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"
#include "kernels/attention/kv_page.h"
#include "tests/support/weights.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIM = 200 };

static char *new_slot(const KvLayout *layout)
{
    char *slot = malloc(layout->slot_bytes);
    cr_assert_not_null(slot);
    memset(slot, 0xA5, layout->slot_bytes);
    return slot;
}

static KvScale scale_at(const KvLayout *layout, const char *slot, uint32_t token, bool is_v)
{
    KvScale s = {0, 0};
    if (!kv_type_info(layout->type)->is_quantised) return s;
    const char *sector = slot + token / 16 * layout->sector_bytes;
    memcpy(&s, sector + (is_v ? layout->v_scale_offset : layout->k_scale_offset) + token % 16 * sizeof s, sizeof s);
    return s;
}

Test(test_kv_page, sizes_by_hand)
{
    const struct {
        KvType type;
        uint32_t k_dim, v_dim, v_offset, v_row_bytes, sector_bytes;
    } rows[] = {
        {KV_F32, 64, 64, 4096, 256, 8192},     {KV_F16, 64, 64, 2048, 128, 4096}, {KV_BF16, 20, 12, 768, 24, 1152},
        {KV_F8, 64, 64, 1024, 64, 2048 + 128}, {KV_INT8, 64, 64, 1024, 64, 2176}, {KV_INT4, 64, 64, 512, 32, 1152},
        {KV_INT4, 33, 3, 512, 2, 704},         {KV_INT8, 1, 1, 256, 1, 448},      {KV_F16, 128, 128, 4096, 256, 8192},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        KvLayout l = kv_layout(rows[i].type, rows[i].k_dim, rows[i].v_dim);
        cr_assert_eq(l.v_offset, rows[i].v_offset, "row %zu", i);
        cr_assert_eq(l.v_row_bytes, rows[i].v_row_bytes, "row %zu", i);
        cr_assert_eq(l.sector_bytes, rows[i].sector_bytes, "row %zu: %u", i, l.sector_bytes);
        cr_assert_eq(l.slot_bytes, 4 * rows[i].sector_bytes);
        cr_assert_eq(l.k_scale_offset, l.v_offset + 16 * l.v_row_bytes);
    }
}

/* Where bytes lie: K in blocks of 16 bytes of channels, V in rows, even int4 channels in the low half. */
Test(test_kv_page, places_by_hand)
{
    float k[40], v[40];
    for (int c = 0; c < 40; c++) k[c] = (float)(c % 16), v[c] = (float)(15 - c % 16);
    KvLayout f16 = kv_layout(KV_F16, 40, 40), int4 = kv_layout(KV_INT4, 40, 40);
    char *slot = new_slot(&f16);
    uint16_t half;
    kv_slot_put(&f16, slot, 16 + 3, k, v);
    memcpy(&half, slot + f16.sector_bytes + (2 * 16 + 3) * 16 + 2 * 5, 2);
    cr_assert_eq(f32_from_f16(half), k[2 * 8 + 5]);
    memcpy(&half, slot + f16.sector_bytes + f16.v_offset + 3 * 80 + 2 * 21, 2);
    cr_assert_eq(f32_from_f16(half), v[21]);
    free(slot);
    slot = new_slot(&int4);
    kv_slot_put(&int4, slot, 48 + 15, k, v);
    const uint8_t *sector = (const uint8_t *)slot + 3 * int4.sector_bytes;
    cr_assert_eq(sector[15 * 16 + 4], 8 | 9 << 4);
    cr_assert_eq(sector[(16 + 15) * 16 + 3], 6 | 7 << 4); /* channels 38 and 39 */
    for (int i = 4; i < 16; i++) cr_assert_eq(sector[(16 + 15) * 16 + i], 0, "padding");
    cr_assert_eq(sector[int4.v_offset + 15 * 20 + 1], 13 | 12 << 4);
    KvScale s = scale_at(&int4, slot, 63, false);
    cr_assert_eq(f32_from_f16(s.scale), 1);
    cr_assert_eq(f32_from_f16(s.zero), 0);
    free(slot);
}

/* A slot that was full and loses its tail is one that had only the beginning. */
Test(test_kv_page, a_cleared_tail_leaves_nothing)
{
    for (KvType type = 0; type < KV_N_TYPES; type++)
        for (uint32_t n = 0; n < KV_PAGE_TOKENS; n++) {
            float x[MAX_DIM];
            KvLayout layout = kv_layout(type, 33, 20);
            char *full = new_slot(&layout), *part = new_slot(&layout);
            memset(full, 0, layout.slot_bytes);
            memset(part, 0, layout.slot_bytes);
            for (uint32_t t = 0; t < KV_PAGE_TOKENS; t++) {
                for (int c = 0; c < MAX_DIM; c++) x[c] = (float)(1 + (t + (uint32_t)c * 7) % 15);
                kv_slot_put(&layout, full, t, x, x + 40);
                if (t < n) kv_slot_put(&layout, part, t, x, x + 40);
            }
            cr_assert_neq(memcmp(full, part, layout.slot_bytes), 0);
            kv_slot_clear_from(&layout, full, n);
            cr_assert_eq(memcmp(full, part, layout.slot_bytes), 0, "%s, %u tokens", kv_type_info(type)->name, n);
            free(full);
            free(part);
        }
}

static void check_vector(KvType type, const float *x, const float *got, uint32_t n, KvScale s)
{
    float amax = 0;
    for (uint32_t c = 0; c < n; c++) amax = fmaxf(amax, fabsf(x[c]));
    for (uint32_t c = 0; c < n; c++) {
        float bound = 0, scale = f32_from_f16(s.scale);
        if (type == KV_F16) bound = fabsf(x[c]) * 0x1p-11f + 0x1p-25f;
        if (type == KV_BF16) bound = fabsf(x[c]) * 0x1p-8f;
        if (type == KV_F8) bound = fabsf(x[c]) * 0x1p-4f + scale * 0x1p-10f;
        if (type == KV_INT8 || type == KV_INT4) bound = scale > 0 ? scale / 2 * 1.001f : amax * 0x1p-11f + 0x1p-25f;
        cr_assert_leq(fabsf(got[c] - x[c]), bound, "%s, channel %u of %u: %g became %g", kv_type_info(type)->name, c, n,
                      (double)x[c], (double)got[c]);
    }
    if (type == KV_INT4) cr_assert_leq(f32_from_f16(s.scale), 2 * amax / 15 * 1.01f + 0x1p-23f);
    if (type == KV_INT8) cr_assert_leq(f32_from_f16(s.scale), 2 * amax / 255 * 1.01f + 0x1p-23f);
    if (type == KV_F8) cr_assert_leq(f32_from_f16(s.scale), amax / 448 * 1.001f + 0x1p-23f);
}

/* Every type, size and magnitude: what comes back is as near as the type allows, and neighbours are left alone. */
Test(test_kv_page, values_come_back)
{
    static const uint32_t dims[] = {1, 2, 3, 8, 15, 16, 17, 31, 32, 33, 64, 80, 128, 200};
    static const float magnitudes[] = {1e-7f, 1e-3f, 1, 40, 3000};
    uint64_t seed = 5;
    for (int type = 0; type < KV_N_TYPES; type++)
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
            uint32_t n = dims[d], n_v = dims[(d + 5) % 14];
            KvLayout layout = kv_layout((KvType)type, n, n_v);
            char *slot = new_slot(&layout);
            float k[64][MAX_DIM], v[64][MAX_DIM], got_k[MAX_DIM], got_v[MAX_DIM];
            for (uint32_t t = 0; t < 64; t++) {
                random_floats(&seed, k[t], n, magnitudes[t % 5]);
                random_floats(&seed, v[t], n_v, magnitudes[(t + 1) % 5]);
                if (t % 7 == 0) /* far from zero, and all alike */
                    for (uint32_t c = 0; c < n; c++) k[t][c] = t % 2 ? k[t][0] : 7 * magnitudes[t % 5] + k[t][c];
                kv_slot_put(&layout, slot, (t * 37) % 64, k[t], v[t]);
            }
            for (uint32_t t = 0; t < 64; t++) {
                uint32_t token = (t * 37) % 64;
                kv_slot_get(&layout, slot, token, got_k, got_v);
                check_vector((KvType)type, k[t], got_k, n, scale_at(&layout, slot, token, false));
                check_vector((KvType)type, v[t], got_v, n_v, scale_at(&layout, slot, token, true));
            }
            free(slot);
        }
}

/* The largest of 448 levels up to the magnitude, and each e4m3 number itself, exactly. */
Test(test_kv_page, f8_numbers_are_exact)
{
    KvLayout layout = kv_layout(KV_F8, 127, 127);
    char *slot = new_slot(&layout);
    float x[127], k[127], v[127];
    for (int i = 0; i < 127; i++) {
        int exponent = i / 8, mantissa = i % 8;
        x[i] = exponent ? ldexpf(1 + (float)mantissa / 8, exponent - 7) : ldexpf((float)mantissa / 8, -6);
        if (i % 2) x[i] = -x[i];
    }
    cr_assert_eq(x[126], 448);
    kv_slot_put(&layout, slot, 0, x, x);
    kv_slot_get(&layout, slot, 0, k, v);
    cr_assert_eq(memcmp(x, k, sizeof x), 0);
    cr_assert_eq(memcmp(x, v, sizeof x), 0);
    free(slot);
}

/* Nothing that is not a number is cleaned away, nor what f16 scales cannot hold. */
Test(test_kv_page, broken_vectors_stay_broken)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
    for (int type = 0; type < KV_N_TYPES; type++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            KvLayout layout = kv_layout((KvType)type, 20, 20);
            char *slot = new_slot(&layout);
            float fine[20], broken[20], k[20], v[20];
            for (int c = 0; c < 20; c++) fine[c] = broken[c] = (float)c;
            broken[11] = bad[i];
            kv_slot_put(&layout, slot, 6, fine, broken);
            kv_slot_get(&layout, slot, 6, k, v);
            for (int c = 0; c < 20; c++) cr_assert(isfinite(k[c]));
            if (type != KV_F32 && type != KV_BF16) cr_assert_not(isfinite(v[11]), "%s", kv_type_info(type)->name);
            if (isnan(bad[i])) cr_assert(isnan(v[11]));
            if (kv_type_info(type)->is_quantised)
                for (int c = 0; c < 20; c++) cr_assert(isnan(v[c]));
            free(slot);
        }
}
