/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/gemma3.h"

#include "engine/model/bind_block.h"
#include "engine/model/block.h"

#include <math.h>

enum { LAYERS_OF_27B = 62 };

/* Files leave out what all Gemma 3 models have in common. */
static bool gemma3_read_shape(const Gguf *gguf, ModelShape *shape, Error *error)
{
    (void)error;
    shape->rope_layout = ROPE_HALF_SPLIT;
    shape->embed_scale = sqrtf((float)shape->n_embd);
    if (shape->n_layers == LAYERS_OF_27B) shape->attention_scale = sqrtf((float)shape->n_heads / (float)shape->n_embd);
    if (!gguf_find(gguf, "gemma3.rope.freq_base_swa")) shape->window_rope_base = 10000;
    if (!shape->full_layer_period) shape->full_layer_period = 6;
    return true;
}

static bool gemma3_bind_layer(WeightBinder *binder, uint32_t layer, Error *error)
{
    return bind_norms(binder, layer, error) && bind_post_norms(binder, layer, error) &&
           bind_attention(binder, layer, error) && bind_head_norms(binder, layer, error) &&
           bind_gated_mlp(binder, layer, error);
}

static bool gemma3_forward_layer(const ForwardPass *pass, uint32_t layer)
{
    return block_attention(pass, layer) && block_gated_mlp(pass, layer, GLU_GELU_TANH);
}

const ModelFamily family_gemma3 = {"gemma3", gemma3_read_shape, gemma3_bind_layer, gemma3_forward_layer};
