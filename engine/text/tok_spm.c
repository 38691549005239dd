/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SentencePiece's byte pair encoding (tokenizer.ggml.model 'llama'): blanks are written as U+2581, neighbours merge
 * while what they make is a token, the highest score first and then the leftmost; characters left without a token
 * become the tokens of their bytes.
 */
#include "engine/text/tok_impl.h"
#include "engine/text/tok_queue.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_SCORES "tokenizer.ggml.scores"
#define KEY_UNKNOWN "tokenizer.ggml.unknown_token_id"
#define BLANK "\xE2\x96\x81"

enum { BLANK_BYTES = 3, BYTE_TEXT_BYTES = 6, END = UINT32_MAX };

/* ---- tokens ---- */

/* What plain text may become: neither control tokens, nor bytes that somebody spelled as <0x41>. */
static bool is_plain(const TokVocab *vocab, uint32_t id)
{
    TokType type = vocab->type[id];
    return type != TOK_CONTROL && type != TOK_UNKNOWN && type != TOK_BYTE;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The value of "<0x41>", or -1. */
static int byte_value(TokText text)
{
    if (text.n != BYTE_TEXT_BYTES || memcmp(text.data, "<0x", 3) || text.data[5] != '>') return -1;
    int high = hex_digit(text.data[3]), low = hex_digit(text.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static size_t spm_bytes(const Tokenizer *tokenizer, uint32_t id, uint8_t *out)
{
    TokText text = tok_text(&tokenizer->vocab, id);
    int byte = tokenizer->vocab.type[id] == TOK_BYTE ? byte_value(text) : -1;
    size_t n = 0;
    if (byte >= 0) {
        *out = (uint8_t)byte;
        return 1;
    }
    for (size_t i = 0; i < text.n;) {
        bool is_blank = text.n - i >= BLANK_BYTES && !memcmp(text.data + i, BLANK, BLANK_BYTES);
        out[n++] = is_blank ? ' ' : (uint8_t)text.data[i];
        i += is_blank ? BLANK_BYTES : 1;
    }
    return n;
}

/* ---- loading ---- */

/* Numbers in the order of the scores, the highest first. */
static uint32_t order_of(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 counts as 0 */
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? bits : ~bits & 0x7FFFFFFF;
}

static bool load_scores(TokSpm *spm, const TokVocab *vocab, Arena *arena, const Gguf *gguf, Error *error)
{
    const GgufKv *kv;
    if (!gguf_get_array(gguf, KEY_SCORES, GGUF_F32, &kv, error)) return false;
    if (kv->n != vocab->n)
        return error_set_param(error, ERR_INVALID, KEY_SCORES, "key '%s' has %llu elements, but there are %u tokens",
                               KEY_SCORES, (unsigned long long)kv->n, vocab->n);
    spm->order = arena_array(arena, vocab->n, sizeof *spm->order);
    if (!spm->order) return error_set(error, ERR_NO_MEMORY, "no memory for %u scores", vocab->n);
    for (uint32_t id = 0; id < vocab->n; id++) {
        float score;
        memcpy(&score, kv->data + id * sizeof score, sizeof score);
        if (!isfinite(score))
            return error_set_param(error, ERR_INVALID, KEY_SCORES, "key '%s': the score of token %u is not a number",
                                   KEY_SCORES, id);
        spm->order[id] = order_of(score);
    }
    return true;
}

/* Notes which bytes have a blank after them inside of a token; elsewhere a text can be cut before its blanks. */
static bool scan_tokens(TokSpm *spm, const TokVocab *vocab, Error *error)
{
    for (uint32_t id = 0; id < vocab->n; id++) {
        TokText text = tok_text(vocab, id);
        if (!is_plain(vocab, id)) continue;
        if (text.n > TOK_MAX_SPM_BYTES)
            return error_set_param(error, ERR_TOO_LARGE, KEY_TOKENS, "key '%s': token %u has %zu bytes, more than %d",
                                   KEY_TOKENS, id, text.n, TOK_MAX_SPM_BYTES);
        for (size_t i = 1; i + BLANK_BYTES <= text.n; i++)
            if (!memcmp(text.data + i, BLANK, BLANK_BYTES)) spm->joins[(uint8_t)text.data[i - 1]] = true;
    }
    return true;
}

static bool load_bytes(TokSpm *spm, const TokVocab *vocab, const Gguf *gguf, Error *error)
{
    bool has_all = true;
    for (unsigned byte = 0; byte < 256; byte++) spm->byte_id[byte] = TOK_NONE;
    for (uint32_t id = 0; id < vocab->n; id++) {
        int byte = vocab->type[id] == TOK_BYTE ? byte_value(tok_text(vocab, id)) : -1;
        if (byte >= 0) spm->byte_id[byte] = id;
    }
    for (unsigned byte = 0; byte < 256; byte++) has_all = has_all && spm->byte_id[byte] != TOK_NONE;
    spm->unknown = TOK_NONE;
    if (has_all) return true;
    if (!gguf_get_u32(gguf, KEY_UNKNOWN, &spm->unknown, error)) return false;
    return spm->unknown < vocab->n ||
           error_set_param(error, ERR_INVALID, KEY_UNKNOWN, "key '%s' is %u, but there are %u tokens", KEY_UNKNOWN,
                           spm->unknown, vocab->n);
}

static bool spm_load(Tokenizer *tokenizer, const Gguf *gguf, Error *error)
{
    TokSpm *spm = &tokenizer->spm;
    tokenizer->vocab.add_bos = true;
    spm->add_blank = true;
    return load_scores(spm, &tokenizer->vocab, &tokenizer->arena, gguf, error) &&
           scan_tokens(spm, &tokenizer->vocab, error) && load_bytes(spm, &tokenizer->vocab, gguf, error) &&
           gguf_opt_bool(gguf, "tokenizer.ggml.add_space_prefix", &spm->add_blank, error);
}

static void spm_done(Tokenizer *tokenizer)
{
    (void)tokenizer; /* all of it is in the arena */
}

/* ---- encoding ---- */

typedef struct Symbol {
    uint32_t id;                       /* TOK_NONE: a character without a token */
    uint32_t pair;                     /* what it makes with the next one, or TOK_NONE */
    uint32_t start, n, previous, next; /* n 0: merged into the one before */
} Symbol;

/*
 * One piece of the text is a linked list of symbols. A queue's entry is the order of a merge << 32 | its left symbol;
 * it counts while that symbol's pair still has that order.
 */
typedef struct SpmRun {
    const Tokenizer *tokenizer;
    TokenList *list;
    const char *text;
    TokWork work; /* of Symbol */
} SpmRun;

static uint32_t find_plain(const SpmRun *run, size_t start, size_t n)
{
    const TokVocab *vocab = &run->tokenizer->vocab;
    if (n > vocab->max_length || n > TOK_MAX_SPM_BYTES) return TOK_NONE;
    uint32_t id = tok_vocab_find(vocab, (TokText){run->text + start, n}, (TokText){"", 0});
    return id != TOK_NONE && is_plain(vocab, id) ? id : TOK_NONE;
}

static void offer_pair(SpmRun *run, uint32_t left)
{
    if (left == END) return;
    Symbol *symbols = run->work.symbols, *symbol = &symbols[left];
    symbol->pair = TOK_NONE;
    if (symbol->next == END) return;
    symbol->pair = find_plain(run, symbol->start, (size_t)symbol->n + symbols[symbol->next].n);
    if (symbol->pair != TOK_NONE)
        tok_queue_push(&run->work.queue, (uint64_t)run->tokenizer->spm.order[symbol->pair] << 32 | left);
}

/* One symbol a character; the text is valid UTF-8. */
static uint32_t fill_symbols(SpmRun *run, size_t n)
{
    Symbol *symbols = run->work.symbols;
    uint32_t count = 0;
    for (size_t i = 0; i < n;) {
        size_t end = i + 1;
        while (end < n && ((uint8_t)run->text[end] & 0xC0) == 0x80) end++;
        symbols[count] =
            (Symbol){find_plain(run, i, end - i), TOK_NONE,  (uint32_t)i,
                     (uint32_t)(end - i),         count - 1, count + 1}; /* the first one's previous is END */
        count++;
        i = end;
    }
    symbols[count - 1].next = END;
    return count;
}

static void merge_all(SpmRun *run)
{
    Symbol *symbols = run->work.symbols;
    while (run->work.queue.n) {
        uint64_t entry = tok_queue_pop(&run->work.queue);
        uint32_t left = (uint32_t)entry;
        Symbol *symbol = &symbols[left];
        if (!symbol->n || symbol->pair == TOK_NONE || run->tokenizer->spm.order[symbol->pair] != entry >> 32) continue;
        Symbol *right = &symbols[symbol->next];
        symbol->id = symbol->pair;
        symbol->n += right->n;
        symbol->next = right->next;
        right->n = 0;
        if (symbol->next != END) symbols[symbol->next].previous = left;
        offer_pair(run, symbol->previous);
        offer_pair(run, left);
    }
}

static bool push_symbol(const SpmRun *run, const Symbol *symbol, Error *error)
{
    const TokSpm *spm = &run->tokenizer->spm;
    if (symbol->id != TOK_NONE) return token_list_push(run->list, symbol->id, error);
    for (uint32_t i = 0; i < symbol->n; i++)
        if (spm->byte_id[(uint8_t)run->text[symbol->start + i]] == TOK_NONE)
            return token_list_push(run->list, spm->unknown, error);
    for (uint32_t i = 0; i < symbol->n; i++)
        if (!token_list_push(run->list, spm->byte_id[(uint8_t)run->text[symbol->start + i]], error)) return false;
    return true;
}

static bool encode_piece(SpmRun *run, const char *text, size_t n, Error *error)
{
    if (!tok_work_reserve(&run->work, n, sizeof(Symbol), error)) return false;
    run->text = text;
    uint32_t count = fill_symbols(run, n);
    for (uint32_t i = 0; i < count; i++) offer_pair(run, i);
    merge_all(run);
    const Symbol *symbols = run->work.symbols;
    for (uint32_t i = 0; i != END; i = symbols[i].next)
        if (!push_symbol(run, &symbols[i], error)) return false;
    return true;
}

/* The text with its blanks as the tokens have them; for free(). */
static char *write_blanks(const char *text, size_t n, bool add_blank, size_t *ret_n)
{
    size_t written_n = n + (add_blank ? BLANK_BYTES : 0);
    for (size_t i = 0; i < n; i++)
        if (text[i] == ' ') written_n += BLANK_BYTES - 1;
    char *written = malloc(written_n), *at = written;
    if (!written) return NULL;
    if (add_blank) {
        memcpy(at, BLANK, BLANK_BYTES);
        at += BLANK_BYTES;
    }
    for (size_t i = 0; i < n; i++) {
        if (text[i] != ' ') {
            *at++ = text[i];
        } else {
            memcpy(at, BLANK, BLANK_BYTES);
            at += BLANK_BYTES;
        }
    }
    *ret_n = written_n;
    return written;
}

static bool spm_encode(const Tokenizer *tokenizer, const char *text, size_t n, bool goes_on, TokenList *list,
                       Error *error)
{
    SpmRun run = {.tokenizer = tokenizer, .list = list};
    size_t written_n = 0, from = 0;
    char *written = write_blanks(text, n, tokenizer->spm.add_blank && !goes_on, &written_n);
    if (!written) return error_set(error, ERR_NO_MEMORY, "no memory to tokenize %zu bytes", n);
    bool ok = true;
    for (size_t i = 1; ok && i <= written_n; i++) {
        bool cut = i == written_n || (written_n - i >= BLANK_BYTES && !memcmp(written + i, BLANK, BLANK_BYTES) &&
                                      !tokenizer->spm.joins[(uint8_t)written[i - 1]]);
        if (!cut) continue;
        ok = encode_piece(&run, written + from, i - from, error);
        from = i;
    }
    tok_work_done(&run.work);
    free(written);
    return ok;
}

const TokModel tok_model_spm = {"llama", spm_load, spm_done, spm_encode, spm_bytes};
