/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/wavelength.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

static Error error;

typedef struct Head {
    double theta[KV_MAX_DIM / 2];
    WaveHead head;
} Head;

static void head_of(const ModelShape *shape, uint32_t layer, Head *ret_head)
{
    cr_assert(wavelength_layer_theta(shape, NULL, layer, ret_head->theta, &error), "%s", error.text);
    ret_head->head = (WaveHead){ret_head->theta, shape->rope_dim / 2, shape->head_dim};
}

static void named_head(const char *name, Head *ret_head)
{
    head_of(shape_by_name(name), 0, ret_head);
}

static Wavelength plain(double k)
{
    return (Wavelength){.k_prefill = k, .k_decode = k};
}

static double pruned(WaveCount count)
{
    return 100 * (1 - (double)count.kept / (double)count.total);
}

static double pruned_prefill(const Wavelength *rule, const Head *head, uint32_t n)
{
    return pruned(wavelength_count_exact(rule, rule->k_prefill, &head->head, 0, n));
}

static double pruned_row(const Wavelength *rule, const Head *head, uint32_t n)
{
    return pruned(wavelength_count_exact(rule, rule->k_decode, &head->head, n - 1, 1));
}

#define expect_near(is, want, within, ...)                                                                             \
    cr_expect(fabs((is) - (want)) <= (within), "%g, not %g: " __VA_ARGS__, (double)(is), (double)(want))

/* ATFlash table 1, k = 2, and sparse-attention.md C1, where figures have two decimals. */
Test(test_wavelength, counts_of_the_paper)
{
    static const struct {
        const char *shape;
        uint32_t n;
        double prefill, row; /* percent */
    } cases[] = {
        {"qwen2.5-0.5b", 8 << 10, 37.62, 41.13},   {"qwen2.5-0.5b", 16 << 10, 42.64, 46.29},
        {"qwen2.5-0.5b", 32 << 10, 47.64, 51.27},  {"qwen2.5-0.5b", 128 << 10, 57.68, 61.35},
        {"qwen2.5-0.5b", 1 << 20, 72.72, 76.37},   {"qwen2.5-0.5b", 200000, 60.73, 64.41},
        {"llama-3.2-3b", 8 << 10, 38.46, 41.73},   {"llama-3.2-3b", 16 << 10, 42.45, 44.93},
        {"llama-3.2-3b", 32 << 10, 45.59, 47.63},  {"llama-3.2-3b", 64 << 10, 48.13, 49.81},
        {"llama-3.1-8b", 8 << 10, 38.47, 41.75},   {"llama-3.1-8b", 32 << 10, 45.83, 48.00},
        {"llama-3.1-8b", 128 << 10, 50.96, 52.48}, {"llama-3.1-8b", 1 << 20, 60.99, 64.25},
        {"smollm2-135m", 8 << 10, 44.83, 49.08},   {"smollm2-135m", 32 << 10, 56.87, 61.17},
        {"smollm2-135m", 128 << 10, 68.91, 73.26}, {"smollm2-135m", 1 << 20, 86.96, 91.35},
        {"qwen2.5-7b-1m", 1 << 20, 61.78, 64.85},
    };
    const Wavelength rule = plain(2);
    Head head;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        named_head(cases[i].shape, &head);
        expect_near(pruned_prefill(&rule, &head, cases[i].n), cases[i].prefill, 0.0051, "%s", cases[i].shape);
        expect_near(pruned_row(&rule, &head, cases[i].n), cases[i].row, 0.0051, "%s", cases[i].shape);
    }
}

Test(test_wavelength, counts_under_yarn)
{
    static const struct {
        double factor;
        uint32_t n;
        double percent;
    } cases[] = {{2, 64 << 10, 50.39}, {5, 160 << 10, 53.77}};
    const Wavelength rule = plain(2);
    for (size_t i = 0; i < 2; i++) {
        ModelShape shape = *shape_by_name("qwen2.5-0.5b");
        Head head;
        shape.rope_original_context = shape.train_context;
        shape.rope_yarn = (RopeYarn){.factor = cases[i].factor, .beta_fast = 32, .beta_slow = 1};
        head_of(&shape, 0, &head);
        expect_near(pruned_prefill(&rule, &head, cases[i].n), cases[i].percent, 0.0051, "factor %g", cases[i].factor);
    }
}

