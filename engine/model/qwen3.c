/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/qwen3.h"

#include "engine/model/bind_block.h"
#include "engine/model/block.h"

static bool qwen3_read_shape(const Gguf *gguf, ModelShape *shape, Error *error)
{
    (void)gguf;
    (void)error;
    shape->rope_layout = ROPE_HALF_SPLIT;
    return true;
}

static bool qwen3_bind_layer(WeightBinder *binder, uint32_t layer, Error *error)
{
    return bind_norms(binder, layer, error) && bind_attention(binder, layer, error) &&
           bind_head_norms(binder, layer, error) && bind_gated_mlp(binder, layer, error);
}

static bool qwen3_forward_layer(const ForwardPass *pass, uint32_t layer)
{
    return block_attention(pass, layer) && block_gated_mlp(pass, layer, GLU_SILU);
}

const ModelFamily family_qwen3 = {"qwen3", qwen3_read_shape, qwen3_bind_layer, qwen3_forward_layer};
