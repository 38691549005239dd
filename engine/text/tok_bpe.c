/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte-level byte pair encoding (tokenizer.ggml.model 'gpt2'). In the file each byte of a token is written as one
 * printable code point: bytes that are printable in Latin-1 as themselves, the other 68 as U+0100 and on, in order.
 */
#include "engine/text/tok_impl.h"
#include "engine/text/tok_queue.h"

#include <stdlib.h>
#include <string.h>

#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_MERGES "tokenizer.ggml.merges"

enum { N_WRITTEN = 256 + 68, DEAD = UINT32_MAX, END = UINT32_MAX };

/* ---- bytes as code points ---- */

static bool writes_itself(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

static void fill_written(TokBpe *bpe)
{
    memset(bpe->byte_of, 0xFF, sizeof bpe->byte_of);
    unsigned next = 256;
    for (unsigned byte = 0; byte < 256; byte++) {
        bpe->written[byte] = (uint16_t)(writes_itself(byte) ? byte : next++);
        bpe->byte_of[bpe->written[byte]] = (int16_t)byte;
    }
}

/* Writes one byte as the file does: 1 or 2 bytes of UTF-8. */
static size_t write_byte(const TokBpe *bpe, uint8_t byte, char *out)
{
    unsigned code = bpe->written[byte];
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xC0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3F));
    return 2;
}

/* A text with any character outside of that alphabet stands for itself. */
static size_t bpe_bytes(const Tokenizer *tokenizer, uint32_t id, uint8_t *out)
{
    TokText text = tok_text(&tokenizer->vocab, id);
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++) {
        unsigned code = (uint8_t)text.data[i];
        if (code >= 0x80) {
            if (code < 0xC2 || code > 0xC5 || i + 1 == text.n || ((uint8_t)text.data[i + 1] & 0xC0) != 0x80) goto raw;
            code = (code & 0x1F) << 6 | ((uint8_t)text.data[++i] & 0x3F);
        }
        if (code >= N_WRITTEN || tokenizer->bpe.byte_of[code] < 0) goto raw;
        out[n++] = (uint8_t)tokenizer->bpe.byte_of[code];
    }
    return n;
raw:
    memcpy(out, text.data, text.n);
    return text.n;
}

/* ---- loading ---- */

/* Plain text must never come out as a control token. */
static bool is_plain(const TokVocab *vocab, uint32_t id)
{
    return vocab->type[id] != TOK_CONTROL && vocab->type[id] != TOK_UNKNOWN;
}

/* A vocabulary may lack bytes its training never saw; without the printable ones it cannot be a byte-level one. */
static bool load_bytes(TokBpe *bpe, const TokVocab *vocab, Error *error)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[2];
        uint32_t id = tok_vocab_find(vocab, (TokText){text, write_byte(bpe, (uint8_t)byte, text)}, (TokText){"", 0});
        bpe->byte_id[byte] = id != TOK_NONE && is_plain(vocab, id) ? id : TOK_NONE;
        bool needed = byte == '\n' || (byte >= 0x20 && byte <= 0x7E);
        if (needed && bpe->byte_id[byte] == TOK_NONE)
            return error_set_param(error, ERR_INVALID, KEY_TOKENS, "key '%s' has no token for byte 0x%02x", KEY_TOKENS,
                                   byte);
    }
    return true;
}

/* The slot that holds the pair's rank, or the free slot where it belongs; false: too many probes. */
static bool find_pair(const TokBpe *bpe, uint32_t left, uint32_t right, uint32_t *ret_slot)
{
    uint64_t hash = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    uint32_t slot = (uint32_t)(hash >> 32) & bpe->mask;
    for (int probe = 0; probe < TOK_MAX_PROBES; probe++, slot = (slot + 1) & bpe->mask) {
        *ret_slot = slot;
        if (!bpe->slots[slot]) return true;
        const TokMerge *merge = &bpe->merges[bpe->slots[slot] - 1];
        if (merge->left == left && merge->right == right) return true;
    }
    return false;
}

