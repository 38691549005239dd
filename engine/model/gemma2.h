/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gemma 2: norms before and after each part, GELU, scaled embeddings, soft caps on scores and logits; every second
 * layer sees all, the others a window.
 */
#pragma once
#include "engine/model/family.h"

extern const ModelFamily family_gemma2;
