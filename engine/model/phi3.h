/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Phi 3 and 4: llama with Q, K, V in one matrix and gate, up in another; long contexts by factors for each rotary pair
 * (LongRoPE).
 */
#pragma once
#include "engine/model/family.h"

extern const ModelFamily family_phi3;
