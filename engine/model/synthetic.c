/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buffer.h"
#include "engine/model/synthetic_impl.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    GGUF_VERSION = 3,
    ALIGNMENT = 32,
    MAX_TENSORS_PER_LAYER = 16,
    MAX_GLOBAL_TENSORS = 4,
    MAX_TYPE_ID = 64,
    MAX_HEADER_BYTES = 1 << 28,
    N_BYTES = 256,
    TOKEN_NORMAL = 1,
    TOKEN_BYTE = 6,
};

/* What the layers of an architecture have beside those of llama. */
typedef struct LayerTraits {
    const char *architecture;
    bool qkv_bias, post_norms, head_norms;
} LayerTraits;

static const LayerTraits layer_traits[] = {
    {"llama", false, false, false},
    {"qwen2", true, false, false},
    {"gemma3", false, true, true},
};

static const LayerTraits *find_traits(const ModelShape *shape)
{
    for (size_t i = 0; i < sizeof layer_traits / sizeof *layer_traits; i++)
        if (!strcmp(layer_traits[i].architecture, shape->architecture)) return &layer_traits[i];
    return NULL;
}

static bool find_type(const char *name, DType *ret_type)
{
    for (uint32_t id = 0; id < MAX_TYPE_ID; id++) {
        const DTypeInfo *info = dtype_info((DType)id);
        if (!info || strcasecmp(info->name, name) != 0) continue;
        *ret_type = (DType)id;
        return true;
    }
    return false;
}

static bool refuse_text(const char *text, Error *error)
{
    char known[512] = "";
    size_t n = 0;
    for (size_t i = 0; shape_name_at(i); i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", shape_name_at(i));
    n += (size_t)snprintf(known + n, sizeof known - n, "; types:");
    for (uint32_t id = 0; id < MAX_TYPE_ID; id++)
        if (dtype_info((DType)id)) n += (size_t)snprintf(known + n, sizeof known - n, " %s", dtype_name(id).text);
    return error_set_param(error, ERR_INVALID, "synthetic", "'%s' is not SHAPE:TYPE; shapes: %s", text, known);
}

static bool check_shape(const ModelShape *s, DType type, Error *error)
{
    const DTypeInfo *info = dtype_info(type);
    const uint32_t n_cols[] = {s->n_embd, s->n_ff, s->n_heads * s->v_dim};
    if (!find_traits(s))
        return error_set(error, ERR_UNSUPPORTED, "no synthetic models of architecture '%s'", s->architecture);
    for (size_t i = 0; i < sizeof n_cols / sizeof *n_cols; i++)
        if (n_cols[i] % info->block_elements != 0)
            return error_set_param(error, ERR_INVALID, "synthetic",
                                   "%s has rows of %u, which are no whole blocks of %s (%u)", s->name, n_cols[i],
                                   info->name, info->block_elements);
    return true;
}

bool synthetic_parse(const char *text, const ModelShape **ret_shape, DType *ret_type, Error *error)
{
    char name[64];
    const char *colon = strchr(text, ':');
    const ModelShape *shape = NULL;
    DType type;
    if (colon && (size_t)(colon - text) < sizeof name) {
        snprintf(name, sizeof name, "%.*s", (int)(colon - text), text);
        shape = shape_by_name(name);
    }
    if (!shape || !find_type(colon + 1, &type)) return refuse_text(text, error);
    if (!check_shape(shape, type, error)) return false;
    *ret_shape = shape;
    *ret_type = type;
    return true;
}

/* ---- tensors ---- */

static SyntheticTensor *add_tensor(Synthetic *synthetic, const char *name, DType type, uint32_t n_rows, uint32_t n_cols)
{
    SyntheticTensor *tensor = &synthetic->tensors[synthetic->n_tensors++];
    *tensor = (SyntheticTensor){.type = type, .n_rows = n_rows, .n_cols = n_cols, .offset = synthetic->data_bytes};
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    uint64_t n_bytes = dtype_row_bytes(type, n_cols) * n_rows;
    synthetic->data_bytes += (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return tensor;
}

static void add_matrix(Synthetic *synthetic, const char *name, DType type, uint32_t n_rows, uint32_t n_cols)
{
    add_tensor(synthetic, name, type, n_rows, n_cols)->deviation = 1 / sqrtf((float)n_cols);
}

static void add_vector(Synthetic *synthetic, const char *name, uint32_t n, float mean)
{
    SyntheticTensor *tensor = add_tensor(synthetic, name, DTYPE_F32, 1, n);
    tensor->mean = mean;
    tensor->deviation = 0.1f;
}

static void add_layer(Synthetic *synthetic, const ModelShape *s, DType type, uint32_t layer)
{
    const LayerTraits *traits = find_traits(s);
    uint32_t q = s->n_heads * s->head_dim, k = s->n_kv_heads * s->head_dim, v = s->n_kv_heads * s->v_dim;
    const struct {
        const char *name;
        uint32_t n_rows, n_cols;
    } matrices[] = {
        {"attn_q", q, s->n_embd},         {"attn_k", k, s->n_embd},
        {"attn_v", v, s->n_embd},         {"attn_output", s->n_embd, s->n_heads * s->v_dim},
        {"ffn_gate", s->n_ff, s->n_embd}, {"ffn_up", s->n_ff, s->n_embd},
        {"ffn_down", s->n_embd, s->n_ff},
    };
    const struct {
        const char *name;
        uint32_t n;
        float mean;
        bool wanted;
    } vectors[] = {
        {"attn_norm.weight", s->n_embd, 1, true},
        {"ffn_norm.weight", s->n_embd, 1, true},
        {"attn_q.bias", q, 0, traits->qkv_bias},
        {"attn_k.bias", k, 0, traits->qkv_bias},
        {"attn_v.bias", v, 0, traits->qkv_bias},
        {"post_attention_norm.weight", s->n_embd, 1, traits->post_norms},
        {"post_ffw_norm.weight", s->n_embd, 1, traits->post_norms},
        {"attn_q_norm.weight", s->head_dim, 1, traits->head_norms},
        {"attn_k_norm.weight", s->head_dim, 1, traits->head_norms},
    };
    char name[64];
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, matrices[i].name);
        add_matrix(synthetic, name, type, matrices[i].n_rows, matrices[i].n_cols);
    }
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        snprintf(name, sizeof name, "blk.%u.%s", layer, vectors[i].name);
        if (vectors[i].wanted) add_vector(synthetic, name, vectors[i].n, vectors[i].mean);
    }
}

