/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/phi3.h"

#include "engine/model/bind_block.h"
#include "engine/model/block.h"

static bool phi3_read_shape(const Gguf *gguf, ModelShape *shape, Error *error)
{
    (void)gguf;
    (void)error;
    shape->rope_layout = ROPE_HALF_SPLIT;
    return true;
}

static bool phi3_bind_layer(WeightBinder *binder, uint32_t layer, Error *error)
{
    return bind_norms(binder, layer, error) && bind_attention_fused(binder, layer, error) &&
           bind_gated_mlp_fused(binder, layer, error);
}

static bool phi3_forward_layer(const ForwardPass *pass, uint32_t layer)
{
    return block_attention(pass, layer) && block_gated_mlp(pass, layer, GLU_SILU);
}

const ModelFamily family_phi3 = {"phi3", phi3_read_shape, phi3_bind_layer, phi3_forward_layer};