/* The dial of Llama-3.1-8B at 128K, last row (C1), and the paper's k = 64 and variable k (table 2). */
Test(test_wavelength, more_periods_prune_less)
{
    static const double dial[][2] = {{1, 55.5}, {2, 52.5}, {4, 50.4}, {8, 48.0}, {16, 45.2}, {64, 37.3}};
    Head llama, qwen, million;
    named_head("llama-3.1-8b", &llama);
    named_head("qwen2.5-0.5b", &qwen);
    named_head("qwen2.5-7b-1m", &million);
    for (size_t i = 0; i < sizeof dial / sizeof *dial; i++) {
        const Wavelength dialled = plain(dial[i][0]);
        expect_near(pruned_row(&dialled, &llama, 128 << 10), dial[i][1], 0.051, "k %g", dial[i][0]);
    }
    const Wavelength far = plain(64), variable = {.k_prefill = 2, .k_ratio = 8, .profile = WAVE_ARITHMETIC};
    expect_near(pruned_prefill(&far, &million, 169000), 28.98, 0.0051, "k = 64");
    expect_near(pruned_prefill(&variable, &qwen, 16 << 10), 29.82, 0.0051, "16 to 2");
    const Wavelength rule = plain(2);
    expect_near(pruned_prefill(&rule, &million, 117000), 48.17, 0.0051, "k = 2");
    expect_near(pruned_prefill(&rule, &million, 169000), 50.46, 0.0051, "k = 2");
    expect_near(pruned_prefill(&variable, &million, 117000), 37.78, 0.0051, "16 to 2");
    expect_near(pruned_prefill(&variable, &million, 169000), 40.28, 0.0051, "16 to 2");
}

Test(test_wavelength, closed_form)
{
    Head qwen, llama;
    named_head("qwen2.5-0.5b", &qwen);
    named_head("llama-3.1-8b", &llama);
    Wavelength rule = plain(2);
    double prefill = -1, row = -1;
    cr_assert(wavelength_closed_form(&rule, 2, &qwen.head, 32768, &prefill, &row));
    expect_near(100 * prefill, 46.08, 0.0051, "prefill");
    expect_near(100 * row, 49.70, 0.0051, "row");
    expect_near(pruned_prefill(&rule, &qwen, 32768), 100 * prefill, 2, "the integral's error is 1 to 2 points");

    /* An exponent acts as another base does (eq. 13): here the square root of it, with a shortest window to match. */
    Wavelength root = {.k_prefill = 2 * sqrt(2 * M_PI), .gamma = 0.5};
    double root_prefill, root_row;
    cr_assert(wavelength_closed_form(&root, root.k_prefill, &qwen.head, 4096, &root_prefill, &root_row));
    expect_near(root_prefill, (log(4096 / (4 * M_PI)) - 1.5) / log(1e3), 1e-12, "base 1000");
    expect_near(pruned_prefill(&root, &qwen, 4096), 100 * root_prefill, 4, "counted");

    prefill = row = -1;
    cr_expect(!wavelength_closed_form(&rule, 2, &llama.head, 32768, &prefill, &row), "scaled wavelengths");
    cr_expect(!wavelength_closed_form(&rule, 2, &qwen.head, 32, &prefill, &row), "windows span the context");
    cr_expect(!wavelength_closed_form(&rule, 2, &qwen.head, 1 << 24, &prefill, &row), "beyond the longest window");
    cr_expect(!wavelength_closed_form(&rule, 0, &qwen.head, 32768, &prefill, &row), "no window");
    const Wavelength others[] = {{.k_prefill = 2, .k_ratio = 8},
                                 {.k_prefill = 2, .linear = 1},
                                 {.k_prefill = 2, .floor = 1},
                                 {.k_prefill = 2, .ceiling = 1}};
    for (size_t i = 0; i < 4; i++) cr_expect(!wavelength_closed_form(&others[i], 2, &qwen.head, 32768, &prefill, &row));
    WaveHead still = {qwen.theta, 32, 80};
    cr_expect(!wavelength_closed_form(&rule, 2, &still, 32768, &prefill, &row), "channels without rotation");
    cr_expect(prefill == -1 && row == -1, "outputs stay");
}

