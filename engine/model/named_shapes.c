/* SPDX-License-Identifier: Apache-2.0 */
/* Dimensions of public models, as their authors' configuration files state them. */
#include "engine/model/family.h"

#include <string.h>

#define LLAMA3_STRETCH(times) {.factor = (times), .low_freq = 1, .high_freq = 4, .original_context = 8192}

static const ModelShape shapes[] = {
    {.architecture = "llama", .name = "llama-3.1-8b", .n_layers = 32, .n_embd = 4096, .n_ff = 14336, .n_vocab = 128256,
     .n_heads = 32, .n_kv_heads = 8, .head_dim = 128, .v_dim = 128, .rope_dim = 128, .rope_layout = ROPE_INTERLEAVED,
     .rope_base = 5e5, .rope_linear_factor = 1, .rope_magnitude = 1, .rope_llama3 = LLAMA3_STRETCH(8),
     .train_context = 131072, .norm_eps = 1e-5f, .embed_scale = 1, .attention_scale = 0.08838835f,
     .n_params = 8030261248},
    {.architecture = "llama", .name = "llama-3.2-3b", .n_layers = 28, .n_embd = 3072, .n_ff = 8192, .n_vocab = 128256,
     .n_heads = 24, .n_kv_heads = 8, .head_dim = 128, .v_dim = 128, .rope_dim = 128, .rope_layout = ROPE_INTERLEAVED,
     .rope_base = 5e5, .rope_linear_factor = 1, .rope_magnitude = 1, .rope_llama3 = LLAMA3_STRETCH(32),
     .train_context = 131072, .norm_eps = 1e-5f, .embed_scale = 1, .attention_scale = 0.08838835f, .tied_output = true,
     .n_params = 3212749824},
    {.architecture = "llama", .name = "llama-2-7b", .n_layers = 32, .n_embd = 4096, .n_ff = 11008, .n_vocab = 32000,
     .n_heads = 32, .n_kv_heads = 32, .head_dim = 128, .v_dim = 128, .rope_dim = 128, .rope_layout = ROPE_INTERLEAVED,
     .rope_base = 1e4, .rope_linear_factor = 1, .rope_magnitude = 1, .train_context = 4096, .norm_eps = 1e-5f,
     .embed_scale = 1, .attention_scale = 0.08838835f, .n_params = 6738415616},
    {.architecture = "qwen2", .name = "qwen2.5-0.5b", .n_layers = 24, .n_embd = 896, .n_ff = 4864, .n_vocab = 151936,
     .n_heads = 14, .n_kv_heads = 2, .head_dim = 64, .v_dim = 64, .rope_dim = 64, .rope_layout = ROPE_HALF_SPLIT,
     .rope_base = 1e6, .rope_linear_factor = 1, .rope_magnitude = 1, .train_context = 32768, .norm_eps = 1e-6f,
     .embed_scale = 1, .attention_scale = 0.125f, .tied_output = true, .n_params = 494032768},
    {.architecture = "qwen2", .name = "qwen2.5-7b-1m", .n_layers = 28, .n_embd = 3584, .n_ff = 18944, .n_vocab = 152064,
     .n_heads = 28, .n_kv_heads = 4, .head_dim = 128, .v_dim = 128, .rope_dim = 128, .rope_layout = ROPE_HALF_SPLIT,
     .rope_base = 1e7, .rope_linear_factor = 1, .rope_magnitude = 1, .train_context = 1010000, .norm_eps = 1e-5f,
     .embed_scale = 1, .attention_scale = 0.08838835f, .n_params = 7615616512},
    {.architecture = "llama", .name = "smollm2-135m", .n_layers = 30, .n_embd = 576, .n_ff = 1536, .n_vocab = 49152,
     .n_heads = 9, .n_kv_heads = 3, .head_dim = 64, .v_dim = 64, .rope_dim = 64, .rope_layout = ROPE_INTERLEAVED,
     .rope_base = 1e5, .rope_linear_factor = 1, .rope_magnitude = 1, .train_context = 8192, .norm_eps = 1e-5f,
     .embed_scale = 1, .attention_scale = 0.125f, .tied_output = true, .n_params = 134515008},
    {.architecture = "gemma3", .name = "gemma3-270m", .n_layers = 18, .n_embd = 640, .n_ff = 2048, .n_vocab = 262144,
     .n_heads = 4, .n_kv_heads = 1, .head_dim = 256, .v_dim = 256, .rope_dim = 256, .rope_layout = ROPE_HALF_SPLIT,
     .rope_base = 1e6, .rope_linear_factor = 1, .rope_magnitude = 1, .window_tokens = 512, .full_layer_period = 6,
     .window_rope_base = 1e4, .train_context = 32768, .norm_eps = 1e-6f, .embed_scale = 25.298221f,
     .attention_scale = 0.0625f, .tied_output = true, .n_params = 268098176},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

const ModelShape *shape_by_name(const char *name)
{
    for (size_t i = 0; i < N_SHAPES; i++)
        if (!strcmp(shapes[i].name, name)) return &shapes[i];
    return NULL;
}

const char *shape_name_at(size_t i)
{
    return i < N_SHAPES ? shapes[i].name : NULL;
}
