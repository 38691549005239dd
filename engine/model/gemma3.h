/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gemma 3: norms before and after each part and over each head of Q and K, GELU, scaled embeddings; five layers with a
 * window and a rotary base of their own, then one that sees all.
 */
#pragma once
#include "engine/model/family.h"

extern const ModelFamily family_gemma3;
