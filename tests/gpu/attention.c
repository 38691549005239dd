/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA attention over pages against the CPU on device 0: kv_store bit for bit with its reference, attend with the CPU
 * kernel. A plain program; --quick: a short subset, for sanitizers; --portable: with the kernels of older devices.
 */
#include "kernels/device_facts.h"
#include "tests/gpu/paged_world.h"
#include "tests/gpu/turn_check.h"
#include "tests/support/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned n_passed, n_failed;
static ThreadPool *pool;
static bool is_quick;
static double worst[2]; /* |difference| of split and tiled rows, over all tests */

static void report(bool good, const char *name, const char *text)
{
    n_passed += good;
    n_failed += !good;
    if (!good && n_failed < 40) printf("FAILED: %s: %s\n", name, text);
}

/* Plans that change from sequence to sequence and head to head. Lists live as long as the program. */
static AttnPlan plan_of(uint32_t which, const WorldSeq *seq)
{
    static uint32_t lists[4096][64];
    static uint32_t n_lists;
    AttnPlan plan = {.recent = PLAN_ALL};
    switch (which % 6) {
    case 1:
        return (AttnPlan){.sink = 20, .recent = 33};
    case 2:
        return (AttnPlan){.recent = 70};
    case 3:
        return (AttnPlan){.sink = 1, .recent = 1};
    case 4: {
        uint32_t *list = lists[n_lists++ % 4096], n = 0;
        plan = (AttnPlan){.sink = 18, .recent = 40, .list = list};
        for (uint32_t sector = 2; sector * 16 + 15 + 40 <= seq->first_pos && n < 64; sector++)
            if (sector * 2654435761u >> 30) list[n++] = sector;
        plan.n_list = n;
        return plan;
    }
    case 5:
        return (AttnPlan){0};
    default:
        return plan;
    }
}

/* The CPU's result of sequences [first, end) into the rows of out that are theirs. */
static void attend_cpu(const World *world, uint32_t first, uint32_t end, float softcap, float *out)
{
    const WorldShape *s = &world->shape;
    uint32_t context = 0;
    for (uint32_t i = first; i < end; i++)
        if (world->seqs[i].first_pos + world->seqs[i].n_rows > context)
            context = world->seqs[i].first_pos + world->seqs[i].n_rows;
    AttendParams params = world_params(world);
    params.spans = world->spans[1] + first;
    params.n_spans = end - first;
    params.out = out;
    params.softcap = softcap;
    params.scratch = world_must(malloc(attend_scratch_bytes(threads_count(pool), s->n_heads, s->dim, context)));
    if (!kernels_cpu()->attend(&params, (Stream){.pool = pool})) world_must(NULL);
    free(params.scratch);
}

/* How close a row must come: fp32 sums of pairs of 16-bit numbers, or of numbers rounded once. */
static Tolerance tolerance_of(const World *world, bool is_split)
{
    bool has_f16 = world->shape.n_classes == 1 && world->shape.types[0] == KV_F16;
    if (is_split) return (Tolerance){.abs = 2e-4, .min_cosine = 1 - 1e-8};
    return has_f16 ? (Tolerance){.abs = 4e-3, .min_cosine = 1 - 1e-5} : (Tolerance){.abs = 3e-2, .min_cosine = 0.9998};
}

/* NaN or infinite: the contract leaves open which. */
static void level(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) x[i] = NAN;
}

static bool compare_rows(const World *world, uint32_t first, uint32_t end, float *got, float *want, char *text,
                         size_t text_size)
{
    const WorldShape *s = &world->shape;
    for (uint32_t i = first; i < end; i++) {
        const WorldSeq *seq = &world->seqs[i];
        size_t row = (size_t)s->n_heads * s->dim, from = world->spans[1][i].first_row * row, n = seq->n_rows * row;
        char why[160];
        level(got + from, n);
        level(want + from, n);
        for (size_t e = from; e < from + n; e++)
            if (isfinite(got[e]) && isfinite(want[e]))
                worst[!seq->is_split] = fmax(worst[!seq->is_split], fabs(got[e] - want[e]));
        if (compare_floats(got + from, want + from, n, tolerance_of(world, seq->is_split), why, sizeof why)) continue;
        snprintf(text, text_size, "sequence %u at %u, %u rows, %s: %s", i, seq->first_pos, seq->n_rows,
                 seq->is_split ? "split" : "tiled", why);
        return false;
    }
    return true;
}

