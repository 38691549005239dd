/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/gemma2.h"

#include "engine/model/bind_block.h"
#include "engine/model/block.h"

#include <math.h>

enum { LAYERS_OF_27B = 46 };

/* Files leave out what all Gemma 2 models have in common. */
static bool gemma2_read_shape(const Gguf *gguf, ModelShape *shape, Error *error)
{
    (void)error;
    shape->rope_layout = ROPE_HALF_SPLIT;
    shape->embed_scale = sqrtf((float)shape->n_embd);
    if (shape->n_layers == LAYERS_OF_27B) shape->attention_scale = sqrtf((float)shape->n_heads / (float)shape->n_embd);
    if (!gguf_find(gguf, "gemma2.attn_logit_softcapping")) shape->attention_softcap = 50;
    if (!gguf_find(gguf, "gemma2.final_logit_softcapping")) shape->final_softcap = 30;
    if (!gguf_find(gguf, "gemma2.attention.sliding_window")) shape->window_tokens = 4096;
    if (!shape->full_layer_period) shape->full_layer_period = 2;
    return true;
}

static bool gemma2_bind_layer(WeightBinder *binder, uint32_t layer, Error *error)
{
    return bind_norms(binder, layer, error) && bind_post_norms(binder, layer, error) &&
           bind_attention(binder, layer, error) && bind_gated_mlp(binder, layer, error);
}

static bool gemma2_forward_layer(const ForwardPass *pass, uint32_t layer)
{
    return block_attention(pass, layer) && block_gated_mlp(pass, layer, GLU_GELU_TANH);
}

const ModelFamily family_gemma2 = {"gemma2", gemma2_read_shape, gemma2_bind_layer, gemma2_forward_layer};
