/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Qwen 3: RMS norms over each head of Q and K before rotation; halves of a head as rotary pairs.
 */
#pragma once
#include "engine/model/family.h"

extern const ModelFamily family_qwen3;
