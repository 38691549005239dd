/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine_state.h"
#include "engine/select/policy_check.h"

#include <string.h>

/* FNV-1a, 64 bits: against mix-ups, not against forgery. */
static const uint64_t START = 14695981039346656037u, PRIME = 1099511628211u;

/* Of each tensor so many bytes at both ends tell models apart that differ in their weights alone. */
enum { SAMPLE_BYTES = 64, LAYOUT_VERSION = 2 };

static uint64_t mix_bytes(uint64_t hash, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < n; i++) hash = (hash ^ at[i]) * PRIME;
    return hash;
}

static uint64_t mix_number(uint64_t hash, uint64_t number)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(number >> 8 * i);
    return mix_bytes(hash, bytes, sizeof bytes);
}

static uint64_t mix_text(uint64_t hash, const char *text, size_t n)
{
    return mix_bytes(mix_number(hash, n), text, n);
}

static uint64_t mix_kv(uint64_t hash, const GgufKv *kv)
{
    static const uint8_t sizes[] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
        [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};
    hash = mix_text(hash, kv->key.data, kv->key.n);
    hash = mix_number(mix_number(hash, (uint64_t)kv->type * 2 + kv->is_array), kv->n);
    if (kv->type != GGUF_STRING) return mix_bytes(hash, kv->data, kv->n * sizes[kv->type]);
    GgufStringIter iter = {kv->data};
    for (uint64_t i = 0; i < kv->n; i++) {
        GgufString text = gguf_next_string(&iter);
        hash = mix_text(hash, text.data, text.n);
    }
    return hash;
}

static uint64_t mix_tensor(uint64_t hash, const GgufTensor *tensor)
{
    const char *data = tensor->view.data;
    uint64_t n = tensor->n_bytes < SAMPLE_BYTES ? tensor->n_bytes : SAMPLE_BYTES;
    hash = mix_text(hash, tensor->name.data, tensor->name.n);
    hash = mix_number(mix_number(hash, tensor->view.type), tensor->n_bytes);
    for (uint32_t i = 0; i < tensor->view.n_dims; i++) hash = mix_number(hash, tensor->view.dim[i]);
    return n ? mix_bytes(mix_bytes(hash, data, n), data + tensor->n_bytes - n, n) : hash;
}

uint64_t engine_model_fingerprint(const Engine *engine)
{
    uint64_t hash = START;
    for (size_t i = 0; i < gguf_n_kv(engine->gguf); i++) hash = mix_kv(hash, gguf_kv_at(engine->gguf, i));
    for (size_t i = 0; i < gguf_n_tensors(engine->gguf); i++) hash = mix_tensor(hash, gguf_tensor_at(engine->gguf, i));
    return hash;
}

static uint64_t mix_class(const Engine *engine, uint64_t hash, const KvClass *class)
{
    const uint64_t numbers[] = {class->kind,        class->type,         class->sink,  class->window,
                                class->n_slots,     class->k_dim,        class->v_dim, class->page_bytes,
                                class->image_bytes, class->bounds_offset};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) hash = mix_number(hash, numbers[i]);
    size_t n_heads = (size_t)engine->shape.n_layers * engine->shape.n_kv_heads;
    for (size_t i = 0; i < n_heads; i++) hash = mix_number(hash, class->slots[i]);
    return hash;
}

/* Of keys as they are stored: smoothed or not. */
static uint64_t mix_key_norms(const Engine *engine, uint64_t hash)
{
    for (uint32_t layer = 0; layer < engine->shape.n_layers; layer++) {
        const float *norm = engine->weights.layers[layer].k_norm;
        if (norm) hash = mix_bytes(hash, norm, engine->shape.head_dim * sizeof *norm);
    }
    return hash;
}

/* How keys were rotated: a longer context or other positions may have other wavelengths. */
static uint64_t mix_rope(const Engine *engine, uint64_t hash)
{
    size_t n_pairs = engine->shape.rope_dim / 2;
    hash = mix_bytes(hash, engine->weights.rope.theta, n_pairs * sizeof(double));
    hash = mix_bytes(hash, engine->weights.window_rope.theta, n_pairs * sizeof(double));
    return mix_bytes(hash, &engine->shape.rope_magnitude, sizeof engine->shape.rope_magnitude);
}

uint64_t engine_policy_fingerprint(const Engine *engine, PolicyId id)
{
    const AttnPolicy *policy = engine_policy(engine, id);
    const KvPolicyMap *map = &engine->classes.policies[policy_slot(id)];
    uint64_t hash = mix_rope(engine, mix_number(START, LAYOUT_VERSION));
    hash = mix_text(hash, policy->name, strlen(policy->name));
    hash = mix_text(hash, engine->kernels->name, strlen(engine->kernels->name));
    hash = mix_key_norms(engine, hash);
    hash = mix_number(hash, policy_hash(policy));
    for (uint32_t c = 0; c < map->n_classes; c++)
        hash = mix_class(engine, hash, &engine->classes.classes[map->classes[c].class_id]);
    return hash;
}
