/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/tiny_model.h"
#include "tests/support/quantize.h"
#include "tests/support/tiny_chat.h"
#include "tests/support/tiny_vocab.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TinyModel tiny_model_default(void)
{
    return (TinyModel){
        .arch = "llama",
        .seed = 1,
        .n_layers = 2,
        .n_embd = 64,
        .n_ff = 128,
        .n_heads = 4,
        .n_kv_heads = 2,
        .head_dim = 16,
        .context = 512,
        .rope_base = 10000.0f,
        .tied = true,
        .type = DTYPE_F32,
        .embed_type = DTYPE_F32,
        .pre = "smollm",
        .chat = "calls",
    };
}

uint32_t tiny_model_vocab(void)
{
    return tiny_vocab_size();
}

/* ---- random numbers: integer steps and exact sums only, so that every machine makes the same file ---- */

static uint64_t next_bits(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Near enough to normal: the sum of four uniform numbers, scaled to variance 1. */
static float next_normal(uint64_t *state)
{
    uint64_t bits = next_bits(state);
    int sum = 0;
    for (int i = 0; i < 4; i++) sum += (int)(bits >> 16 * i & 0xFFFF);
    return (float)(sum - 2 * 65535) * (1.7320508f / 65536);
}

/* Each tensor has its own stream, so that adding one does not change the others. */
static uint64_t stream_of(uint64_t seed, const char *name)
{
    uint64_t state = seed;
    for (; *name; name++) state = (state ^ (uint8_t)*name) * 0x100000001B3u;
    return state;
}

/* ---- tensors ---- */

/* What sets the layers of an architecture apart from llama's. */
static const struct Traits {
    const char *arch;
    bool fused, post_norms, head_norms;
} traits[] = {
    {"llama", false, false, false}, {"qwen2", false, false, false}, {"qwen3", false, false, true},
    {"gemma2", false, true, false}, {"gemma3", false, true, true},  {"phi3", true, false, false},
};

static const struct Traits *traits_of(const TinyModel *m)
{
    for (size_t i = 0; i < sizeof traits / sizeof *traits; i++)
        if (!strcmp(traits[i].arch, m->arch)) return &traits[i];
    abort();
}

static uint32_t rope_dim_of(const TinyModel *m)
{
    return m->rope_dim ? m->rope_dim : m->head_dim;
}

typedef struct Build {
    const TinyModel *model;
    GgufWriter *writer;
    Error *error;
} Build;

static float *numbers(size_t n)
{
    float *x = calloc(n, sizeof *x);
    if (!x) abort();
    return x;
}

static bool add_rows(Build *build, const char *name, DType type, uint32_t n_rows, uint32_t n_columns, const float *x)
{
    const DTypeInfo *info = dtype_info(type);
    if (n_columns % info->block_elements)
        return error_set(build->error, ERR_INVALID, "%s: rows of %u are no multiple of %s's block of %u", name,
                         n_columns, info->name, info->block_elements);
    size_t row_bytes = dtype_row_bytes(type, n_columns);
    uint8_t *bytes = malloc(n_rows * row_bytes);
    if (!bytes) abort();
    for (size_t r = 0; r < n_rows; r++) quantize_row(type, x + r * n_columns, n_columns, bytes + r * row_bytes);
    gguf_writer_tensor(build->writer, name, type, n_rows > 1 ? 2 : 1, (uint64_t[]){n_columns, n_rows}, bytes,
                       n_rows * row_bytes);
    free(bytes);
    return true;
}

static bool add_matrix(Build *build, const char *name, uint32_t n_rows, uint32_t n_columns)
{
    uint64_t state = stream_of(build->model->seed, name);
    float *x = numbers((size_t)n_rows * n_columns), scale = 1 / sqrtf((float)n_columns);
    for (size_t i = 0; i < (size_t)n_rows * n_columns; i++) x[i] = scale * next_normal(&state);
    bool added = add_rows(build, name, build->model->type, n_rows, n_columns, x);
    free(x);
    return added;
}

/* Output logits get a standard deviation of about 2 from rows of this size, but the special tokens' stay near 0. */
static bool add_embedding(Build *build, const char *name)
{
    uint32_t n_rows = tiny_vocab_size(), n_columns = build->model->n_embd;
    uint64_t state = stream_of(build->model->seed, name);
    float *x = numbers((size_t)n_rows * n_columns), scale = 2 / sqrtf((float)n_columns);
    for (size_t i = 0; i < (size_t)n_rows * n_columns; i++)
        x[i] = next_normal(&state) * (i / n_columns < TINY_FIRST_BYTE ? scale / 10 : scale);
    bool added = add_rows(build, name, build->model->embed_type, n_rows, n_columns, x);
    free(x);
    return added;
}

/* Norms have mean 1, biases 0. */
static bool add_vector(Build *build, const char *name, uint32_t n, float mean)
{
    uint64_t state = stream_of(build->model->seed, name);
    float *x = numbers(n);
    for (size_t i = 0; i < n; i++) x[i] = mean + 0.1f * next_normal(&state);
    bool added = add_rows(build, name, DTYPE_F32, 1, n, x);
    free(x);
    return added;
}

/*
 * Llama 3's smoothing: wavelengths up to context/4 stay, those beyond context are slowed 8 times, between: in between.
 */
static bool add_rope_freqs(Build *build)
{
    uint32_t n = build->model->head_dim / 2;
    double context = build->model->context;
    float *x = numbers(n);
    for (uint32_t i = 0; i < n; i++) {
        double wavelength = 2 * M_PI * pow(build->model->rope_base, 2.0 * i / build->model->head_dim);
        double smooth = (context / wavelength - 1) / (4 - 1);
        smooth = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
        x[i] = (float)(1 / ((1 - smooth) / 8 + smooth));
    }
    bool added = add_rows(build, "rope_freqs.weight", DTYPE_F32, 1, n, x);
    free(x);
    return added;
}

/* Divisors from 1 to 2, or to 5, in an order of their own. */
static bool add_rope_factors(Build *build)
{
    uint32_t n = rope_dim_of(build->model) / 2;
    float *x = numbers(n);
    for (uint32_t i = 0; i < n; i++) x[i] = 1 + (float)(i * 5 % n) / (float)n;
    bool added = add_rows(build, "rope_factors_short.weight", DTYPE_F32, 1, n, x);
    for (uint32_t i = 0; i < n; i++) x[i] = 1 + 4 * (float)(i * 3 % n) / (float)n;
    added = added && add_rows(build, "rope_factors_long.weight", DTYPE_F32, 1, n, x);
    free(x);
    return added;
}

static bool add_layer_matrices(Build *build, uint32_t layer)
{
    const TinyModel *m = build->model;
    bool fused = traits_of(m)->fused;
    uint32_t q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    const struct {
        const char *name;
        uint32_t n_rows, n_columns;
        bool wanted;
    } matrices[] = {
        {"attn_q", q, m->n_embd, !fused},
        {"attn_k", kv, m->n_embd, !fused},
        {"attn_v", kv, m->n_embd, !fused},
        {"attn_qkv", q + 2 * kv, m->n_embd, fused},
        {"attn_output", m->n_embd, q, true},
        {"ffn_gate", m->n_ff, m->n_embd, !fused},
        {"ffn_up", fused ? 2 * m->n_ff : m->n_ff, m->n_embd, true},
        {"ffn_down", m->n_embd, m->n_ff, true},
    };
    char name[64];
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, matrices[i].name);
        if (matrices[i].wanted && !add_matrix(build, name, matrices[i].n_rows, matrices[i].n_columns)) return false;
    }
    return true;
}

