/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other positions than a model was trained with, for contexts beyond its own: the known ways to stretch the RoPE
 * without training, as baselines. Changes a shape before wavelengths are computed from it. Any thread.
 *
 *   plain   nothing but the context: positions that the model has never seen
 *   linear  positions divided by the factor (position interpolation)
 *   ntk     base * factor^(d / (d - 2)), d rotated channels: the longest wavelength alone is stretched by all of the
 *           factor, the shortest not at all (NTK-aware scaling)
 *   yarn    YaRN (family.h) with its usual 32 and 1 turns, from the trained context
 */
#pragma once
#include "engine/model/family.h"

typedef enum RopeOverrideKind { ROPE_PLAIN, ROPE_LINEAR, ROPE_NTK, ROPE_YARN, ROPE_N_OVERRIDES } RopeOverrideKind;

typedef struct RopeOverride {
    RopeOverrideKind kind;
    double factor; /* of the trained context; at least 1 */
} RopeOverride;

/* "KIND=FACTOR"; an error names the option rope. */
LW_CHECK bool rope_override_parse(const char *text, RopeOverride *ret_override, Error *error);
/* Sliding-window layers with a base of their own stay as they are. override NULL: nothing changes. */
LW_CHECK bool rope_override_apply(const RopeOverride *override, ModelShape *shape, Error *error);
