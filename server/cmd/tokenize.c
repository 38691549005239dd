/* SPDX-License-Identifier: Apache-2.0 */
/* longwave tokenize: one line a token, its id and its bytes as a quoted string; or one JSON object. */
#include "config/config.h"
#include "engine/text/tokenizer.h"
#include "base/utf8.h"
#include "server/cmd/cmd.h"
#include "server/cmd/prompt.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { MAX_TEXT_BYTES = 256 << 20, MAX_OUTPUT_BYTES = 1 << 30 };

/* The code point of what utf8_is_control found; U+0080 to U+009F have their number as second byte. */
static unsigned control_number(const uint8_t *at, size_t n)
{
    return n == 3 ? 0x2000u + (at[2] & 0x3Fu) : at[n - 1];
}

/* Printable text as it is, the rest as \n or \xHH; in JSON, where every piece is UTF-8, as \uHHHH. */
static bool append_quoted(Buffer *out, const Buffer *piece, bool json, Error *error)
{
    bool ok = buffer_append_text(out, "\"", error);
    for (size_t i = 0, len; ok && i < piece->n; i += len) {
        const uint8_t *at = (const uint8_t *)piece->data + i;
        bool shown = utf8_step(at, piece->n - i, &len) == UTF8_WHOLE && !utf8_is_control(at, len);
        if (*at == '\n')
            ok = buffer_append_text(out, "\\n", error);
        else if (*at == '"' || *at == '\\')
            ok = buffer_printf(out, error, "\\%c", *at);
        else if (shown)
            ok = buffer_append(out, at, len, error);
        else if (json)
            ok = buffer_printf(out, error, "\\u%04x", control_number(at, len));
        else
            for (size_t k = 0; ok && k < len; k++) ok = buffer_printf(out, error, "\\x%02x", at[k]);
    }
    return ok && buffer_append_text(out, "\"", error);
}

/* A piece that is no UTF-8 by itself is an array of its bytes in JSON. */
static bool append_json_piece(Buffer *out, const Buffer *piece, Error *error)
{
    if (utf8_valid((const uint8_t *)piece->data, piece->n)) return append_quoted(out, piece, true, error);
    for (size_t i = 0; i < piece->n; i++)
        if (!buffer_printf(out, error, "%c%u", i ? ',' : '[', (uint8_t)piece->data[i])) return false;
    return buffer_append_text(out, "]", error);
}

static bool append_tokens(const Tokenizer *tokenizer, const TokenList *list, bool json, Buffer *out, Error *error)
{
    Buffer piece;
    buffer_init(&piece, 1 << 20);
    bool ok = !json || buffer_printf(out, error, "{\"count\":%zu,\"tokens\":[", list->n);
    for (size_t i = 0; ok && i < list->n; i++) {
        buffer_clear(&piece);
        ok = tok_piece(tokenizer, list->ids[i], true, &piece, error);
        if (ok && json)
            ok = buffer_printf(out, error, "%s{\"id\":%" PRIu32 ",\"piece\":", i ? "," : "", list->ids[i]) &&
                 append_json_piece(out, &piece, error) && buffer_append_text(out, "}", error);
        else if (ok)
            ok = buffer_printf(out, error, "%7" PRIu32 "  ", list->ids[i]) &&
                 append_quoted(out, &piece, false, error) && buffer_append_text(out, "\n", error);
    }
    buffer_done(&piece);
    return ok && (!json || buffer_append_text(out, "]}\n", error));
}

static bool print_tokens(const Config *config, const Tokenizer *tokenizer, const Buffer *text, Error *error)
{
    TokenList list = {0};
    Buffer out;
    buffer_init(&out, MAX_OUTPUT_BYTES);
    TextRange all = {0, text->n};
    TokEncode in = {.text = text->data ? text->data : "",
                    .n = text->n,
                    .trusted = &all,
                    .n_trusted = config->special,
                    .add_special = true};
    bool ok = tok_encode(tokenizer, &in, &list, error) && append_tokens(tokenizer, &list, config->json, &out, error);
    if (ok && fwrite(out.data ? out.data : "", 1, out.n, stdout) != out.n)
        ok = error_set(error, ERR_IO, "cannot write the output");
    if (ok && isatty(STDERR_FILENO)) fprintf(stderr, "%zu bytes, %zu tokens\n", text->n, list.n);
    buffer_done(&out);
    token_list_done(&list);
    return ok;
}

static bool tokenize(const Config *config, Error *error)
{
    Gguf *gguf = NULL;
    Tokenizer *tokenizer = NULL;
    Buffer text;
    buffer_init(&text, MAX_TEXT_BYTES);
    bool ok = cmd_read_prompt(config, &text, error) && gguf_open(config->model, &gguf, error) &&
              tok_new(gguf, &tokenizer, error) && print_tokens(config, tokenizer, &text, error);
    tok_free(tokenizer);
    gguf_close(gguf);
    buffer_done(&text);
    return ok;
}

int cmd_tokenize(int argc, char **argv)
{
    Config config;
    Error error;
    bool help = false;
    if (!config_load(CMD_TOKENIZE, argc, argv, &config, &help, &error)) {
        fprintf(stderr, "longwave tokenize: %s\n", error.text);
        return 2;
    }
    int status = 0;
    if (help) {
        config_print_help(CMD_TOKENIZE, "longwave");
    } else if (!tokenize(&config, &error)) {
        fprintf(stderr, "longwave tokenize: %s\n", error.text);
        status = error.code == ERR_INVALID && error.param[0] ? 2 : 1;
    }
    config_done(&config);
    return status;
}