/* "left right", both tokens, and so is what they make. */
static bool add_merge(TokBpe *bpe, const TokVocab *vocab, uint32_t rank, GgufString text, Error *error)
{
    const char *space = text.n > 2 ? memchr(text.data + 1, ' ', text.n - 2) : NULL;
    char shown[80];
    TokText left = {text.data, space ? (size_t)(space - text.data) : 0};
    TokText right = {text.data + left.n + 1, text.n - left.n - (space ? 1 : 0)};
    gguf_printable(shown, sizeof shown, text);
    if (!space || memchr(right.data, ' ', right.n))
        return error_set_param(error, ERR_INVALID, KEY_MERGES,
                               "key '%s': merge %u '%s' is not two texts with a blank "
                               "between",
                               KEY_MERGES, rank, shown);
    TokText none = {"", 0};
    TokMerge merge = {tok_vocab_find(vocab, left, none), tok_vocab_find(vocab, right, none),
                      tok_vocab_find(vocab, left, right)};
    if (merge.left == TOK_NONE || merge.right == TOK_NONE || merge.result == TOK_NONE)
        return error_set_param(error, ERR_INVALID, KEY_MERGES,
                               "key '%s': merge %u '%s': a part or the whole is not in " KEY_TOKENS, KEY_MERGES, rank,
                               shown);
    if (!is_plain(vocab, merge.result))
        return error_set_param(error, ERR_INVALID, KEY_MERGES, "key '%s': merge %u '%s' makes a control token",
                               KEY_MERGES, rank, shown);
    uint32_t slot;
    if (!find_pair(bpe, merge.left, merge.right, &slot))
        return error_set_param(error, ERR_INVALID, KEY_MERGES, "key '%s': too many merges share a hash, merge %u",
                               KEY_MERGES, rank);
    if (bpe->slots[slot])
        return error_set_param(error, ERR_INVALID, KEY_MERGES, "key '%s': merge %u '%s' repeats merge %u", KEY_MERGES,
                               rank, shown, bpe->slots[slot] - 1);
    bpe->merges[rank] = merge;
    bpe->slots[slot] = rank + 1;
    return true;
}

static bool load_merges(TokBpe *bpe, const TokVocab *vocab, Arena *arena, const Gguf *gguf, Error *error)
{
    const GgufKv *kv;
    if (!gguf_get_array(gguf, KEY_MERGES, GGUF_STRING, &kv, error)) return false;
    if (kv->n > TOK_MAX_MERGES)
        return error_set_param(error, ERR_TOO_LARGE, KEY_MERGES, "key '%s' has %llu merges, more than %d", KEY_MERGES,
                               (unsigned long long)kv->n, TOK_MAX_MERGES);
    bpe->n_merges = (uint32_t)kv->n;
    bpe->mask = tok_table_mask(bpe->n_merges);
    bpe->merges = arena_array(arena, bpe->n_merges, sizeof *bpe->merges);
    bpe->slots = arena_array(arena, (size_t)bpe->mask + 1, sizeof *bpe->slots);
    if (!bpe->merges || !bpe->slots) return error_set(error, ERR_NO_MEMORY, "no memory for %u merges", bpe->n_merges);
    GgufStringIter iter = {kv->data};
    for (uint32_t rank = 0; rank < bpe->n_merges; rank++)
        if (!add_merge(bpe, vocab, rank, gguf_next_string(&iter), error)) return false;
    return true;
}

static bool bpe_load(Tokenizer *tokenizer, const Gguf *gguf, Error *error)
{
    TokBpe *bpe = &tokenizer->bpe;
    GgufString name;
    const TokPreRow *row;
    if (!gguf_get_string(gguf, "tokenizer.ggml.pre", &name, error) || !tok_pre_find(name, &row, error) ||
        !tok_pre_new(row, &bpe->pre, error))
        return false;
    bpe->ignore_merges = row->ignore_merges;
    tokenizer->vocab.add_bos = row->adds_bos;
    fill_written(bpe);
    return load_bytes(bpe, &tokenizer->vocab, error) &&
           load_merges(bpe, &tokenizer->vocab, &tokenizer->arena, gguf, error);
}

static void bpe_done(Tokenizer *tokenizer)
{
    tok_pre_free(tokenizer->bpe.pre);
}

/* ---- encoding ---- */

typedef struct Symbol {
    uint32_t id, previous, next; /* id DEAD: merged into the one before */
} Symbol;

/*
 * One word is a linked list of symbols. The queue is a binary heap of rank << 32 | position of the left symbol, so
 * equal ranks go from left to right; an entry whose pair is gone by now is passed over when it comes up.
 */
