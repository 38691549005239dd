/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/family.h"

#include "engine/model/gemma2.h"
#include "engine/model/gemma3.h"
#include "engine/model/llama.h"
#include "engine/model/phi3.h"
#include "engine/model/qwen2.h"
#include "engine/model/qwen3.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_LAYERS = 1024,
    MAX_EMBD = 1 << 17,
    MAX_FF = 1 << 20,
    MAX_HEADS = 1024,
    MAX_HEAD_DIM = 1024,
    MAX_VOCAB = 1 << 22,
    MAX_CONTEXT = 1 << 28,
    KEY_BYTES = 96,
};

static const ModelFamily *const families[] = {
    &family_llama, &family_qwen2, &family_qwen3, &family_gemma2, &family_gemma3, &family_phi3,
};
enum { N_FAMILIES = sizeof families / sizeof *families };

/* Copies what fits and ends it; bytes that would break a line of text become '?'. */
static void copy_text(char *dst, size_t size, GgufString text)
{
    size_t n = text.n < size - 1 ? text.n : size - 1;
    while (n < text.n && n > 0 && ((unsigned char)text.data[n] & 0xC0) == 0x80) n--;
    for (size_t i = 0; i < n; i++) dst[i] = (unsigned char)text.data[i] < 0x20 ? '?' : text.data[i];
    dst[n] = '\0';
}

bool family_find(const Gguf *gguf, const ModelFamily **ret_family, Error *error)
{
    GgufString name;
    if (!gguf_get_string(gguf, "general.architecture", &name, error)) return false;
    char known[256] = "";
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const char *architecture = families[i]->architecture;
        if (strlen(architecture) == name.n && !memcmp(architecture, name.data, name.n)) {
            *ret_family = families[i];
            return true;
        }
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", architecture);
    }
    char shown[64];
    copy_text(shown, sizeof shown, name);
    return error_set_param(error, ERR_UNSUPPORTED, "general.architecture",
                           "key 'general.architecture': '%s' is not supported (known: %s)", shown, known);
}

/* Reads "<architecture>.<suffix>" keys; the first failure stays, so a run of reads is checked once. */
typedef struct KeyReader {
    const Gguf *gguf;
    const char *architecture;
    Error *error;
    bool ok;
    char key[KEY_BYTES];
} KeyReader;

static const char *set_key(KeyReader *reader, const char *suffix)
{
    snprintf(reader->key, sizeof reader->key, "%s.%s", reader->architecture, suffix);
    return reader->key;
}

static void check_range(KeyReader *reader, uint32_t value, uint32_t min, uint32_t max)
{
    if (reader->ok && (value < min || value > max))
        reader->ok = error_set_param(reader->error, ERR_INVALID, reader->key, "key '%s' is %u, not in [%u, %u]",
                                     reader->key, value, min, max);
}

static uint32_t need_u32(KeyReader *reader, const char *suffix, uint32_t max)
{
    uint32_t value = 0;
    if (reader->ok) reader->ok = gguf_get_u32(reader->gguf, set_key(reader, suffix), &value, reader->error);
    check_range(reader, value, 1, max);
    return value;
}

static uint32_t opt_u32(KeyReader *reader, const char *suffix, uint32_t fallback, uint32_t max)
{
    uint32_t value = fallback;
    if (reader->ok) reader->ok = gguf_opt_u32(reader->gguf, set_key(reader, suffix), &value, reader->error);
    check_range(reader, value, 1, max);
    return value;
}

/* 0 when it is absent, or said to be. */
static uint32_t opt_count(KeyReader *reader, const char *suffix, uint32_t max)
{
    uint32_t value = 0;
    if (reader->ok) reader->ok = gguf_opt_u32(reader->gguf, set_key(reader, suffix), &value, reader->error);
    check_range(reader, value, 0, max);
    return value;
}

static double opt_f32(KeyReader *reader, const char *suffix, float fallback, double min, double max)
{
    float value = fallback;
    if (reader->ok) reader->ok = gguf_opt_f32(reader->gguf, set_key(reader, suffix), &value, reader->error);
    if (reader->ok && !(value >= min && value <= max)) /* NaN fails too */
        reader->ok = error_set_param(reader->error, ERR_INVALID, reader->key, "key '%s' is %g, not in [%g, %g]",
                                     reader->key, (double)value, min, max);
    return (double)value;
}

static void read_name(KeyReader *reader, ModelShape *shape)
{
    const char *path = gguf_path(reader->gguf);
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    GgufString name = {base, strlen(base)};
    if (reader->ok) reader->ok = gguf_opt_string(reader->gguf, "general.name", &name, reader->error);
    if (!name.n) name = (GgufString){base, strlen(base)};
    copy_text(shape->name, sizeof shape->name, name);
}