static void expect_bands(const AttnBand *bands, uint32_t n, const AttnBand *wanted, uint32_t n_wanted)
{
    cr_assert_eq(n, n_wanted, "%u bands, not %u", n, n_wanted);
    for (uint32_t i = 0; i < n; i++)
        cr_expect(bands[i].first_distance == wanted[i].first_distance && bands[i].n_channels == wanted[i].n_channels,
                  "band %u: %u channels from %u", i, bands[i].n_channels, bands[i].first_distance);
}

/* C3. */
Test(test_wavelength, bands_of_named_shapes)
{
    static const AttnBand llama[] = {{0, 128},    {53, 112},    {273, 96},     {1404, 80},
                                     {14668, 64}, {298614, 48}, {1539859, 32}, {7940580, 16}};
    static const AttnBand qwen[] = {{0, 64}, {259, 48}, {8161, 32}, {258054, 16}};
    static const AttnBand smol[] = {{0, 64}, {156, 48}, {2774, 32}, {49313, 16}};
    const Wavelength rule = plain(2);
    AttnBand bands[WAVE_MAX_BANDS];
    Head head;
    named_head("llama-3.1-8b", &head);
    expect_bands(bands, wavelength_bands(&rule, 2, &head.head, bands), llama, 8);
    named_head("qwen2.5-0.5b", &head);
    expect_bands(bands, wavelength_bands(&rule, 2, &head.head, bands), qwen, 4);
    named_head("smollm2-135m", &head);
    expect_bands(bands, wavelength_bands(&rule, 2, &head.head, bands), smol, 4);
}

/* C1's rounded columns: tiles of 128 x 128, and a last row over pages of 64 tokens. */
Test(test_wavelength, counts_of_rounded_tiles)
{
    static const struct {
        const char *shape;
        uint32_t n;
        double prefill, row;
    } cases[] = {{"qwen2.5-0.5b", 8 << 10, 22.00, 24.02},   {"qwen2.5-0.5b", 32 << 10, 38.16, 43.51},
                 {"qwen2.5-0.5b", 128 << 10, 46.73, 48.38}, {"llama-3.1-8b", 32 << 10, 39.53, 43.70},
                 {"llama-3.1-8b", 1 << 20, 55.99, 58.74},   {"smollm2-135m", 32 << 10, 45.14, 47.71},
                 {"smollm2-135m", 128 << 10, 58.42, 65.01}, {"qwen2.5-7b-1m", 1 << 20, 56.73, 59.31}};
    const Wavelength rule = plain(2);
    AttnBand bands[WAVE_MAX_BANDS];
    Head head;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        named_head(cases[i].shape, &head);
        uint32_t n_bands = wavelength_bands(&rule, 2, &head.head, bands), tiles = cases[i].n / 128;
        uint64_t kept = 0, total = 0, row = 0;
        for (uint32_t back = 0; back < tiles; back++) {
            uint64_t n = tiles - back;
            kept += n * wavelength_width(bands, n_bands, head.head.head_dim, back ? back * 128 - 127 : 0);
            total += n * head.head.head_dim;
        }
        for (uint32_t end = 64; end <= cases[i].n; end += 64)
            row += wavelength_width(bands, n_bands, head.head.head_dim, cases[i].n - end);
        expect_near(100 - 100 * (double)kept / (double)total, cases[i].prefill, 0.0051, "%s", cases[i].shape);
        expect_near(100 - 6400 * (double)row / cases[i].n / head.head.head_dim, cases[i].row, 0.0051, "%s",
                    cases[i].shape);
    }
}

