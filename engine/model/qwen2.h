/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Qwen 2 and 2.5: llama with biases on Q, K and V, and halves of a head as rotary pairs.
 */
#pragma once
#include "engine/model/family.h"

extern const ModelFamily family_qwen2;