static void check_attend(World *world, const KernelTable *table, const char *name, float softcap, bool is_deterministic)
{
    char text[300] = "the launch failed";
    uint32_t n_seqs = world->shape.n_seqs;
    size_t n = (size_t)world->n_rows * world->shape.n_heads * world->shape.dim + WORLD_GUARD;
    float *got = world_must(malloc(n * sizeof *got)), *want = world_must(malloc(n * sizeof *want));
    attend_cpu(world, 0, n_seqs, softcap, want);
    bool good = world_attend(world, table, 0, n_seqs, softcap, is_deterministic, got);
    report(good && compare_rows(world, 0, n_seqs, got, want, text, sizeof text), name, text);
    free(got);
    free(want);
}

static void set_plans(World *world, uint32_t shift)
{
    for (uint32_t s = 0; s < world->shape.n_seqs; s++)
        for (uint32_t h = 0; h < world->shape.n_kv_heads; h++)
            world->plans[s][h] = plan_of(shift + 5 * s + h, &world->seqs[s]);
}

/* split: 0 none, 1 spans of at most 16 rows, 2 all */
static void set_split(World *world, int split)
{
    for (uint32_t s = 0; s < world->shape.n_seqs; s++)
        world->seqs[s].is_split = split == 2 || (split == 1 && world->seqs[s].n_rows <= 16);
}

/* Of every row alone equals the same row in the batch, bit for bit. */
static void check_invariance(World *world, const KernelTable *table, const char *name)
{
    const WorldShape *s = &world->shape;
    size_t row = (size_t)s->n_heads * s->dim, n = world->n_rows * row + WORLD_GUARD;
    float *all = world_must(malloc(n * sizeof *all)), *one = world_must(malloc(n * sizeof *one));
    char text[100] = "the launch failed";
    bool good = world_attend(world, table, 0, s->n_seqs, 0, true, all);
    for (uint32_t i = 0; i < s->n_seqs && good; i++) {
        size_t from = world->spans[1][i].first_row * row, bytes = world->seqs[i].n_rows * row * sizeof(float);
        if (world->seqs[i].n_rows == 0) continue;
        good = world_attend(world, table, i, i + 1, 0, true, one) && memcmp(all + from, one + from, bytes) == 0;
        snprintf(text, sizeof text, "sequence %u differs alone", i);
    }
    report(good, name, text);
    free(all);
    free(one);
}

static const WorldSeq cruel[] = {
    {0, 1, 0},   {63, 1, 0},  {64, 1, 0},  {62, 5, 0}, {130, 16, 0}, {0, 129, 0},
    {65, 64, 0}, {700, 2, 0}, {127, 0, 0}, {15, 1, 0}, {511, 1, 0},  {128, 63, 0},
};
enum { N_CRUEL = sizeof cruel / sizeof *cruel };

static void test_shape(const KernelTable *table, KvType type, uint32_t dim, uint32_t group, bool is_wild)
{
    char name[120], text[300] = "";
    WorldShape shape = {.types = {type},
                        .n_classes = 1,
                        .n_heads = group * 2,
                        .n_kv_heads = 2,
                        .dim = dim,
                        .seqs = cruel,
                        .n_seqs = N_CRUEL,
                        .is_wild = is_wild};
    World *world = world_new(&shape, dim * 31 + group);
    world_store(world, table);
    snprintf(name, sizeof name, "kv_store %s, %u channels, %u heads%s", kv_type_info(type)->name, dim, 2 * group,
             is_wild ? ", wild" : "");
    report(world_same_pages(world, text, sizeof text), name, text);
    world_copy(world);
    for (int split = 0; split < 3; split++)
        for (uint32_t plans = 0; plans < 2; plans++) {
            set_split(world, split);
            if (plans) set_plans(world, group + (uint32_t)split);
            if (!plans) memset(world->plans, 0, sizeof world->plans);
            for (uint32_t s = 0; s < N_CRUEL && !plans; s++)
                for (uint32_t h = 0; h < 2; h++) world->plans[s][h].recent = PLAN_ALL;
            world_update(world);
            snprintf(name, sizeof name, "attend %s, %u channels, group %u, split %d, plans %u%s",
                     kv_type_info(type)->name, dim, group, split, plans, is_wild ? ", wild" : "");
            check_attend(world, table, name, split == 1 && plans ? 3 : 0, false);
        }
    world_free(world);
}