/* A file carries the result of Llama 3's stretching, as divisors of the plain velocities. */
static bool add_rope_divisors(Synthetic *synthetic, const ModelShape *shape, Error *error)
{
    uint32_t n = shape->rope_dim / 2;
    double *theta = calloc(n, sizeof *theta); /* ascending: the file's order backwards */
    synthetic->rope_divisors = calloc(n, sizeof *synthetic->rope_divisors);
    bool ok = theta && synthetic->rope_divisors;
    if (!ok) error_set(error, ERR_NO_MEMORY, "no memory for %u rotary pairs", n);
    ok = ok && family_rope_theta(shape, NULL, theta, error);
    for (uint32_t r = 0; ok && r < n; r++)
        synthetic->rope_divisors[r] = (float)(pow(shape->rope_base, -2.0 * r / shape->rope_dim) / theta[n - 1 - r]);
    free(theta);
    if (ok) add_tensor(synthetic, "rope_freqs.weight", DTYPE_F32, 1, n)->values = synthetic->rope_divisors;
    return ok;
}

static bool add_tensors(Synthetic *synthetic, const ModelShape *shape, DType type, Error *error)
{
    size_t max = (size_t)shape->n_layers * MAX_TENSORS_PER_LAYER + MAX_GLOBAL_TENSORS;
    synthetic->tensors = calloc(max, sizeof *synthetic->tensors);
    if (!synthetic->tensors) return error_set(error, ERR_NO_MEMORY, "no memory for a directory of tensors");
    add_matrix(synthetic, "token_embd.weight", type, shape->n_vocab, shape->n_embd);
    add_vector(synthetic, "output_norm.weight", shape->n_embd, 1);
    if (!shape->tied_output) add_matrix(synthetic, "output.weight", type, shape->n_vocab, shape->n_embd);
    if (shape->rope_llama3.factor != 0 && !add_rope_divisors(synthetic, shape, error)) return false;
    for (uint32_t layer = 0; layer < shape->n_layers; layer++) add_layer(synthetic, shape, type, layer);
    return true;
}

