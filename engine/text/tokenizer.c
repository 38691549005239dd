/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/tok_impl.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

static const TokModel *const models[] = {&tok_model_bpe, &tok_model_spm};

/* ---- token lists ---- */

void token_list_done(TokenList *list)
{
    free(list->ids);
    *list = (TokenList){0};
}

bool token_list_push(TokenList *list, uint32_t id, Error *error)
{
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        uint32_t *ids = capacity > SIZE_MAX / sizeof *ids ? NULL : realloc(list->ids, capacity * sizeof *ids);
        if (!ids) return error_set(error, ERR_NO_MEMORY, "no memory for %zu tokens", capacity);
        list->ids = ids;
        list->capacity = capacity;
    }
    list->ids[list->n++] = id;
    return true;
}

/* ---- loading ---- */

static bool find_model(const Gguf *gguf, const TokModel **ret_model, Error *error)
{
    GgufString name;
    if (!gguf_get_string(gguf, "tokenizer.ggml.model", &name, error)) return false;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (strlen(models[i]->name) != name.n || memcmp(models[i]->name, name.data, name.n)) continue;
        *ret_model = models[i];
        return true;
    }
    char shown[64];
    gguf_printable(shown, sizeof shown, name);
    return error_set_param(error, ERR_UNSUPPORTED, "tokenizer.ggml.model",
                           "key 'tokenizer.ggml.model': the tokenizer '%s' is not known (known: gpt2, llama)", shown);
}

bool tok_new(const Gguf *gguf, Tokenizer **ret_tokenizer, Error *error)
{
    const TokModel *model = NULL;
    if (!find_model(gguf, &model, error)) return false;
    Tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer) return error_set(error, ERR_NO_MEMORY, "no memory for a tokenizer");
    arena_init(&tokenizer->arena, 1 << 16, SIZE_MAX);
    tokenizer->model = model;
    if (!tok_vocab_load(&tokenizer->vocab, &tokenizer->arena, gguf, error) || !model->load(tokenizer, gguf, error) ||
        !tok_vocab_load_rules(&tokenizer->vocab, gguf, error) ||
        !tok_specials_load(&tokenizer->specials, &tokenizer->vocab, &tokenizer->arena, error)) {
        tok_free(tokenizer);
        return false;
    }
    *ret_tokenizer = tokenizer;
    return true;
}

void tok_free(Tokenizer *tokenizer)
{
    if (!tokenizer) return;
    tokenizer->model->done(tokenizer);
    arena_done(&tokenizer->arena);
    free(tokenizer);
}

/* ---- questions ---- */

uint32_t tok_n_vocab(const Tokenizer *tokenizer)
{
    return tokenizer->vocab.n;
}

uint32_t tok_max_piece_bytes(const Tokenizer *tokenizer)
{
    return tokenizer->vocab.max_length; /* as written in the file, which is never shorter than what it stands for */
}

uint32_t tok_bos(const Tokenizer *tokenizer)
{
    return tokenizer->vocab.bos;
}

uint32_t tok_eos(const Tokenizer *tokenizer)
{
    return tokenizer->vocab.eos;
}

bool tok_adds_bos(const Tokenizer *tokenizer)
{
    return tokenizer->vocab.add_bos;
}

bool tok_is_end(const Tokenizer *tokenizer, uint32_t id)
{
    return id < tokenizer->vocab.n && tokenizer->vocab.ends[id];
}

bool tok_is_special(const Tokenizer *tokenizer, uint32_t id)
{
    if (id >= tokenizer->vocab.n) return false;
    return tokenizer->vocab.type[id] == TOK_CONTROL || tokenizer->vocab.type[id] == TOK_UNKNOWN;
}

uint32_t tok_find(const Tokenizer *tokenizer, const char *text, size_t n)
{
    return tok_vocab_find(&tokenizer->vocab, (TokText){text, n}, (TokText){"", 0});
}

/* ---- encoding ---- */