/* Channels without rotation stay at every distance, and heads that are no multiple of 16 end whole or at one. */
Test(test_wavelength, bands_of_odd_heads)
{
    const double theta[] = {1e-4, 1e-3, 1e-2, 1e-1, 1};
    const Wavelength rule = plain(1);
    AttnBand bands[WAVE_MAX_BANDS];
    WaveHead head = {theta, 5, 42};
    expect_bands(bands, wavelength_bands(&rule, 1, &head, bands), (AttnBand[]){{0, 42}, {62832, 32}}, 2);
    head.head_dim = 34; /* 24 still: pair 4 stands at 32 */
    expect_bands(bands, wavelength_bands(&rule, 1, &head, bands), (AttnBand[]){{0, 34}, {7, 32}}, 2);
    head.head_dim = 38; /* 28 still: pairs 2, 3 and 4 stand at 32 and up */
    expect_bands(bands, wavelength_bands(&rule, 1, &head, bands), (AttnBand[]){{0, 38}, {629, 32}}, 2);
    head.head_dim = 10; /* one block always */
    expect_bands(bands, wavelength_bands(&rule, 1, &head, bands), (AttnBand[]){{0, 10}}, 1);
    head = (WaveHead){NULL, 0, 32};
    expect_bands(bands, wavelength_bands(&rule, 1, &head, bands), (AttnBand[]){{0, 32}}, 1);
    cr_expect_eq(wavelength_count_exact(&rule, 1, &head, 0, 100).kept, 5050 * 32, "no pair, no cut");
    cr_expect_eq(wavelength_bands(&rule, 0, &head, bands), 0, "no window");
}