static bool add_layer(Build *build, uint32_t layer)
{
    const TinyModel *m = build->model;
    const struct Traits *t = traits_of(m);
    uint32_t q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    char name[64];
    const struct {
        const char *name;
        uint32_t n;
        float mean;
        bool wanted;
    } vectors[] = {
        {"attn_norm.weight", m->n_embd, 1, true},
        {"ffn_norm.weight", m->n_embd, 1, true},
        {"post_attention_norm.weight", m->n_embd, 1, t->post_norms},
        {"post_ffw_norm.weight", m->n_embd, 1, t->post_norms},
        {"attn_q_norm.weight", m->head_dim, 1, t->head_norms},
        {"attn_k_norm.weight", m->head_dim, 1, t->head_norms},
        {"attn_q.bias", q, 0, m->qkv_bias},
        {"attn_k.bias", kv, 0, m->qkv_bias},
        {"attn_v.bias", kv, 0, m->qkv_bias},
    };
    if (!add_layer_matrices(build, layer)) return false;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        snprintf(name, sizeof name, "blk.%u.%s", layer, vectors[i].name);
        if (vectors[i].wanted && !add_vector(build, name, vectors[i].n, vectors[i].mean)) return false;
    }
    return true;
}

static bool add_tensors(Build *build)
{
    if (!add_embedding(build, "token_embd.weight") || !add_vector(build, "output_norm.weight", build->model->n_embd, 1))
        return false;
    if (!build->model->tied && !add_embedding(build, "output.weight")) return false;
    if (build->model->rope_freqs && !add_rope_freqs(build)) return false;
    if (build->model->original_context && build->model->yarn == 0 && !add_rope_factors(build)) return false;
    for (uint32_t layer = 0; layer < build->model->n_layers; layer++)
        if (!add_layer(build, layer)) return false;
    return true;
}

