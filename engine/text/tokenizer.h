/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text to token ids and back, from the vocabulary of a GGUF file. Immutable after load; any thread may encode and
 * decode.
 *
 * Control tokens are recognised only inside ranges of the text that the caller declares trusted: text that a user typed
 * never turns into one. User-defined tokens (runs of blanks, markers) carry no such power; they are found everywhere,
 * as by the references.
 */
#pragma once
#include "base/buffer.h"
#include "engine/model/gguf.h"

typedef struct Tokenizer Tokenizer;

/* Half-open byte range. */
typedef struct TextRange {
    size_t start, end;
} TextRange;

/* Growable ids; init with {0}. */
typedef struct TokenList {
    uint32_t *ids;
    size_t n, capacity;
} TokenList;
void token_list_done(TokenList *list);
LW_CHECK bool token_list_push(TokenList *list, uint32_t id, Error *error);

/*
 * Fails naming the key at fault; ERR_UNSUPPORTED when tokenizer.ggml.model or .pre is not one we know. Texts stay views
 * into the mapping, so the Gguf must outlive the tokenizer.
 */
LW_CHECK bool tok_new(const Gguf *gguf, Tokenizer **ret_tokenizer, Error *error);
void tok_free(Tokenizer *tokenizer);

uint32_t tok_n_vocab(const Tokenizer *tokenizer);
uint32_t tok_max_piece_bytes(const Tokenizer *tokenizer); /* no token stands for more bytes of a text */
enum { TOK_NONE = UINT32_MAX };
uint32_t tok_bos(const Tokenizer *tokenizer); /* TOK_NONE when there is none */
uint32_t tok_eos(const Tokenizer *tokenizer);
bool tok_adds_bos(const Tokenizer *tokenizer);                /* tokenizer.ggml.add_bos_token, or the model's default */
bool tok_is_end(const Tokenizer *tokenizer, uint32_t id);     /* ends generation: EOS, EOT, <|im_end|>, ... */
bool tok_is_special(const Tokenizer *tokenizer, uint32_t id); /* control tokens: never shown in answers */
/* The id whose text is exactly this, or TOK_NONE. */
uint32_t tok_find(const Tokenizer *tokenizer, const char *text, size_t n);

/*
 * Parts of a text that may have ids of their own. find is asked for each of them in turn, with the ids of all that is
 * before it in *list (of which the first n_final are certain): it may append ids that stand for the next *ret_bytes
 * bytes of the text, not beyond the range; 0: the range is text like any other.
 */
typedef struct TokKnown {
    const TextRange *ranges; /* [n_ranges] sorted, disjoint */
    size_t n_ranges;
    bool (*find)(void *arg, const TextRange *range, size_t n_final, TokenList *list, size_t *ret_bytes, Error *error);
    void *arg;
} TokKnown;

typedef struct TokEncode {
    const char *text; /* any bytes; dead ones count as U+FFFD by the maximal-subpart rule, as in the references */
    size_t n;
    const TextRange *trusted; /* sorted, disjoint; control tokens lying wholly inside one are recognised */
    size_t n_trusted;
    bool add_special;      /* BOS (EOS) as the file asks for; one BOS, never two */
    const TokKnown *known; /* NULL: nothing */
} TokEncode;

/*
 * Appends to *list; on failure the list is as it was. Time is O(n log n) also for hostile text. ERR_TOO_LARGE for more
 * than 4 MiB without any break (between letters and blanks, say).
 */
LW_CHECK bool tok_encode(const Tokenizer *tokenizer, const TokEncode *in, TokenList *list, Error *error);

/* The bytes of one token (not necessarily whole code points); with 'special' false, control tokens give 0 bytes. */
LW_CHECK bool tok_piece(const Tokenizer *tokenizer, uint32_t id, bool special, Buffer *out, Error *error);

/*
 * Streaming decode: bytes go out only as whole code points; bytes that can no longer become valid UTF-8 become U+FFFD,
 * by the maximal-subpart rule, so that the joined pieces equal decoding all ids at once. So does NUL, as no request may
 * hold it: an answer with one could not come back.
 */
typedef struct TokStream {
    uint8_t pending[4];
    uint8_t n_pending;
} TokStream;
LW_CHECK bool tok_stream_push(TokStream *stream, const Tokenizer *tokenizer, uint32_t id, bool special, Buffer *out,
                              Error *error);
LW_CHECK bool tok_stream_flush(TokStream *stream, Buffer *out,
                               Error *error); /* at the end: pending bytes become U+FFFD */