static void test_turn(const KernelTable *table, KvType type, uint32_t dim, uint32_t group)
{
    char name[120], text[100];
    const WorldShape shape = {.types = {type},
                              .n_classes = 1,
                              .n_heads = group * 2,
                              .n_kv_heads = 2,
                              .dim = dim,
                              .seqs = cruel,
                              .n_seqs = N_CRUEL};
    for (int norms = 0; norms < 2; norms++) {
        uint32_t n_pairs = norms ? dim / 2 : dim / 4;
        snprintf(name, sizeof name, "kv_store that turns, %s, %u channels, group %u, norms %d",
                 kv_type_info(type)->name, dim, group, norms);
        report(turn_check(table, &shape, n_pairs, norms, text, sizeof text), name, text);
    }
}

static void test_invariance(const KernelTable *table, KvType type)
{
    static const WorldSeq seqs[] = {{3000, 1, 1}, {63, 1, 1},    {0, 100, 0}, {64, 36, 0},
                                    {700, 1, 1},  {10000, 1, 1}, {128, 70, 0}};
    char name[100];
    WorldShape shape = {.types = {type},
                        .n_classes = 1,
                        .n_heads = 8,
                        .n_kv_heads = 2,
                        .dim = 128,
                        .seqs = seqs,
                        .n_seqs = sizeof seqs / sizeof *seqs};
    World *world = world_new(&shape, 5);
    world_store(world, table);
    snprintf(name, sizeof name, "batch invariance, %s", kv_type_info(type)->name);
    check_invariance(world, table, name);
    check_attend(world, table, name, 0, true);
    check_attend(world, table, name, 0, false);
    world_free(world);
}

/* So many sequences that a block does whole ones, as many each where they are of one length. */
static void test_many_sequences(const KernelTable *table, KvType type)
{
    char name[100];
    for (uint32_t n = 31; n <= WORLD_MAX_SEQS; n += n < 33 ? 1 : 31)
        for (uint32_t step = 0; step <= 17; step += 17) {
            WorldSeq seqs[WORLD_MAX_SEQS];
            for (uint32_t i = 0; i < n; i++) seqs[i] = (WorldSeq){200 + i * step, 1, 1};
            const WorldShape shape = {.types = {type},
                                      .n_classes = 1,
                                      .n_heads = 16,
                                      .n_kv_heads = 8,
                                      .dim = 64,
                                      .seqs = seqs,
                                      .n_seqs = n};
            World *world = world_new(&shape, n);
            world_store(world, table);
            snprintf(name, sizeof name, "%u sequences %u apart, %s", n, step, kv_type_info(type)->name);
            check_attend(world, table, name, 0, false);
            world_free(world);
        }
}