/* ---- file ---- */

static void add_u32(GgufWriter *writer, const TinyModel *m, const char *suffix, uint32_t value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->arch, suffix);
    gguf_writer_u32(writer, key, value);
}

static void add_f32(GgufWriter *writer, const TinyModel *m, const char *suffix, float value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->arch, suffix);
    gguf_writer_f32(writer, key, value);
}

static void add_long_rope(GgufWriter *writer, const TinyModel *m)
{
    double stretch = log((double)m->context / m->original_context) / log(m->original_context);
    add_u32(writer, m, "rope.scaling.original_context_length", m->original_context);
    add_f32(writer, m, "rope.scaling.attn_factor", (float)sqrt(1 + stretch));
}

static void add_yarn(GgufWriter *writer, const TinyModel *m)
{
    char key[96];
    snprintf(key, sizeof key, "%s.rope.scaling.type", m->arch);
    gguf_writer_string(writer, key, "yarn");
    add_f32(writer, m, "rope.scaling.factor", m->yarn);
    add_u32(writer, m, "rope.scaling.original_context_length", m->original_context);
    if (m->yarn_beta_fast != 0) add_f32(writer, m, "rope.scaling.yarn_beta_fast", m->yarn_beta_fast);
    if (m->yarn_attn_factor != 0) add_f32(writer, m, "rope.scaling.yarn_attn_factor", m->yarn_attn_factor);
}

static void add_metadata(GgufWriter *writer, const TinyModel *m)
{
    char name[64];
    snprintf(name, sizeof name, "tiny %s", m->arch);
    gguf_writer_string(writer, "general.architecture", m->arch);
    gguf_writer_string(writer, "general.name", name);
    add_u32(writer, m, "block_count", m->n_layers);
    add_u32(writer, m, "context_length", m->context);
    add_u32(writer, m, "embedding_length", m->n_embd);
    add_u32(writer, m, "feed_forward_length", m->n_ff);
    add_u32(writer, m, "attention.head_count", m->n_heads);
    add_u32(writer, m, "attention.head_count_kv", m->n_kv_heads);
    add_u32(writer, m, "attention.key_length", m->head_dim);
    add_u32(writer, m, "attention.value_length", m->head_dim);
    add_f32(writer, m, "attention.layer_norm_rms_epsilon", 1e-5f);
    add_f32(writer, m, "rope.freq_base", m->rope_base);
    add_u32(writer, m, "rope.dimension_count", rope_dim_of(m));
    add_u32(writer, m, "vocab_size", tiny_vocab_size());
    if (m->window) add_u32(writer, m, "attention.sliding_window", m->window);
    if (m->yarn != 0)
        add_yarn(writer, m);
    else if (m->original_context)
        add_long_rope(writer, m);
    const char *chat = tiny_chat_template(m->chat);
    if (!chat) abort();
    tiny_vocab_write_chat(writer, m->pre, m->add_bos, chat);
}

bool tiny_model_build(const TinyModel *model, Buffer *out, Error *error)
{
    GgufWriter writer;
    gguf_writer_init(&writer);
    add_metadata(&writer, model);
    bool built = add_tensors(&(Build){model, &writer, error});
    if (built) gguf_writer_finish(&writer, out);
    gguf_writer_done(&writer);
    return built;
}

static bool write_file(FILE *file, const char *path, const TinyModel *model, Error *error)
{
    Buffer bytes;
    buffer_init(&bytes, SIZE_MAX / 4);
    bool saved = tiny_model_build(model, &bytes, error);
    if (saved && fwrite(bytes.data, 1, bytes.n, file) != bytes.n)
        saved = error_set(error, ERR_IO, "%s: %s", path, strerror(errno));
    buffer_done(&bytes);
    if (fclose(file) && saved) saved = error_set(error, ERR_IO, "%s: %s", path, strerror(errno));
    return saved;
}