/* ---- header; the first failure stays, so a run of writes is checked once ---- */

typedef struct Header {
    Buffer bytes;
    Error *error;
    bool ok;
    const char *architecture;
    uint64_t n_keys;
} Header;

static void put(Header *header, const void *bytes, size_t n)
{
    if (header->ok) header->ok = buffer_append(&header->bytes, bytes, n, header->error);
}

static void put_u32(Header *header, uint32_t value)
{
    put(header, &value, sizeof value);
}

static void put_u64(Header *header, uint64_t value)
{
    put(header, &value, sizeof value);
}

static void put_text(Header *header, const char *text)
{
    size_t n = strlen(text);
    put_u64(header, n);
    put(header, text, n);
}

static void put_key(Header *header, const char *key, GgufType type)
{
    header->n_keys++;
    put_text(header, key);
    put_u32(header, type);
}

static void put_array_key(Header *header, const char *key, GgufType element, uint64_t n)
{
    put_key(header, key, GGUF_ARRAY);
    put_u32(header, element);
    put_u64(header, n);
}

static void put_text_key(Header *header, const char *key, const char *value)
{
    put_key(header, key, GGUF_STRING);
    put_text(header, value);
}

static void put_shape_u32(Header *header, const char *suffix, uint32_t value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", header->architecture, suffix);
    put_key(header, key, GGUF_U32);
    put_u32(header, value);
}

static void put_shape_f32(Header *header, const char *suffix, float value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", header->architecture, suffix);
    put_key(header, key, GGUF_F32);
    put(header, &value, sizeof value);
}

static void put_shape(Header *header, const ModelShape *shape, DType type)
{
    char name[96];
    snprintf(name, sizeof name, "%.64s:%s", shape->name, dtype_info(type)->name);
    put_text_key(header, "general.architecture", shape->architecture);
    put_text_key(header, "general.name", name);
    put_shape_u32(header, "block_count", shape->n_layers);
    put_shape_u32(header, "context_length", shape->train_context);
    put_shape_u32(header, "embedding_length", shape->n_embd);
    put_shape_u32(header, "feed_forward_length", shape->n_ff);
    put_shape_u32(header, "attention.head_count", shape->n_heads);
    put_shape_u32(header, "attention.head_count_kv", shape->n_kv_heads);
    put_shape_u32(header, "attention.key_length", shape->head_dim);
    put_shape_u32(header, "attention.value_length", shape->v_dim);
    put_shape_f32(header, "attention.layer_norm_rms_epsilon", shape->norm_eps);
    put_shape_u32(header, "rope.dimension_count", shape->rope_dim);
    put_shape_f32(header, "rope.freq_base", (float)shape->rope_base);
    if (!shape->window_tokens) return;
    put_shape_u32(header, "attention.sliding_window", shape->window_tokens);
    put_shape_u32(header, "attention.sliding_window_pattern", shape->full_layer_period);
    put_shape_f32(header, "rope.freq_base_swa", (float)shape->window_rope_base);
}

/* Bytes and nameless tokens: enough for text to be taken apart. */
static void put_vocabulary(Header *header, uint32_t n)
{
    char text[32];
    put_text_key(header, "tokenizer.ggml.model", "llama");
    put_array_key(header, "tokenizer.ggml.tokens", GGUF_STRING, n);
    for (uint32_t id = 0; id < n; id++) {
        snprintf(text, sizeof text, id < N_BYTES ? "<0x%02X>" : "<%u>", id);
        put_text(header, text);
    }
    put_array_key(header, "tokenizer.ggml.token_type", GGUF_I32, n);
    for (uint32_t id = 0; id < n; id++) put_u32(header, id < N_BYTES ? TOKEN_BYTE : TOKEN_NORMAL);
    put_array_key(header, "tokenizer.ggml.scores", GGUF_F32, n);
    for (uint32_t id = 0; id < n; id++) put_u32(header, 0);
    put_key(header, "tokenizer.ggml.add_bos_token", GGUF_BOOL);
    put(header, "", 1);
}