Test(test_wavelength, members_of_the_family)
{
    const double theta[] = {2 * M_PI / 1000, 2 * M_PI / 100, 2 * M_PI / 10};
    const WaveHead head = {theta, 3, 6};
    const struct {
        Wavelength rule;
        double reach[3]; /* longest wavelength first */
    } cases[] = {
        {{.k_prefill = 2}, {2000, 200, 20}},
        {{.k_prefill = 2, .gamma = 0.5}, {2 * sqrt(1000), 20, 2 * sqrt(10)}},
        {{.k_prefill = 2, .k_ratio = 9, .profile = WAVE_ARITHMETIC}, {2000, 1000, 180}},
        {{.k_prefill = 2, .k_ratio = 9, .profile = WAVE_GEOMETRIC}, {2000, 600, 180}},
        {{.k_prefill = 2, .floor = 150}, {2000, 200, 150}},
        {{.k_prefill = 2, .ceiling = 150}, {150, 150, 20}},
        {{.k_prefill = 2, .linear = 300}, {2300, 400, 120}},
        {{.linear = 300}, {300, 200, 100}},
        {{.k_prefill = 1, .floor = 64, .ceiling = 64}, {64, 64, 64}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint32_t pair = 0; pair < 3; pair++)
            expect_near(wavelength_reach(&cases[i].rule, cases[i].rule.k_prefill, &head, pair), cases[i].reach[pair],
                        1e-9, "case %zu, pair %u", i, pair);
    cr_expect_eq(wavelength_reach(&(Wavelength){.floor = 5}, 0, &head, 0), INFINITY, "k 0 is no window");
}

/* Where a profile lets a short wavelength reach further than a long one, no band drops what a pair still needs. */
Test(test_wavelength, bands_hold_what_the_rule_keeps)
{
    double theta[48];
    AttnBand bands[WAVE_MAX_BANDS];
    for (uint32_t j = 0; j < 48; j++) theta[j] = pow(1000, -(47.0 - j) / 48);
    const WaveHead head = {theta, 48, 100};
    const Wavelength rules[] = {plain(2),
                                {.k_prefill = 0.5, .k_ratio = 1e5, .profile = WAVE_GEOMETRIC},
                                {.linear = 900},
                                {.k_prefill = 1, .floor = 100, .ceiling = 700}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        uint32_t n = wavelength_bands(&rules[i], rules[i].k_prefill, &head, bands);
        cr_assert(n >= 2 && bands[0].first_distance == 0 && bands[0].n_channels == 100);
        for (uint32_t b = 1; b < n; b++)
            cr_expect(bands[b].first_distance > bands[b - 1].first_distance &&
                      bands[b].n_channels < bands[b - 1].n_channels && bands[b].n_channels % 16 == 0);
        for (uint32_t z = 0; z < 20000; z++) {
            uint32_t needed = 4;
            for (uint32_t pair = 0; pair < 48; pair++)
                if (z <= wavelength_reach(&rules[i], rules[i].k_prefill, &head, pair)) needed = 4 + 2 * (pair + 1);
            uint32_t rounded = (needed + 15) / 16 * 16;
            cr_assert_eq(wavelength_width(bands, n, 100, z), rounded < 100 ? rounded : 100, "rule %zu at %u", i, z);
        }
    }
}

/* Window layers of gemma 3 rotate by a base of their own, without scaling. */
Test(test_wavelength, layers_with_windows)
{
    ModelShape shape = *shape_by_name("gemma3-270m");
    Head window, whole;
    shape.rope_linear_factor = 8;
    head_of(&shape, 0, &window);
    head_of(&shape, 5, &whole);
    expect_near(window.theta[0], pow(1e4, -254.0 / 256), 1e-15, "base 10000");
    expect_near(whole.theta[0], pow(1e6, -254.0 / 256) / 8, 1e-18, "base 1000000");
}

/* E1.6: the sums equal what loops over every query, key and channel count, by the rule and by the bands of plan.h. */
Test(test_wavelength, sums_equal_naive_loops)
{
    double theta[20];
    AttnBand bands[WAVE_MAX_BANDS];
    for (uint32_t j = 0; j < 20; j++) theta[j] = pow(100, -(19.0 - j) / 20);
    const WaveHead head = {theta, 20, 44};
    const Wavelength rule = plain(1.5);
    uint32_t n_bands = wavelength_bands(&rule, 1.5, &head, bands);
    static const struct {
        uint32_t first, n;
    } runs[] = {{0, 0}, {0, 1}, {0, 64}, {0, 65}, {0, 700}, {63, 1}, {64, 1}, {699, 1}, {100, 333}, {128, 128}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        WaveCount exact = {0}, cut = {0};
        for (uint32_t p = runs[i].first; p < runs[i].first + runs[i].n; p++)
            for (uint32_t key = 0; key <= p; key++) {
                uint32_t start = p / KV_PAGE_TOKENS * KV_PAGE_TOKENS, end = key / KV_SECTOR_TOKENS * 16 + 15,
                         width = 44;
                for (uint32_t b = 0; b < n_bands; b++)
                    if (bands[b].first_distance <= (start > end ? start - end : 0)) width = bands[b].n_channels;
                cut.kept += width;
                exact.kept += 4;
                for (uint32_t pair = 0; pair < 20; pair++)
                    exact.kept += p - key <= 1.5 * 2 * M_PI / theta[pair] ? 2 : 0;
                exact.total += 44;
            }
        WaveCount sum = wavelength_count_exact(&rule, 1.5, &head, runs[i].first, runs[i].n);
        WaveCount sum_cut = wavelength_count_bands(bands, n_bands, 44, runs[i].first, runs[i].n);
        cr_expect(sum.kept == exact.kept && sum.total == exact.total, "run %zu", i);
        cr_expect(sum_cut.kept == cut.kept && sum_cut.total == exact.total, "run %zu of bands", i);
        cr_expect(cut.kept >= exact.kept);
        WaveCount whole = wavelength_count_bands(NULL, 0, 44, runs[i].first, runs[i].n);
        cr_expect(whole.kept == exact.total && whole.total == exact.total);
    }
}
