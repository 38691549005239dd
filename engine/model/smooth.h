/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Smoothing of keys before they are quantised: where a model normalises its heads, some channels of K have weights many
 * times those of the others, and one scale for a token and head leaves nothing for the rest. What K loses Q gets,
 * equally in both channels of a rotary pair, so that q k stays; by powers of two, so that it stays to the last bit.
 */
#pragma once
#include "engine/model/weights.h"

/* Replaces q_norm and k_norm of the layers that have them. */
LW_CHECK bool smooth_keys(const ModelShape *shape, ModelWeights *weights, Error *error);
