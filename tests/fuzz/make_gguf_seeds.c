/* SPDX-License-Identifier: Apache-2.0 */
/* make_gguf_seeds FOLDER: small GGUF files to start fuzzing from, made rather than committed as bytes. */
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void save_bytes(const Buffer *bytes, const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes->data, 1, bytes->n, file) != bytes->n || fclose(file)) {
        perror(path);
        exit(1);
    }
}

static void save(GgufWriter *writer, const char *folder, const char *name)
{
    Buffer bytes;
    buffer_init(&bytes, 1 << 20);
    gguf_writer_finish(writer, &bytes);
    save_bytes(&bytes, folder, name);
    buffer_done(&bytes);
    gguf_writer_done(writer);
    gguf_writer_init(writer);
}

/* Two files of equal size, one behind the other: the target also reads its input so. */
static void save_split(const char *folder)
{
    Buffer bytes;
    buffer_init(&bytes, 1 << 20);
    for (uint32_t no = 0; no < 2; no++) {
        GgufWriter writer;
        gguf_writer_init(&writer);
        gguf_writer_u32(&writer, "split.no", no);
        gguf_writer_u32(&writer, "split.count", 2);
        gguf_writer_u32(&writer, "split.tensors.count", 2);
        gguf_writer_tensor(&writer, no ? "b" : "a", DTYPE_F32, 1, (uint64_t[]){4}, (float[4]){1}, 16);
        gguf_writer_finish(&writer, &bytes);
        gguf_writer_done(&writer);
    }
    save_bytes(&bytes, folder, "split");
    buffer_done(&bytes);
}

/* All that a model needs, as small as it gets. */
static void save_model(const char *folder)
{
    Buffer bytes;
    Error error;
    TinyModel tiny = tiny_model_default();
    tiny.n_layers = tiny.n_kv_heads = 1;
    tiny.n_heads = 2;
    tiny.n_embd = tiny.n_ff = 32;
    tiny.type = tiny.embed_type = DTYPE_Q8_0;
    tiny.qkv_bias = tiny.rope_freqs = true;
    buffer_init(&bytes, 1 << 20);
    if (!tiny_model_build(&tiny, &bytes, &error)) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    save_bytes(&bytes, folder, "model");
    buffer_done(&bytes);
}

static void add_llama_keys(GgufWriter *writer)
{
    gguf_writer_string(writer, "general.architecture", "llama");
    gguf_writer_u32(writer, "llama.block_count", 2);
    gguf_writer_u32(writer, "llama.context_length", 512);
    gguf_writer_u32(writer, "llama.embedding_length", 64);
    gguf_writer_u32(writer, "llama.feed_forward_length", 128);
    gguf_writer_u32(writer, "llama.attention.head_count", 4);
    gguf_writer_u32(writer, "llama.attention.head_count_kv", 2);
    gguf_writer_f32(writer, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_writer_f32(writer, "llama.rope.freq_base", 10000);
    gguf_writer_u32(writer, "llama.vocab_size", 3);
    gguf_writer_strings(writer, "tokenizer.ggml.tokens", (const char *const[]){"a", "b", "ab"}, 3);
}

static void add_tensors(GgufWriter *writer)
{
    static const uint8_t data[292];
    for (uint32_t id = 0; id < 64; id++) {
        const DTypeInfo *info = dtype_known(id);
        if (!info) continue;
        gguf_writer_tensor(writer, info->name, (DType)id, 1, (uint64_t[]){info->block_elements}, data,
                           info->block_bytes);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: make_gguf_seeds FOLDER\n", stderr);
        return 2;
    }
    GgufWriter writer;
    gguf_writer_init(&writer);
    writer.version = 2;
    save(&writer, argv[1], "empty");
    add_llama_keys(&writer);
    save(&writer, argv[1], "llama");
    add_llama_keys(&writer);
    gguf_writer_tensor(&writer, "rope_freqs.weight", DTYPE_F32, 1, (uint64_t[]){8}, (float[8]){1, 1, 1, 1, 2, 4, 8, 8},
                       32);
    save(&writer, argv[1], "llama_factors");
    writer.alignment = 64;
    gguf_writer_u32(&writer, "general.alignment", 64);
    add_tensors(&writer);
    save(&writer, argv[1], "tensors");
    for (uint32_t type = GGUF_U8; type <= GGUF_F64; type++) {
        char key[8];
        snprintf(key, sizeof key, "a%u", type);
        if (type == GGUF_STRING)
            gguf_writer_strings(&writer, key, (const char *const[]){"", "text"}, 2);
        else if (type != GGUF_ARRAY)
            gguf_writer_array(&writer, key, (GgufType)type, (uint8_t[16]){1}, 2);
    }
    save(&writer, argv[1], "arrays");
    tiny_vocab_write(&writer, "llama-bpe", true);
    save(&writer, argv[1], "vocabulary");
    tiny_vocab_write_spm(&writer);
    save(&writer, argv[1], "spm_vocabulary");
    save_split(argv[1]);
    save_model(argv[1]);
    gguf_writer_done(&writer);
    return 0;
}