static void put_directory(Header *header, const Synthetic *synthetic)
{
    for (uint32_t i = 0; i < synthetic->n_tensors; i++) {
        const SyntheticTensor *tensor = &synthetic->tensors[i];
        uint32_t n_dims = tensor->n_rows > 1 ? 2 : 1;
        put_text(header, tensor->name);
        put_u32(header, n_dims);
        put_u64(header, tensor->n_cols);
        if (n_dims == 2) put_u64(header, tensor->n_rows);
        put_u32(header, tensor->type);
        put_u64(header, tensor->offset);
    }
}

static bool make_header(const Synthetic *synthetic, const ModelShape *shape, DType type, Buffer *out, Error *error)
{
    Header header = {.error = error, .ok = true, .architecture = shape->architecture};
    buffer_init(&header.bytes, MAX_HEADER_BYTES);
    put(&header, "GGUF", 4);
    put_u32(&header, GGUF_VERSION);
    put_u64(&header, synthetic->n_tensors);
    size_t n_keys_at = header.bytes.n;
    put_u64(&header, 0);
    put_shape(&header, shape, type);
    put_vocabulary(&header, shape->n_vocab);
    put_directory(&header, synthetic);
    while (header.ok && header.bytes.n % ALIGNMENT) put(&header, "", 1);
    if (header.ok) memcpy(header.bytes.data + n_keys_at, &header.n_keys, sizeof header.n_keys);
    *out = header.bytes;
    return header.ok;
}

/* ---- file ---- */

static bool write_all(int fd, const char *bytes, size_t n, Error *error)
{
    while (n) {
        ssize_t written = write(fd, bytes, n);
        if (written < 0) return error_set(error, ERR_IO, "writing a model in memory: %s", strerror(errno));
        bytes += written;
        n -= (size_t)written;
    }
    return true;
}

static bool make_file(Synthetic *synthetic, const ModelShape *shape, DType type, Error *error)
{
    Buffer header;
    bool ok = make_header(synthetic, shape, type, &header, error);
    synthetic->fd = ok ? memfd_create("longwave-synthetic", MFD_CLOEXEC) : -1;
    if (ok && synthetic->fd < 0) ok = error_set(error, ERR_IO, "making a model in memory: %s", strerror(errno));
    ok = ok && write_all(synthetic->fd, header.data, header.n, error);
    synthetic->header_bytes = header.n;
    if (ok && ftruncate(synthetic->fd, (off_t)(header.n + synthetic->data_bytes)) != 0)
        ok = error_set(error, ERR_IO, "making a model in memory: %s", strerror(errno));
    snprintf(synthetic->path, sizeof synthetic->path, "/proc/self/fd/%d", synthetic->fd);
    buffer_done(&header);
    return ok;
}

bool synthetic_new(const ModelShape *shape, DType type, Synthetic **ret_synthetic, Error *error)
{
    if (!check_shape(shape, type, error)) return false;
    Synthetic *synthetic = calloc(1, sizeof *synthetic);
    if (!synthetic) return error_set(error, ERR_NO_MEMORY, "no memory for a synthetic model");
    synthetic->fd = -1;
    if (!add_tensors(synthetic, shape, type, error) || !make_file(synthetic, shape, type, error)) {
        synthetic_free(synthetic);
        return false;
    }
    *ret_synthetic = synthetic;
    return true;
}

void synthetic_free(Synthetic *synthetic)
{
    if (!synthetic) return;
    if (synthetic->fd >= 0) close(synthetic->fd);
    free(synthetic->rope_divisors);
    free(synthetic->tensors);
    free(synthetic);
}

const char *synthetic_path(const Synthetic *synthetic)
{
    return synthetic->path;
}
