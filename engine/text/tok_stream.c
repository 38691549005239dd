/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/tok_impl.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { ALWAYS_DEAD = 0xC0 }; /* in UTF-8 */

/* Room that token_bytes may need. */
static bool piece_room(const Tokenizer *tokenizer, uint32_t id, size_t *ret_room, Error *error)
{
    if (id >= tokenizer->vocab.n)
        return error_set(error, ERR_INVALID, "token id %u is not below the vocabulary size %u", id, tokenizer->vocab.n);
    *ret_room = tokenizer->vocab.length[id];
    return true;
}

static size_t token_bytes(const Tokenizer *tokenizer, uint32_t id, bool special, uint8_t *out)
{
    TokText text = tok_text(&tokenizer->vocab, id);
    switch ((TokType)tokenizer->vocab.type[id]) {
    case TOK_UNKNOWN:
    case TOK_CONTROL:
    case TOK_UNUSED:
        if (!special) return 0;
        break;
    case TOK_USER_DEFINED:
        break;
    default:
        return tokenizer->model->bytes(tokenizer, id, out);
    }
    memcpy(out, text.data, text.n);
    return text.n;
}

bool tok_piece(const Tokenizer *tokenizer, uint32_t id, bool special, Buffer *out, Error *error)
{
    size_t room = 0;
    if (!piece_room(tokenizer, id, &room, error)) return false;
    uint8_t local[256], *bytes = room <= sizeof local ? local : malloc(room);
    if (!bytes) return error_set(error, ERR_NO_MEMORY, "no memory for a token of %zu bytes", room);
    bool ok = buffer_append(out, bytes, token_bytes(tokenizer, id, special, bytes), error);
    if (bytes != local) free(bytes);
    return ok;
}

/* Emits what is whole or dead of bytes[n]; keeps the rest. */
static bool emit(TokStream *stream, const uint8_t *bytes, size_t n, bool last, Buffer *out, Error *error)
{
    size_t cut;
    size_t room = utf8_repair(bytes, n, last, NULL, &cut);
    if (!buffer_reserve(out, room, error)) return false;
    utf8_repair(bytes, n, last, out->data + out->n, &cut);
    out->n += room;
    out->data[out->n] = '\0';
    memcpy(stream->pending, bytes + n - cut, cut);
    stream->n_pending = (uint8_t)cut;
    return true;
}

bool tok_stream_push(TokStream *stream, const Tokenizer *tokenizer, uint32_t id, bool special, Buffer *out,
                     Error *error)
{
    size_t room = 0;
    if (!piece_room(tokenizer, id, &room, error)) return false;
    room += sizeof stream->pending;
    uint8_t local[256], *bytes = room <= sizeof local ? local : malloc(room);
    if (!bytes) return error_set(error, ERR_NO_MEMORY, "no memory for a token of %zu bytes", room);
    memcpy(bytes, stream->pending, stream->n_pending);
    size_t n = stream->n_pending + token_bytes(tokenizer, id, special, bytes + stream->n_pending);
    for (size_t i = stream->n_pending; i < n; i++)
        if (!bytes[i]) bytes[i] = ALWAYS_DEAD;
    bool ok = emit(stream, bytes, n, false, out, error);
    if (bytes != local) free(bytes);
    return ok;
}

bool tok_stream_flush(TokStream *stream, Buffer *out, Error *error)
{
    uint8_t bytes[sizeof stream->pending];
    memcpy(bytes, stream->pending, stream->n_pending);
    return emit(stream, bytes, stream->n_pending, true, out, error);
}
