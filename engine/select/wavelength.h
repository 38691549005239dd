/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wavelength windows (ATFlash 3; policy.h has the rule): how far each rotary pair of a head reaches, the band table by
 * which kernels cut scores, and how many terms of q k are left. Wavelengths are the effective ones, after all scaling
 * (sparse-attention.md C1). Kept widths are rounded up, so that a band holds at least what the rule keeps (decision 9).
 * Pure functions; any thread.
 */
#pragma once
#include "engine/model/family.h"
#include "engine/select/policy.h"

enum { WAVE_STEP_CHANNELS = 16, WAVE_MAX_BANDS = KV_MAX_DIM / WAVE_STEP_CHANNELS + 1 };

/* A head in longwave's channel order: channels without rotation, whose window is infinite, then the pairs. */
typedef struct WaveHead {
    const double *theta; /* [n_pairs] effective radians a token, ascending */
    uint32_t n_pairs, head_dim;
} WaveHead;

/* Terms of q k in a run of query rows, counted by channels; total: those of full attention. */
typedef struct WaveCount {
    uint64_t kept, total;
} WaveCount;

/*
 * Theta of a layer's heads, [rope_dim / 2] ascending: sliding-window layers may have a base of their own. gguf NULL: a
 * named shape.
 */
LW_CHECK bool wavelength_layer_theta(const ModelShape *shape, const Gguf *gguf, uint32_t layer, double *ret_theta,
                                     Error *error);

/* k is the one of the rule's two that the rows follow. False: no window, nothing is cut. */
bool wavelength_cuts(const Wavelength *wavelength, double k);
/* Largest distance at which a pair (of theta's order) takes part; INFINITY: every one. */
double wavelength_reach(const Wavelength *wavelength, double k, const WaveHead *head, uint32_t pair);
/* The band table: how many bands there are; 0: no window. Heads of at most KV_MAX_DIM channels. */
uint32_t wavelength_bands(const Wavelength *wavelength, double k, const WaveHead *head,
                          AttnBand ret_bands[static WAVE_MAX_BANDS]);
/* Channels that a table (0 bands: none) keeps of a head of head_dim at a distance. */
uint32_t wavelength_width(const AttnBand *bands, uint32_t n_bands, uint32_t head_dim, uint32_t distance);

/* Rows at positions [first, first + n): each pair's terms by the rule itself, nothing rounded (C1). */
WaveCount wavelength_count_exact(const Wavelength *wavelength, double k, const WaveHead *head, uint32_t first,
                                 uint32_t n);
/* The same by a band table and plan.h's distances, what kernels compute of true positions. */
WaveCount wavelength_count_bands(const AttnBand *bands, uint32_t n_bands, uint32_t head_dim, uint32_t first,
                                 uint32_t n);
/*
 * Share of terms that the closed form says are pruned of a whole prefill and of its last row (ATFlash eq. 12, 13).
 * False where it does not hold: wavelengths that are no geometric progression from 2 pi up, channels without rotation,
 * a profile, a linear term, a floor or ceiling, contexts that a window spans or that the longest one does not.
 */
bool wavelength_closed_form(const Wavelength *wavelength, double k, const WaveHead *head, uint32_t n_tokens,
                            double *ret_prefill, double *ret_row);