/* Rows that see many tiles of keys, by plans of all kinds; in slices of any length they keep their bits. */
static void check_slices(World *world, const KernelTable *table, const char *name)
{
    static const uint32_t cuts[] = {0, 1, 18, 64, 197, 260, 261, 700};
    enum { N_SLICES = sizeof cuts / sizeof *cuts - 1 };
    const WorldShape *s = &world->shape;
    size_t row = (size_t)s->n_heads * s->dim, n = world->n_rows * row + WORLD_GUARD;
    float *whole = world_must(malloc(n * sizeof *whole)), *sliced = world_must(malloc(n * sizeof *sliced));
    KvSpan spans[N_SLICES], *device = NULL;
    AttendParams params = world_params(world);
    bool good = world_attend(world, table, 0, 1, 0, false, whole);
    world_check(cudaMemcpy(spans, world->device_spans[1], sizeof *spans, cudaMemcpyDeviceToHost), "reading a span");
    for (int i = N_SLICES - 1; i >= 0; i--) {
        spans[i] = spans[0];
        spans[i].first_row += cuts[i];
        spans[i].first_pos += cuts[i];
        spans[i].n_rows = cuts[i + 1] - cuts[i];
    }
    world_check(cudaMalloc((void **)&device, sizeof spans), "allocating");
    world_check(cudaMemcpy(device, spans, sizeof spans, cudaMemcpyHostToDevice), "copying spans");
    world_check(cudaMemset(world->device_out, 0x7F, n * sizeof(float)), "clearing out");
    params.q = world->device_q;
    params.out = world->device_out;
    params.spans = device;
    params.n_spans = N_SLICES;
    params.launch = (KvLaunch){.types = 1u << s->types[0], .tiled_rows = world->seqs[0].n_rows};
    good = good && table->attend(&params, (Stream){0});
    world_check(cudaDeviceSynchronize(), "attend");
    world_check(cudaMemcpy(sliced, world->device_out, n * sizeof(float), cudaMemcpyDeviceToHost), "copying out");
    report(good && memcmp(whole, sliced, cuts[N_SLICES] * row * sizeof(float)) == 0, name, "slices differ");
    cudaFree(device);
    free(whole);
    free(sliced);
}

static void test_prefill(const KernelTable *table, KvType type, uint32_t dim, uint32_t group)
{
    static const WorldSeq seqs[] = {{515, 700, 0}, {0, 650, 0}, {2000, 90, 0}};
    char name[100];
    WorldShape shape = {
        .types = {type}, .n_classes = 1, .n_heads = 4 * group, .n_kv_heads = 4, .dim = dim, .seqs = seqs, .n_seqs = 3};
    World *world = world_new(&shape, dim + group);
    world_store(world, table);
    for (uint32_t plans = 0; plans < 7; plans++) {
        if (plans) set_plans(world, plans);
        world_update(world);
        snprintf(name, sizeof name, "prefill %s, %u channels, group %u, plans %u", kv_type_info(type)->name, dim, group,
                 plans);
        check_attend(world, table, name, plans == 5 ? 3 : 0, false);
        check_slices(world, table, name);
    }
    world_free(world);
}

/* Two classes of different types in one layer, addresses past 4 GiB from page 0, page numbers past 2^25. */
static void test_far_pages(const KernelTable *table, KvType type, KvType other, uint32_t offset)
{
    char name[100], text[300] = "";
    WorldShape shape = {.types = {type, other},
                        .n_classes = 2,
                        .n_heads = 12,
                        .n_kv_heads = 4,
                        .dim = 64,
                        .seqs = cruel,
                        .n_seqs = N_CRUEL,
                        .page_offset = offset};
    World *world = world_new(&shape, 9);
    world_store(world, table);
    snprintf(name, sizeof name, "%s and %s, pages from %u on", kv_type_info(type)->name, kv_type_info(other)->name,
             offset);
    report(world_same_pages(world, text, sizeof text), name, text);
    for (int split = 0; split < 2; split++) {
        set_split(world, split);
        set_plans(world, 3);
        world_update(world);
        check_attend(world, table, name, 0, false);
    }
    world_free(world);
}

