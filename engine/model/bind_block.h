/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of tensors that families share, for their bind_layer: each fills fields of LayerWeights from the usual names.
 */
#pragma once
#include "engine/model/weights.h"

/* attn_norm, ffn_norm */
LW_CHECK bool bind_norms(WeightBinder *binder, uint32_t layer, Error *error);
/* post_attention_norm, post_ffw_norm */
LW_CHECK bool bind_post_norms(WeightBinder *binder, uint32_t layer, Error *error);
/* attn_q, attn_k, attn_v, attn_output; biases where the file has them */
LW_CHECK bool bind_attention(WeightBinder *binder, uint32_t layer, Error *error);
/* attn_qkv holds the rows of Q, then K, then V */
LW_CHECK bool bind_attention_fused(WeightBinder *binder, uint32_t layer, Error *error);
/* attn_q_norm, attn_k_norm: one weight for each channel of a head, brought into rope order */
LW_CHECK bool bind_head_norms(WeightBinder *binder, uint32_t layer, Error *error);
/* ffn_gate, ffn_up, ffn_down */
LW_CHECK bool bind_gated_mlp(WeightBinder *binder, uint32_t layer, Error *error);
/* ffn_up holds the rows of the gate, then those of up */
LW_CHECK bool bind_gated_mlp_fused(WeightBinder *binder, uint32_t layer, Error *error);