static void read_heads(KeyReader *reader, ModelShape *shape)
{
    shape->n_heads = need_u32(reader, "attention.head_count", MAX_HEADS);
    if (!reader->ok) return;
    shape->n_kv_heads = opt_u32(reader, "attention.head_count_kv", shape->n_heads, MAX_HEADS);
    if (reader->ok && shape->n_heads % shape->n_kv_heads != 0)
        reader->ok =
            error_set_param(reader->error, ERR_INVALID, reader->key, "key '%s' is %u, which does not divide %u heads",
                            reader->key, shape->n_kv_heads, shape->n_heads);
    uint32_t even_share = shape->n_embd % shape->n_heads == 0 ? shape->n_embd / shape->n_heads : 0;
    shape->head_dim = opt_u32(reader, "attention.key_length", even_share, MAX_HEAD_DIM);
    shape->v_dim = opt_u32(reader, "attention.value_length", even_share, MAX_HEAD_DIM);
    shape->rope_dim = opt_u32(reader, "rope.dimension_count", shape->head_dim, MAX_HEAD_DIM);
    if (reader->ok && (shape->rope_dim % 2 != 0 || shape->rope_dim > shape->head_dim))
        reader->ok = error_set_param(reader->error, ERR_INVALID, reader->key,
                                     "key '%s' is %u; it must be even and at most the head size %u", reader->key,
                                     shape->rope_dim, shape->head_dim);
}

static bool text_equals(GgufString text, const char *word)
{
    return text.n == strlen(word) && !memcmp(text.data, word, text.n);
}

/* What YaRN multiplies queries and keys by: m for a factor of e. */
static double yarn_magnitude(double factor, double m)
{
    return 1 + 0.1 * m * log(factor);
}

static void read_yarn(KeyReader *reader, ModelShape *shape)
{
    RopeYarn *yarn = &shape->rope_yarn;
    double extrapolation = opt_f32(reader, "rope.scaling.yarn_ext_factor", 1, 0, 1);
    if (reader->ok && extrapolation != 1)
        reader->ok = error_set_param(reader->error, ERR_UNSUPPORTED, reader->key, "key '%s' is %g; only 1 is supported",
                                     reader->key, extrapolation);
    double all = opt_f32(reader, "rope.scaling.yarn_log_multiplier", 0, 0, 1e3);
    yarn->beta_fast = opt_f32(reader, "rope.scaling.yarn_beta_fast", 32, 1e-3, 1e6);
    yarn->beta_slow = opt_f32(reader, "rope.scaling.yarn_beta_slow", 1, 1e-3, 1e6);
    yarn->factor = opt_f32(reader, "rope.scaling.factor", 0, 1, 1e6); /* without one: refused */
    double magnitude = yarn_magnitude(yarn->factor, 1) / yarn_magnitude(yarn->factor, all);
    shape->rope_magnitude *= (float)opt_f32(reader, "rope.scaling.yarn_attn_factor", (float)magnitude, 1e-3, 1e3);
}

static void read_rope(KeyReader *reader, ModelShape *shape)
{
    shape->rope_base = opt_f32(reader, "rope.freq_base", 10000, 1, 1e15);
    shape->rope_linear_factor = opt_f32(reader, "rope.scale_linear", 1, 1e-3, 1e6);
    shape->rope_magnitude = (float)opt_f32(reader, "rope.scaling.attn_factor", 1, 1e-3, 1e3);
    shape->rope_context = shape->train_context;
    shape->rope_original_context =
        opt_u32(reader, "rope.scaling.original_context_length", shape->train_context, MAX_CONTEXT);
    GgufString type = {"none", 4};
    if (gguf_find(reader->gguf, set_key(reader, "rope.scaling.factor"))) type = (GgufString){"linear", 6};
    if (reader->ok)
        reader->ok = gguf_opt_string(reader->gguf, set_key(reader, "rope.scaling.type"), &type, reader->error);
    if (!reader->ok || text_equals(type, "none") || text_equals(type, "longrope")) return; /* that is in tensors */
    if (text_equals(type, "yarn")) {
        read_yarn(reader, shape);
        return;
    }
    if (text_equals(type, "linear")) {
        shape->rope_linear_factor = opt_f32(reader, "rope.scaling.factor", (float)shape->rope_linear_factor, 1e-3, 1e6);
        return;
    }
    char shown[64];
    copy_text(shown, sizeof shown, type);
    reader->ok = error_set_param(reader->error, ERR_UNSUPPORTED, reader->key,
                                 "key '%s': RoPE scaling '%s' is not supported (known: none, linear, longrope, yarn)",
                                 reader->key, shown);
}

