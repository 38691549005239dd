/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files: any bytes give a file whose every value can be read, or an error that names the place; never a crash. */
#include "engine/kv/kv_class.h"
#include "engine/model/weights.h"
#include "tests/support/gguf_open.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void bind(const ModelFamily *family, const ModelShape *shape, const Gguf *gguf)
{
    ModelWeights weights;
    Error error = {0};
    if (weights_bind(family, shape, gguf, (BindProgress){0}, &weights, &error)) {
        volatile float sum = weights.output_norm[shape->n_embd - 1] + weights.layers[0].attn_norm[0];
        (void)sum;
        weights_done(&weights);
    } else if (!error.text[0]) {
        abort();
    }
}

/* What a model does first with a file: its dimensions, from them memory sizes and angles, and its tensors. */
static void read_model(const Gguf *gguf)
{
    const ModelFamily *family;
    ModelShape shape;
    Error error = {0};
    if (!family_find(gguf, &family, &error) || !family_read_shape(family, gguf, &shape, &error)) {
        if (!error.text[0]) abort();
        return;
    }
    double *theta = malloc((shape.rope_dim / 2 + 1) * sizeof *theta);
    if (!theta) abort();
    if (!family_rope_theta(&shape, gguf, theta, &error) && !error.text[0]) abort();
    free(theta);
    const KvTypes types = kv_types_all(KV_F32);
    if (kv_tokens_bytes(&shape, &types, shape.train_context) < kv_token_bytes(&shape, &types)) abort();
    bind(family, &shape, gguf);
}

/* The same bytes as a first file and as a second: whatever they say of parts, the answer is a model or a place. */
static void read_twice(const uint8_t *data, size_t n)
{
    Error error = {0};
    Gguf *gguf;
    size_t half = n / 2;
    const GgufBytes pairs[2][2] = {{{data, n, "fuzz-1"}, {data, n, "fuzz-2"}},
                                   {{data, half, "fuzz-1"}, {data + half, n - half, "fuzz-2"}}};
    for (int i = 0; i < 2; i++) {
        if (gguf_open_memory_parts(pairs[i], 2, &gguf, &error))
            gguf_close(gguf);
        else if (!strstr(error.text, "fuzz-") || !strstr(error.text, " at offset "))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    Error error = {0};
    read_twice(data, n);
    if (!gguf_open_and_read(data, n, &error)) {
        if (!strstr(error.text, "test.gguf: ") || !strstr(error.text, " at offset ")) abort();
        return 0;
    }
    Gguf *gguf;
    if (!gguf_open_memory(data, n, "fuzz.gguf", &gguf, &error)) abort(); /* the same bytes, another answer */
    read_model(gguf);
    gguf_close(gguf);
    return 0;
}