bool tiny_model_save(const TinyModel *model, const char *path, Error *error)
{
    FILE *file = fopen(path, "wb");
    if (!file) return error_set(error, ERR_IO, "%s: %s", path, strerror(errno));
    return write_file(file, path, model, error);
}

bool tiny_model_temp(const TinyModel *model, char *path, size_t n, Error *error)
{
    const char *folder = getenv("TMPDIR");
    snprintf(path, n, "%s/longwave-tiny-XXXXXX", folder ? folder : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0) return error_set(error, ERR_IO, "%s: %s", path, strerror(errno));
    FILE *file = fdopen(fd, "wb");
    if (!file) abort();
    return write_file(file, path, model, error);
}

/* ---- settings by name ---- */

typedef enum SettingKind {
    SETTING_U32,
    SETTING_U64,
    SETTING_F32,
    SETTING_BOOL,
    SETTING_TYPE,
    SETTING_TEXT
} SettingKind;

static const struct {
    const char *name;
    SettingKind kind;
    size_t offset;
} settings[] = {
    {"arch", SETTING_TEXT, offsetof(TinyModel, arch)},
    {"window", SETTING_U32, offsetof(TinyModel, window)},
    {"original_context", SETTING_U32, offsetof(TinyModel, original_context)},
    {"yarn", SETTING_F32, offsetof(TinyModel, yarn)},
    {"yarn_beta_fast", SETTING_F32, offsetof(TinyModel, yarn_beta_fast)},
    {"yarn_attn_factor", SETTING_F32, offsetof(TinyModel, yarn_attn_factor)},
    {"rope_dim", SETTING_U32, offsetof(TinyModel, rope_dim)},
    {"seed", SETTING_U64, offsetof(TinyModel, seed)},
    {"layers", SETTING_U32, offsetof(TinyModel, n_layers)},
    {"embd", SETTING_U32, offsetof(TinyModel, n_embd)},
    {"ff", SETTING_U32, offsetof(TinyModel, n_ff)},
    {"heads", SETTING_U32, offsetof(TinyModel, n_heads)},
    {"kv_heads", SETTING_U32, offsetof(TinyModel, n_kv_heads)},
    {"head_dim", SETTING_U32, offsetof(TinyModel, head_dim)},
    {"context", SETTING_U32, offsetof(TinyModel, context)},
    {"rope_base", SETTING_F32, offsetof(TinyModel, rope_base)},
    {"tied", SETTING_BOOL, offsetof(TinyModel, tied)},
    {"rope_freqs", SETTING_BOOL, offsetof(TinyModel, rope_freqs)},
    {"qkv_bias", SETTING_BOOL, offsetof(TinyModel, qkv_bias)},
    {"add_bos", SETTING_BOOL, offsetof(TinyModel, add_bos)},
    {"type", SETTING_TYPE, offsetof(TinyModel, type)},
    {"embed_type", SETTING_TYPE, offsetof(TinyModel, embed_type)},
    {"pre", SETTING_TEXT, offsetof(TinyModel, pre)},
    {"chat", SETTING_TEXT, offsetof(TinyModel, chat)},
};

static bool set_type(DType *type, const char *name)
{
    for (int i = 0; i < 64; i++) {
        const DTypeInfo *info = dtype_info((DType)i);
        if (!info || strcmp(info->name, name)) continue;
        *type = (DType)i;
        return true;
    }
    return false;
}

static bool set_member(SettingKind kind, void *member, const char *text)
{
    char *end = "";
    switch (kind) {
    case SETTING_U32:
        *(uint32_t *)member = (uint32_t)strtoul(text, &end, 10);
        break;
    case SETTING_U64:
        *(uint64_t *)member = strtoull(text, &end, 10);
        break;
    case SETTING_F32:
        *(float *)member = strtof(text, &end);
        break;
    case SETTING_BOOL:
        *(bool *)member = strtoul(text, &end, 10) != 0;
        break;
    case SETTING_TYPE:
        return set_type(member, text);
    case SETTING_TEXT:
        *(const char **)member = text;
        break;
    }
    return *text && !*end;
}

bool tiny_model_set(TinyModel *model, const char *assignment)
{
    size_t n = strcspn(assignment, "=");
    for (size_t i = 0; assignment[n] && i < sizeof settings / sizeof *settings; i++)
        if (strlen(settings[i].name) == n && !strncmp(settings[i].name, assignment, n))
            return set_member(settings[i].kind, (char *)model + settings[i].offset, assignment + n + 1);
    return false;
}
