/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/llama.h"

#include "engine/model/bind_block.h"
#include "engine/model/block.h"

static bool llama_read_shape(const Gguf *gguf, ModelShape *shape, Error *error)
{
    uint32_t n_experts = 0;
    if (!gguf_opt_u32(gguf, "llama.expert_count", &n_experts, error)) return false;
    if (n_experts)
        return error_set_param(error, ERR_UNSUPPORTED, "llama.expert_count",
                               "key 'llama.expert_count' is %u: mixtures of experts are not supported", n_experts);
    shape->rope_layout = ROPE_INTERLEAVED;
    return true;
}

static bool llama_bind_layer(WeightBinder *binder, uint32_t layer, Error *error)
{
    return bind_norms(binder, layer, error) && bind_attention(binder, layer, error) &&
           bind_gated_mlp(binder, layer, error);
}

static bool llama_forward_layer(const ForwardPass *pass, uint32_t layer)
{
    return block_attention(pass, layer) && block_gated_mlp(pass, layer, GLU_SILU);
}

const ModelFamily family_llama = {"llama", llama_read_shape, llama_bind_layer, llama_forward_layer};
