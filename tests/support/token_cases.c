/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/token_cases.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *must(void *pointer)
{
    if (pointer) return pointer;
    fputs("no memory in a test\n", stderr);
    abort();
}

void written_text(const uint8_t *bytes, size_t n, char *out)
{
    uint16_t written[256];
    unsigned next = 256;
    for (unsigned byte = 0; byte < 256; byte++) {
        bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
        written[byte] = (uint16_t)(itself ? byte : next++);
    }
    for (size_t i = 0; i < n; i++) {
        unsigned code = written[bytes[i]];
        if (code >= 0x80) *out++ = (char)(0xC0 | code >> 6);
        *out++ = (char)(code < 0x80 ? code : 0x80 | (code & 0x3F));
    }
    *out = '\0';
}

static void open_written(GgufWriter *writer, TestTokenizer *test)
{
    buffer_init(&test->file, 1 << 28);
    gguf_writer_finish(writer, &test->file);
    gguf_writer_done(writer);
    if (!gguf_open_memory(test->file.data, test->file.n, "test", &test->gguf, &test->error)) {
        fprintf(stderr, "%s\n", test->error.text);
        abort();
    }
    if (!tok_new(test->gguf, &test->tokenizer, &test->error)) test->tokenizer = NULL;
}

TestTokenizer test_tokenizer_open(const VocabSpec *spec)
{
    TestTokenizer test = {0};
    GgufWriter writer;
    gguf_writer_init(&writer);
    gguf_writer_string(&writer, "tokenizer.ggml.model", spec->model ? spec->model : "gpt2");
    if (spec->pre) gguf_writer_string(&writer, "tokenizer.ggml.pre", spec->pre);
    if (spec->tokens) gguf_writer_strings(&writer, "tokenizer.ggml.tokens", spec->tokens, spec->n_tokens);
    if (spec->types) gguf_writer_array(&writer, "tokenizer.ggml.token_type", GGUF_I32, spec->types, spec->n_types);
    if (spec->merges) gguf_writer_strings(&writer, "tokenizer.ggml.merges", spec->merges, spec->n_merges);
    if (spec->scores) gguf_writer_array(&writer, "tokenizer.ggml.scores", GGUF_F32, spec->scores, spec->n_scores);
    if (spec->more) {
        spec->more(&writer);
    } else {
        gguf_writer_u32(&writer, "tokenizer.ggml.bos_token_id", 1);
        gguf_writer_u32(&writer, "tokenizer.ggml.eos_token_id", 2);
    }
    open_written(&writer, &test);
    return test;
}

static const char **json_strings(const cJSON *array, size_t *ret_n)
{
    const char **strings = must(calloc((size_t)cJSON_GetArraySize(array) + 1, sizeof *strings));
    const cJSON *item;
    *ret_n = 0;
    cJSON_ArrayForEach(item, array) strings[(*ret_n)++] = item->valuestring;
    return strings;
}

TestTokenizer test_tokenizer_small(const cJSON *golden, const char *pre)
{
    const cJSON *small = cJSON_GetObjectItem(golden, "small"), *types = cJSON_GetObjectItem(small, "types"), *item;
    VocabSpec spec = {.pre = pre};
    const char **tokens = json_strings(cJSON_GetObjectItem(small, "tokens"), &spec.n_tokens);
    const char **merges = json_strings(cJSON_GetObjectItem(small, "merges"), &spec.n_merges);
    int32_t *kinds = must(calloc(spec.n_tokens, sizeof *kinds));
    cJSON_ArrayForEach(item, types) kinds[spec.n_types++] = item->valueint;
    spec.tokens = tokens;
    spec.merges = merges;
    spec.types = kinds;
    TestTokenizer test = test_tokenizer_open(&spec);
    free(kinds);
    free(merges);
    free(tokens);
    return test;
}