/* Rows of a grid's limits; the twin answers for some of them. */
static void test_many_rows(const KernelTable *table, uint32_t n_rows)
{
    char name[60], text[300] = "the launch failed";
    WorldSeq seq = {3, n_rows, false};
    WorldShape shape = {
        .types = {KV_F16}, .n_classes = 1, .n_heads = 1, .n_kv_heads = 1, .dim = 64, .seqs = &seq, .n_seqs = 1};
    World *world = world_new(&shape, n_rows);
    world->plans[0][0] = (AttnPlan){.sink = 16, .recent = 50};
    world_update(world);
    world_store(world, table);
    snprintf(name, sizeof name, "%u rows", n_rows);
    report(world_same_pages(world, text, sizeof text), name, text);
    size_t n = (size_t)n_rows * 64 + WORLD_GUARD;
    float *got = world_must(malloc(n * sizeof *got)), *want = world_must(calloc(n, sizeof *want));
    bool good = world_attend(world, table, 0, 1, 0, false, got);
    for (uint32_t r = 0; good && r < n_rows; r += r + 100 < n_rows && r > 100 ? 9973 : 1) {
        KvSpan span = world->spans[1][0];
        span.first_row = r;
        span.first_pos += r;
        span.n_rows = 1;
        AttendParams params = world_params(world);
        params.spans = &span;
        params.out = want;
        if (!attend_ref(&params)) world_must(NULL);
        good = compare_floats(got + (size_t)r * 64, want + (size_t)r * 64, 64, tolerance_of(world, false), text,
                              sizeof text);
    }
    report(good, name, text);
    free(got);
    free(want);
    world_free(world);
}

/* One row over many parts, against the CPU and against itself with other neighbours. */
static void test_long(const KernelTable *table, KvType type, uint32_t n_tokens)
{
    static const WorldSeq one = {0, 1, true};
    char name[60];
    WorldSeq seqs[3] = {one, {n_tokens / 3, 1, true}, {777, 1, true}};
    seqs[0].first_pos = n_tokens;
    WorldShape shape = {
        .types = {type}, .n_classes = 1, .n_heads = 32, .n_kv_heads = 8, .dim = 128, .seqs = seqs, .n_seqs = 3};
    World *world = world_new(&shape, n_tokens);
    world_store(world, table);
    snprintf(name, sizeof name, "%u tokens, %s", n_tokens, kv_type_info(type)->name);
    size_t row = 32 * 128, n = 3 * row + WORLD_GUARD;
    float *all = world_must(malloc(n * sizeof *all)), *alone = world_must(malloc(n * sizeof *alone));
    char text[200] = "the launch failed";
    check_attend(world, table, name, 0, false);
    bool good = world_attend(world, table, 0, 3, 0, false, all) && world_attend(world, table, 0, 1, 0, false, alone);
    Tolerance close = {.abs = 3e-6, .rel = 1e-5, .min_cosine = 1 - 1e-11};
    report(good && compare_floats(all, alone, row, close, text, sizeof text), "other parts", text);
    free(all);
    free(alone);
    world_free(world);
}

/* Scores that take fewer channels the further a key is; rows of a sequence lie in one page. */
static void test_bands(const KernelTable *table, KvType type, uint32_t dim, uint32_t group)
{
    static const WorldSeq seqs[] = {{0, 1, 0},    {63, 1, 0},    {64, 1, 0},   {130, 5, 0},  {700, 2, 0},
                                    {1500, 30, 0}, {2048, 64, 0}, {2563, 61, 0}, {3100, 20, 0}, {4159, 1, 0}};
    enum { N_SEQS = sizeof seqs / sizeof *seqs, N_HEADS = 3 };
    const AttnBand bands[] = {{0, dim},  {40, dim - 16}, {90, dim - 32},   {200, dim / 32 * 16},
                              {600, 32}, {2000, 16},     {UINT32_MAX, 16}};
    char name[120];
    WorldShape shape = {.types = {type},
                        .n_classes = 1,
                        .n_heads = group * N_HEADS,
                        .n_kv_heads = N_HEADS,
                        .dim = dim,
                        .seqs = seqs,
                        .n_seqs = N_SEQS};
    World *world = world_new(&shape, dim + 7 * group);
    world_store(world, table);
    world_copy(world);
    for (int split = 0; split < 3; split++)
        for (uint32_t plans = 0; plans < 3; plans++) {
            set_split(world, split);
            if (plans) set_plans(world, 3 * plans + (uint32_t)split);
            for (uint32_t s = 0; s < N_SEQS; s++)
                for (uint32_t h = 0; h < N_HEADS; h++) {
                    if (!plans) world->plans[s][h] = (AttnPlan){.recent = PLAN_ALL};
                    world->plans[s][h].bands = bands;
                    world->plans[s][h].n_bands = (s + h) % 4 == 3 ? 0 : (sizeof bands / sizeof *bands) - (s + h) % 2;
                }
            world_update(world);
            snprintf(name, sizeof name, "bands, %s, %u channels, group %u, split %d, plans %u",
                     kv_type_info(type)->name, dim, group, split, plans);
            check_attend(world, table, name, plans == 2 ? 3 : 0, false);
        }
    for (uint32_t s = 0; s < N_SEQS; s++) world->seqs[s].is_split = world->seqs[s].n_rows == 1;
    world_update(world);
    check_invariance(world, table, "bands, alone and together");
    world_free(world);
}

