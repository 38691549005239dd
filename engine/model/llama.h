/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Llama: RMS norm, rotary grouped-query attention, gated SiLU MLP, both behind residuals. Also what Mistral and SmolLM2
 * files call themselves.
 */
#pragma once
#include "engine/model/family.h"

extern const ModelFamily family_llama;
