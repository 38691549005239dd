/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/gguf_open.h"

#include <stdlib.h>
#include <string.h>

static uint64_t sum_string(GgufString text)
{
    uint64_t sum = text.n;
    for (size_t i = 0; i < text.n; i++) sum += (uint8_t)text.data[i];
    return sum;
}

static uint64_t sum_kv(const GgufKv *kv)
{
    uint64_t sum = sum_string(kv->key);
    GgufStringIter iter = {kv->data};
    for (uint64_t i = 0; i < kv->n; i++)
        sum += kv->type == GGUF_STRING ? sum_string(gguf_next_string(&iter)) : (uint64_t)gguf_int_at(kv, i);
    if (kv->type != GGUF_STRING && kv->n) sum += gguf_float_at(kv, kv->n - 1) > 0;
    return sum;
}

static uint64_t sum_tensor(const GgufTensor *tensor)
{
    const uint8_t *data = tensor->view.data;
    uint64_t sum = sum_string(tensor->name) + tensor->part;
    return tensor->n_bytes ? sum + data[0] + data[tensor->n_bytes - 1] : sum; /* 0: a type of unknown size */
}

static uint64_t sum_all(const Gguf *gguf)
{
    uint64_t sum = gguf_version(gguf) + gguf_file_bytes(gguf);
    for (size_t i = 0; i < gguf_n_kv(gguf); i++) sum += sum_kv(gguf_kv_at(gguf, i));
    for (size_t i = 0; i < gguf_n_tensors(gguf); i++) sum += sum_tensor(gguf_tensor_at(gguf, i));
    return sum;
}

bool gguf_open_and_read(const void *bytes, size_t n, Error *error)
{
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy) abort();
    if (n) memcpy(copy, bytes, n);
    Gguf *gguf;
    bool opened = gguf_open_memory(copy, n, "test.gguf", &gguf, error);
    if (opened) {
        volatile uint64_t sum = sum_all(gguf);
        (void)sum;
        gguf_close(gguf);
    }
    free(copy);
    return opened;
}