static void test_refusals(const KernelTable *table)
{
    WorldSeq seq = {3, 1, false};
    WorldShape shape = {
        .types = {KV_F16}, .n_classes = 1, .n_heads = 1, .n_kv_heads = 1, .dim = 80, .seqs = &seq, .n_seqs = 1};
    World *world = world_new(&shape, 1);
    AttendParams params = world_params(world);
    params.launch = (KvLaunch){.types = 1u << KV_F16, .tiled_rows = 1};
    report(!table->attend(&params, (Stream){0}), "heads of 80 channels are refused", "");
    params.k_dim = params.v_dim = 64;
    params.launch.types = 1u << KV_F32;
    report(!table->attend(&params, (Stream){0}), "f32 is refused", "");
    world_free(world);
}

static void run_all(const KernelTable *table)
{
    static const KvType types[] = {KV_F16, KV_BF16, KV_F8, KV_INT8, KV_INT4};
    static const uint32_t dims[] = {64, 96, 128, 256}, groups[] = {1, 3, 4, 5, 7, 8};
    test_refusals(table);
    for (size_t t = 0; t < 5; t++) {
        for (size_t d = 0; d < 4; d++)
            for (size_t g = 0; g < 6; g++)
                if (is_quick ? (d + t) % 4 == 0 && g == 1 : d == 2 || (d + g + t) % 2 == 0)
                    test_shape(table, types[t], dims[d], groups[g], false);
        for (size_t d = 0; d < 4; d++)
            if (!is_quick || d == t % 4) test_bands(table, types[t], dims[d], groups[(2 * d + t) % 6]);
        for (size_t d = 0; d < 4; d++)
            if (!is_quick || d == t % 4) test_turn(table, types[t], dims[d], groups[(d + t) % 6]);
        if (is_quick) continue;
        test_shape(table, types[t], 128, 4, true);
        test_shape(table, types[t], 64, 17, true);
        test_invariance(table, types[t]);
        test_many_sequences(table, types[t]);
        test_prefill(table, types[t], 128, 4);
        test_prefill(table, types[t], 64, t % 2 ? 7 : 3);
        test_far_pages(table, types[t], types[(t + 2) % 5], (1u << 25) + 12345);
        printf("%s: worst so far: split %.2g, tiled %.2g; %u failed\n", kv_type_info(types[t])->name, worst[0],
               worst[1], n_failed);
        fflush(stdout);
    }
    if (is_quick) return;
    for (uint32_t rows = 65535; rows <= 65537; rows++) test_many_rows(table, rows);
    test_long(table, KV_BF16, 20000);
    test_long(table, KV_INT8, 20001);
    test_long(table, KV_INT4, 5000);
}

int main(int argc, char **argv)
{
    Error error;
    const KernelTable *table = kernels_cuda(0, &error);
    bool is_portable = false;
    for (int i = 1; i < argc; i++) {
        is_quick = is_quick || strcmp(argv[i], "--quick") == 0;
        is_portable = is_portable || strcmp(argv[i], "--portable") == 0;
    }
    if (!table) {
        printf("SKIPPED, no device: %s\n0 passed, 0 failed\n", error.text);
        return 77; /* what Meson calls a skip */
    }
    if (is_portable) device_facts_use_old_code();
    if (!threads_new(threads_available(), &pool, &error)) {
        printf("%s\n", error.text);
        return 1;
    }
    run_all(table);
    threads_free(pool);
    printf("worst difference: split %.3g, tiled %.3g\n%u passed, %u failed\n", worst[0], worst[1], n_passed, n_failed);
    return n_failed > 0;
}
