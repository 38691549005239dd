/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input that begins with "GGUF" is loaded as a vocabulary; any other input is encoded and decoded: the first byte picks
 * a pre-tokenizer or SentencePiece, the next two a trusted range, the rest is the text. With all 256 bytes in the
 * vocabulary, decoding must give back the text with its dead bytes repaired, NUL among them.
 */
#include "engine/text/tokenizer.h"
#include "base/utf8.h"
#include "tests/support/tiny_vocab.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const rows[] = {"smollm", "gpt-2", "llama-bpe", "default", "tekken", "gpt-4o",
                                   "qwen2",  "dbrx",  NULL /* SentencePiece */};
enum { N_ROWS = sizeof rows / sizeof *rows };

static void must(bool ok)
{
    if (!ok) abort();
}

static Tokenizer *row_tokenizer(unsigned row)
{
    static Tokenizer *tokenizers[N_ROWS];
    static Gguf *files[N_ROWS];
    static Buffer bytes[N_ROWS];
    if (tokenizers[row]) return tokenizers[row];
    Error error;
    GgufWriter writer;
    gguf_writer_init(&writer);
    if (rows[row])
        tiny_vocab_write(&writer, rows[row], false);
    else
        tiny_vocab_write_spm(&writer);
    buffer_init(&bytes[row], 1 << 20);
    gguf_writer_finish(&writer, &bytes[row]);
    gguf_writer_done(&writer);
    must(gguf_open_memory(bytes[row].data, bytes[row].n, "tiny", &files[row], &error));
    must(tok_new(files[row], &tokenizers[row], &error));
    return tokenizers[row];
}

static void round_trip(const Tokenizer *tokenizer, const uint8_t *text, size_t n, TextRange trusted)
{
    Error error;
    TokenList list = {0};
    TokEncode in = {.text = (const char *)text, .n = n, .trusted = &trusted, .n_trusted = 1};
    must(tok_encode(tokenizer, &in, &list, &error));
    Buffer decoded;
    buffer_init(&decoded, SIZE_MAX / 2);
    TokStream stream = {0};
    for (size_t i = 0; i < list.n; i++) must(tok_stream_push(&stream, tokenizer, list.ids[i], true, &decoded, &error));
    must(tok_stream_flush(&stream, &decoded, &error));
    uint8_t *shown = malloc(n + 1);
    must(shown);
    for (size_t i = 0; i < n; i++) shown[i] = text[i] ? text[i] : 0xC0; /* what is never right in UTF-8 */
    size_t cut, repaired_n = utf8_repair(shown, n, true, NULL, &cut);
    char *repaired = malloc(repaired_n + 1);
    must(repaired);
    utf8_repair(shown, n, true, repaired, &cut);
    /* SentencePiece writes a blank as U+2581, and so cannot tell the two. */
    if (!memmem(text, n, "\xE2\x96\x81", 3))
        must(decoded.n == repaired_n && (!repaired_n || !memcmp(decoded.data, repaired, repaired_n)));
    free(repaired);
    free(shown);
    buffer_done(&decoded);
    token_list_done(&list);
}

static void load(const uint8_t *data, size_t n)
{
    Error error;
    Gguf *gguf;
    Tokenizer *tokenizer;
    if (!gguf_open_memory(data, n, "fuzz", &gguf, &error)) return;
    if (tok_new(gguf, &tokenizer, &error)) {
        static const char text[] = "Hello <|im_end|>\n 123 \xF0\x9F\x98\x8A";
        TokenList list = {0};
        TokEncode in = {
            .text = text, .n = sizeof text - 1, .trusted = &(TextRange){0, 9}, .n_trusted = 1, .add_special = true};
        Buffer piece;
        buffer_init(&piece, 1 << 20);
        if (tok_encode(tokenizer, &in, &list, &error))
            for (size_t i = 0; i < list.n; i++) must(tok_piece(tokenizer, list.ids[i], true, &piece, &error));
        buffer_done(&piece);
        token_list_done(&list);
        tok_free(tokenizer);
    }
    gguf_close(gguf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n >= 4 && !memcmp(data, "GGUF", 4)) {
        load(data, n);
    } else if (n >= 3) {
        size_t start = data[1] < n - 3 ? data[1] : n - 3, end = start + data[2] < n - 3 ? start + data[2] : n - 3;
        round_trip(row_tokenizer(data[0] % N_ROWS), data + 3, n - 3, (TextRange){start, end});
    }
    return 0;
}