typedef struct BpeRun {
    const Tokenizer *tokenizer;
    TokenList *list;
    TokWork work;  /* of Symbol */
    char *written; /* [max_length + 1] */
} BpeRun;

static void offer_pair(BpeRun *run, uint32_t left, uint32_t right)
{
    const TokBpe *bpe = &run->tokenizer->bpe;
    const Symbol *symbols = run->work.symbols;
    uint32_t slot;
    if (left == END || right == END) return;
    if (find_pair(bpe, symbols[left].id, symbols[right].id, &slot) && bpe->slots[slot])
        tok_queue_push(&run->work.queue, (uint64_t)(bpe->slots[slot] - 1) << 32 | left);
}

/* The token that is the whole word, or TOK_NONE. */
static uint32_t find_word(const BpeRun *run, const char *word, size_t n)
{
    const TokVocab *vocab = &run->tokenizer->vocab;
    size_t length = 0;
    if (n > vocab->max_length) return TOK_NONE;
    for (size_t i = 0; i < n; i++) {
        if (length + 2 > (size_t)vocab->max_length + 1) return TOK_NONE;
        length += write_byte(&run->tokenizer->bpe, (uint8_t)word[i], run->written + length);
    }
    uint32_t id = tok_vocab_find(vocab, (TokText){run->written, length}, (TokText){"", 0});
    return id != TOK_NONE && is_plain(vocab, id) ? id : TOK_NONE;
}

/* Bytes without a token are left out, as the reference does. */
static uint32_t fill_symbols(BpeRun *run, const char *word, size_t n)
{
    Symbol *symbols = run->work.symbols;
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t id = run->tokenizer->bpe.byte_id[(uint8_t)word[i]];
        if (id == TOK_NONE) continue;
        symbols[count] = (Symbol){id, count - 1, count + 1}; /* the first one's previous is END */
        count++;
    }
    if (count) symbols[count - 1].next = END;
    return count;
}

static void merge_all(BpeRun *run)
{
    Symbol *symbols = run->work.symbols;
    while (run->work.queue.n) {
        uint64_t entry = tok_queue_pop(&run->work.queue);
        const TokMerge *merge = &run->tokenizer->bpe.merges[entry >> 32];
        uint32_t left = (uint32_t)entry, right = symbols[left].next;
        if (symbols[left].id != merge->left || right == END || symbols[right].id != merge->right) continue;
        symbols[left].id = merge->result;
        symbols[left].next = symbols[right].next;
        symbols[right].id = DEAD;
        if (symbols[left].next != END) symbols[symbols[left].next].previous = left;
        offer_pair(run, symbols[left].previous, left);
        offer_pair(run, left, symbols[left].next);
    }
}

static bool encode_word(void *arg, const char *word, size_t n, Error *error)
{
    BpeRun *run = arg;
    if (run->tokenizer->bpe.ignore_merges) {
        uint32_t id = find_word(run, word, n);
        if (id != TOK_NONE) return token_list_push(run->list, id, error);
    }
    if (!tok_work_reserve(&run->work, n, sizeof(Symbol), error)) return false;
    uint32_t count = fill_symbols(run, word, n);
    for (uint32_t i = 1; i < count; i++) offer_pair(run, i - 1, i);
    merge_all(run);
    const Symbol *symbols = run->work.symbols;
    for (uint32_t i = 0; i < count; i = symbols[i].next)
        if (!token_list_push(run->list, symbols[i].id, error)) return false;
    return true;
}

static bool bpe_encode(const Tokenizer *tokenizer, const char *text, size_t n, bool goes_on, TokenList *list,
                       Error *error)
{
    (void)goes_on;
    BpeRun run = {.tokenizer = tokenizer, .list = list};
    if (tokenizer->bpe.ignore_merges) {
        run.written = malloc((size_t)tokenizer->vocab.max_length + 1);
        if (!run.written) return error_set(error, ERR_NO_MEMORY, "no memory to tokenize");
    }
    bool ok = tok_pre_split(tokenizer->bpe.pre, text, n, encode_word, &run, error);
    tok_work_done(&run.work);
    free(run.written);
    return ok;
}

const TokModel tok_model_bpe = {"gpt2", bpe_load, bpe_done, bpe_encode, bpe_bytes};