/* One tok_encode: how far it has come. */
typedef struct Encoding {
    const Tokenizer *tokenizer;
    const TokEncode *in;
    TokenList *list;
    size_t from;    /* of the text */
    bool goes_on;   /* there is text directly before it, not a special token */
    size_t range;   /* of in->trusted */
    size_t known;   /* of in->known */
    size_t n_again; /* bytes that were encoded in vain, up to ranges that nothing was known of */
} Encoding;

/* From where it has come to, up to 'end'; does not move. */
static bool encode_plain(const Encoding *encoding, size_t end, Error *error)
{
    const char *text = encoding->in->text + encoding->from;
    const TokModel *model = encoding->tokenizer->model;
    size_t n = end - encoding->from, cut;
    if (!n) return true;
    if (utf8_valid((const uint8_t *)text, n))
        return model->encode(encoding->tokenizer, text, n, encoding->goes_on, encoding->list, error);
    size_t repaired_n = utf8_repair((const uint8_t *)text, n, true, NULL, &cut);
    char *repaired = malloc(repaired_n);
    if (!repaired) return error_set(error, ERR_NO_MEMORY, "no memory for %zu bytes of text", repaired_n);
    utf8_repair((const uint8_t *)text, n, true, repaired, &cut);
    bool ok = model->encode(encoding->tokenizer, repaired, repaired_n, encoding->goes_on, encoding->list, error);
    free(repaired);
    return ok;
}

/*
 * The first range that begins up to 'end' and is known, with the text before it; *ret_found: there was one. What was
 * encoded up to ranges that are not is given up again, for they are one text with what is before them; that may cost
 * as much as the whole text once more.
 */
static bool encode_known(Encoding *encoding, size_t end, bool *ret_found, Error *error)
{
    const TokKnown *known = encoding->in->known;
    TokenList *list = encoding->list;
    *ret_found = false;
    for (; known && encoding->known < known->n_ranges && known->ranges[encoding->known].start <= end;
         encoding->known++) {
        const TextRange *range = &known->ranges[encoding->known];
        size_t n_final = list->n, n_bytes = 0;
        if (range->start < encoding->from || encoding->n_again > encoding->in->n) continue;
        if (!encode_plain(encoding, range->start, error) ||
            !known->find(known->arg, range, n_final, list, &n_bytes, error))
            return false;
        *ret_found = n_bytes > 0;
        if (*ret_found) {
            encoding->from = range->start + n_bytes;
            encoding->goes_on = true;
            encoding->known++;
            return true;
        }
        list->n = n_final;
        encoding->n_again += range->start - encoding->from;
    }
    return true;
}

/* BOS and EOS count as there when the text itself begins or ends with the special token. */
static bool encode_all(Encoding *encoding, Error *error)
{
    const TokEncode *in = encoding->in;
    const TokVocab *vocab = &encoding->tokenizer->vocab;
    TokHit hit = {0};
    bool found = tok_specials_next(encoding->tokenizer, in, 0, &encoding->range, &hit);
    bool has_bos = found && hit.start == 0 && hit.id == vocab->bos, has_eos = false, is_known;
    if (in->add_special && vocab->add_bos && !has_bos && !token_list_push(encoding->list, vocab->bos, error))
        return false;
    for (;;) {
        if (!encode_known(encoding, found ? hit.start : in->n, &is_known, error)) return false;
        if (is_known && (!found || hit.start >= encoding->from)) continue;
        if (!is_known) {
            if (!encode_plain(encoding, found ? hit.start : in->n, error)) return false;
            if (!found) break;
            if (!token_list_push(encoding->list, hit.id, error)) return false;
            has_eos = hit.end == in->n && hit.id == vocab->eos;
            encoding->from = hit.end;
            encoding->goes_on = false;
        }
        found = tok_specials_next(encoding->tokenizer, in, encoding->from, &encoding->range, &hit);
    }
    return !in->add_special || !vocab->add_eos || has_eos || token_list_push(encoding->list, vocab->eos, error);
}

bool tok_encode(const Tokenizer *tokenizer, const TokEncode *in, TokenList *list, Error *error)
{
    size_t before = list->n;
    Encoding encoding = {.tokenizer = tokenizer, .in = in, .list = list};
    if (encode_all(&encoding, error)) return true;
    list->n = before;
    return false;
}