TestTokenizer test_tokenizer_small_spm(const cJSON *golden, void (*more)(GgufWriter *writer))
{
    const cJSON *small = cJSON_GetObjectItem(golden, "small"), *item;
    VocabSpec spec = {.model = "llama", .more = more};
    const char **tokens = json_strings(cJSON_GetObjectItem(small, "tokens"), &spec.n_tokens);
    int32_t *kinds = must(calloc(spec.n_tokens, sizeof *kinds));
    float *scores = must(calloc(spec.n_tokens, sizeof *scores));
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(small, "types")) kinds[spec.n_types++] = item->valueint;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(small, "scores")) scores[spec.n_scores++] = (float)item->valuedouble;
    spec.tokens = tokens;
    spec.types = kinds;
    spec.scores = scores;
    TestTokenizer test = test_tokenizer_open(&spec);
    free(scores);
    free(kinds);
    free(tokens);
    return test;
}

/* Copies an array of strings or of 4-byte numbers as it is. */
static void copy_array(GgufWriter *writer, const Gguf *gguf, const char *key)
{
    const GgufKv *kv = gguf_find(gguf, key);
    if (!kv || !kv->is_array) {
        fprintf(stderr, "no array '%s'\n", key);
        abort();
    }
    GgufStringIter iter = {kv->data};
    for (uint64_t i = 0; kv->type == GGUF_STRING && i < kv->n; i++) gguf_next_string(&iter);
    const uint8_t *end = kv->type == GGUF_STRING ? iter.at : kv->data + 4 * kv->n;
    Buffer raw;
    buffer_init(&raw, 1 << 28);
    put_u32(&raw, kv->type);
    put_u64(&raw, kv->n);
    put_bytes(&raw, kv->data, (size_t)(end - kv->data));
    gguf_writer_raw(writer, key, GGUF_ARRAY, raw.data, raw.n);
    buffer_done(&raw);
}

TestTokenizer test_tokenizer_file(const char *path, const char *pre)
{
    TestTokenizer test = {0};
    Gguf *gguf;
    if (!gguf_open(path, &gguf, &test.error)) {
        fprintf(stderr, "%s\n", test.error.text);
        abort();
    }
    GgufWriter writer;
    gguf_writer_init(&writer);
    gguf_writer_string(&writer, "tokenizer.ggml.model", "gpt2");
    gguf_writer_string(&writer, "tokenizer.ggml.pre", pre);
    copy_array(&writer, gguf, "tokenizer.ggml.tokens");
    copy_array(&writer, gguf, "tokenizer.ggml.token_type");
    copy_array(&writer, gguf, "tokenizer.ggml.merges");
    gguf_writer_u32(&writer, "tokenizer.ggml.bos_token_id", 1);
    gguf_close(gguf);
    open_written(&writer, &test);
    return test;
}

void test_tokenizer_done(TestTokenizer *test)
{
    tok_free(test->tokenizer);
    gguf_close(test->gguf);
    buffer_done(&test->file);
}

uint8_t *hex_bytes(const char *hex, size_t *ret_n)
{
    size_t n = strlen(hex) / 2;
    uint8_t *bytes = must(malloc(n + 1));
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1) abort();
        bytes[i] = (uint8_t)byte;
    }
    *ret_n = n;
    return bytes;
}

uint8_t *case_bytes(const cJSON *item, size_t *ret_n)
{
    const cJSON *hex = cJSON_GetObjectItem(item, "hex");
    if (hex) return hex_bytes(hex->valuestring, ret_n);
    const char *text = cJSON_GetObjectItem(item, "text")->valuestring;
    *ret_n = strlen(text);
    return must(strdup(text));
}

char *shown_text(const uint8_t *bytes, size_t n, size_t *ret_n)
{
    size_t cut;
    uint8_t *no_nul = must(malloc(n + 1));
    for (size_t i = 0; i < n; i++) no_nul[i] = bytes[i] ? bytes[i] : 0xC0;
    char *shown = must(malloc(3 * n + 1));
    *ret_n = utf8_repair(no_nul, n, true, shown, &cut);
    free(no_nul);
    return shown;
}