static float opt_cap(KeyReader *reader, const char *suffix)
{
    double cap = opt_f32(reader, suffix, 0, 0, 1e6);
    return cap > 0 ? (float)opt_f32(reader, suffix, 0, 1e-3, 1e6) : 0;
}

/* What the masks and scores of some families need. */
static void read_attention(KeyReader *reader, ModelShape *shape)
{
    shape->attention_scale = 1 / sqrtf((float)shape->head_dim);
    shape->attention_softcap = opt_cap(reader, "attn_logit_softcapping");
    shape->final_softcap = opt_cap(reader, "final_logit_softcapping");
    shape->window_tokens = opt_count(reader, "attention.sliding_window", MAX_CONTEXT);
    shape->full_layer_period = opt_count(reader, "attention.sliding_window_pattern", MAX_LAYERS);
    if (gguf_find(reader->gguf, set_key(reader, "rope.freq_base_swa")))
        shape->window_rope_base = opt_f32(reader, "rope.freq_base_swa", 1, 1, 1e15);
}

static void read_vocabulary(KeyReader *reader, ModelShape *shape)
{
    const GgufTensor *table = gguf_tensor(reader->gguf, "token_embd.weight");
    if (reader->ok && (!table || table->view.n_dims != 2 || table->view.dim[1] < 1 || table->view.dim[1] > MAX_VOCAB))
        reader->ok = error_set_param(reader->error, ERR_INVALID, "token_embd.weight",
                                     "tensor 'token_embd.weight' is missing or has no sane vocabulary dimension");
    if (!reader->ok) return;
    shape->n_vocab = (uint32_t)table->view.dim[1];
    uint32_t said = opt_u32(reader, "vocab_size", shape->n_vocab, MAX_VOCAB);
    if (reader->ok && said != shape->n_vocab)
        reader->ok = error_set_param(reader->error, ERR_INVALID, reader->key,
                                     "key '%s' is %u, but tensor 'token_embd.weight' has %u rows", reader->key, said,
                                     shape->n_vocab);
}

static void count_parameters(const Gguf *gguf, ModelShape *shape)
{
    for (size_t i = 0; i < gguf_n_tensors(gguf); i++) {
        const GgufTensor *tensor = gguf_tensor_at(gguf, i);
        uint64_t n = 1;
        for (uint32_t d = 0; d < tensor->view.n_dims; d++) n *= tensor->view.dim[d];
        shape->n_params += n;
        shape->weight_bytes += tensor->n_bytes;
    }
    shape->tied_output = !gguf_tensor(gguf, "output.weight");
}

bool family_read_shape(const ModelFamily *family, const Gguf *gguf, ModelShape *ret_shape, Error *error)
{
    ModelShape shape = {.embed_scale = 1};
    KeyReader reader = {.gguf = gguf, .architecture = family->architecture, .error = error, .ok = true};
    snprintf(shape.architecture, sizeof shape.architecture, "%s", family->architecture);
    read_name(&reader, &shape);
    shape.n_layers = need_u32(&reader, "block_count", MAX_LAYERS);
    shape.n_embd = need_u32(&reader, "embedding_length", MAX_EMBD);
    shape.n_ff = need_u32(&reader, "feed_forward_length", MAX_FF);
    shape.train_context = need_u32(&reader, "context_length", MAX_CONTEXT);
    shape.norm_eps = (float)opt_f32(&reader, "attention.layer_norm_rms_epsilon", 1e-5f, 1e-12, 1);
    read_heads(&reader, &shape);
    read_rope(&reader, &shape);
    read_attention(&reader, &shape);
    read_vocabulary(&reader, &shape);
    if (!reader.ok) return false;
    count_parameters(gguf, &shape);
    if (!family->read_shape(gguf, &shape, error)) return false;
    if (shape.rope_yarn.factor != 0 && shape.window_rope_base != 0)
        return error_set_param(error, ERR_UNSUPPORTED, "rope.scaling.type",
                               "RoPE scaling 'yarn' is not supported with a base of its own for sliding windows");
    *ret_shape = shape;
    return true;
}

uint32_t shape_layer_window(const ModelShape *shape, uint32_t layer)
{
    bool sees_all = shape->full_layer_period && (layer + 1) % shape->full_layer_period == 0;
    return sees_all ? 0 : shape->window_tokens;
}

ModelShape shape_of_window_layers(const ModelShape *shape)
{
    ModelShape windows = *shape;
    windows.rope_base = shape->window_rope_base;
    windows.rope_linear_factor = 1;
    windows.rope_llama3 = (RopeLlama3){0};
    windows.rope_yarn = (RopeYarn){0};
    return windows;
}
