/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/wavelength.h"

#include <math.h>

bool wavelength_layer_theta(const ModelShape *shape, const Gguf *gguf, uint32_t layer, double *ret_theta, Error *error)
{
    bool has_own_base = shape_layer_window(shape, layer) && shape->window_rope_base != 0;
    if (!has_own_base) return family_rope_theta(shape, gguf, ret_theta, error);
    ModelShape window_shape = shape_of_window_layers(shape);
    return family_rope_theta(&window_shape, NULL, ret_theta, error);
}

bool wavelength_cuts(const Wavelength *wavelength, double k)
{
    return k > 0 || wavelength->linear > 0;
}

/* The retained periods of the pair that is r-th from the shortest wavelength. */
static double periods(const Wavelength *wavelength, double k, uint32_t r, uint32_t n_pairs)
{
    double ratio = wavelength->k_ratio == 0 ? 1 : wavelength->k_ratio;
    double place = n_pairs > 1 ? (double)r / (n_pairs - 1) : 1;
    return wavelength->profile == WAVE_GEOMETRIC ? k * pow(ratio, 1 - place) : k * (ratio + (1 - ratio) * place);
}

double wavelength_reach(const Wavelength *wavelength, double k, const WaveHead *head, uint32_t pair)
{
    if (!wavelength_cuts(wavelength, k)) return INFINITY;
    uint32_t n = head->n_pairs, r = n - 1 - pair;
    double gamma = wavelength->gamma == 0 ? 1 : wavelength->gamma;
    double reach =
        periods(wavelength, k, r, n) * pow(2 * M_PI / head->theta[pair], gamma) + wavelength->linear * (r + 1) / n;
    reach = fmax(reach, wavelength->floor);
    return wavelength->ceiling ? fmin(reach, wavelength->ceiling) : reach;
}

static uint32_t round_width(uint32_t n_channels, uint32_t head_dim)
{
    uint32_t blocks = (n_channels + WAVE_STEP_CHANNELS - 1) / WAVE_STEP_CHANNELS;
    uint32_t width = (blocks ? blocks : 1) * WAVE_STEP_CHANNELS;
    return width < head_dim ? width : head_dim;
}

/*
 * From the shortest wavelength on: behind the furthest reach met so far, only what stands before that pair is needed. A
 * profile can let a pair reach further than one of longer wavelength, which then has to stay with it.
 */
uint32_t wavelength_bands(const Wavelength *wavelength, double k, const WaveHead *head,
                          AttnBand ret_bands[static WAVE_MAX_BANDS])
{
    if (!wavelength_cuts(wavelength, k)) return 0;
    uint32_t n_still = head->head_dim - 2 * head->n_pairs, n_bands = 1;
    double furthest = 0;
    ret_bands[0] = (AttnBand){0, head->head_dim};
    for (uint32_t pair = head->n_pairs; pair-- > 0;) {
        furthest = fmax(furthest, wavelength_reach(wavelength, k, head, pair));
        uint32_t width = round_width(n_still + 2 * pair, head->head_dim);
        AttnBand *last = &ret_bands[n_bands - 1];
        if (!(furthest < UINT32_MAX)) break;
        uint32_t first_distance = (uint32_t)floor(furthest) + 1;
        if (width == last->n_channels) continue;
        if (first_distance == last->first_distance) n_bands--;
        ret_bands[n_bands++] = (AttnBand){first_distance, width};
    }
    return n_bands;
}

uint32_t wavelength_width(const AttnBand *bands, uint32_t n_bands, uint32_t head_dim, uint32_t distance)
{
    uint32_t width = head_dim;
    for (uint32_t i = 0; i < n_bands && bands[i].first_distance <= distance; i++) width = bands[i].n_channels;
    return width;
}

/* Sum over rows 1 .. n, which see as many keys, of the keys within reach of at most c of them. */
static uint64_t sum_rows(uint64_t n, uint64_t c)
{
    return n <= c ? n * (n + 1) / 2 : c * (c + 1) / 2 + (n - c) * c;
}

WaveCount wavelength_count_exact(const Wavelength *wavelength, double k, const WaveHead *head, uint32_t first,
                                 uint32_t n)
{
    uint64_t end = (uint64_t)first + n, cells = sum_rows(end, end) - sum_rows(first, first);
    WaveCount count = {.kept = cells * (head->head_dim - 2 * head->n_pairs), .total = cells * head->head_dim};
    for (uint32_t pair = 0; pair < head->n_pairs; pair++) {
        double reach = wavelength_reach(wavelength, k, head, pair);
        uint64_t seen = reach < (double)end ? (uint64_t)reach + 1 : end;
        count.kept += 2 * (sum_rows(end, seen) - sum_rows(first, seen));
    }
    return count;
}

WaveCount wavelength_count_bands(const AttnBand *bands, uint32_t n_bands, uint32_t head_dim, uint32_t first, uint32_t n)
{
    WaveCount count = {0};
    uint64_t end = (uint64_t)first + n, sector_channels = 0; /* of all sectors before the page, one token each */
    uint32_t band = 0;
    for (uint64_t page = 0; page * KV_PAGE_TOKENS < end; page++) {
        for (uint64_t back = KV_PAGE_SECTORS * (page - 1) + 1; page && back <= KV_PAGE_SECTORS * page; back++) {
            uint64_t distance = KV_SECTOR_TOKENS * (back - 1) + 1;
            while (band + 1 < n_bands && bands[band + 1].first_distance <= distance) band++;
            sector_channels += n_bands ? bands[band].n_channels : head_dim;
        }
        uint64_t start = page * KV_PAGE_TOKENS, from = first > start ? first - start : 0;
        uint64_t to = end - start < KV_PAGE_TOKENS ? end - start : KV_PAGE_TOKENS;
        if (from >= to) continue;
        uint64_t own_cells = sum_rows(to, to) - sum_rows(from, from), rows = to - from;
        count.kept += rows * KV_SECTOR_TOKENS * sector_channels + own_cells * head_dim;
        count.total += (rows * start + own_cells) * head_dim;
    }
    return count;
}

/* The logarithm of the RoPE base that plain wavelengths have, which is how they step; false: they are not plain. */
static bool plain_log_base(const WaveHead *head, double *ret_log_base)
{
    uint32_t n = head->n_pairs;
    if (n < 2 || head->head_dim != 2 * n || fabs(head->theta[n - 1] - 1) > 1e-9) return false;
    double step = log(head->theta[n - 1] / head->theta[0]) / (n - 1);
    for (uint32_t pair = 0; pair < n; pair++)
        if (fabs(log(head->theta[pair]) + step * (n - 1 - pair)) > 1e-9) return false;
    *ret_log_base = step * n;
    return true;
}

bool wavelength_closed_form(const Wavelength *wavelength, double k, const WaveHead *head, uint32_t n_tokens,
                            double *ret_prefill, double *ret_row)
{
    double log_base, gamma = wavelength->gamma == 0 ? 1 : wavelength->gamma;
    bool is_plain = (wavelength->k_ratio == 0 || wavelength->k_ratio == 1) && wavelength->linear == 0 &&
                    !wavelength->floor && !wavelength->ceiling;
    if (!(k > 0) || !is_plain || !plain_log_base(head, &log_base)) return false;
    double shortest = k * pow(2 * M_PI, gamma), pruned = log(n_tokens / shortest), steps = gamma * log_base;
    if (pruned < 1.5 || pruned > steps) return false;
    *ret_prefill = (pruned - 1.5) / steps;
    *ret_row = (pruned - 1) / steps;
    return true;
}
