/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/tok_impl.h"

#include <string.h>

#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_TYPES "tokenizer.ggml.token_type"
#define KEY_BOS "tokenizer.ggml.bos_token_id"
#define KEY_EOS "tokenizer.ggml.eos_token_id"

static const struct {
    const char *key;
    bool ends;
} id_keys[] = {
    {KEY_BOS, false},
    {KEY_EOS, true},
    {"tokenizer.ggml.eot_token_id", true},
    {"tokenizer.ggml.eom_token_id", true},
};

/* Control tokens with these texts end an answer in the chat formats of the known model families. */
static const char *const end_texts[] = {
    "<|im_end|>",    "<|eot_id|>",         "<|eom_id|>",    "<|endoftext|>", "<|end_of_text|>", "<|end|>",
    "<end_of_turn>", "<end_of_utterance>", "<eos>",         "</s>",          "<EOT>",           "[EOS]",
    "[EOT]",         "<|fim_pad|>",        "<|repo_name|>", "<|file_sep|>",  "<|return|>",      "<|call|>",
};

uint32_t tok_table_mask(uint32_t n)
{
    uint32_t size = 16;
    while (size < 2 * n) size *= 2;
    return size - 1;
}

static uint64_t hash_bytes(uint64_t hash, TokText text)
{
    for (size_t i = 0; i < text.n; i++) hash = (hash ^ (uint8_t)text.data[i]) * 0x100000001B3u; /* FNV-1a */
    return hash;
}

static uint32_t hash_text(TokText first, TokText second)
{
    uint64_t hash = hash_bytes(hash_bytes(0xCBF29CE484222325u, first), second);
    return (uint32_t)(hash ^ hash >> 32);
}

TokText tok_text(const TokVocab *vocab, uint32_t id)
{
    return (TokText){vocab->base + vocab->offset[id], vocab->length[id]};
}

/* The slot that holds the joined text, or the free slot where it belongs; false: too many probes. */
static bool find_slot(const TokVocab *vocab, TokText first, TokText second, uint32_t *ret_slot)
{
    uint32_t slot = hash_text(first, second) & vocab->mask;
    for (int probe = 0; probe < TOK_MAX_PROBES; probe++, slot = (slot + 1) & vocab->mask) {
        *ret_slot = slot;
        if (!vocab->slots[slot]) return true;
        TokText text = tok_text(vocab, vocab->slots[slot] - 1);
        if (text.n == first.n + second.n && !memcmp(text.data, first.data, first.n) &&
            !memcmp(text.data + first.n, second.data, second.n))
            return true;
    }
    return false;
}

uint32_t tok_vocab_find(const TokVocab *vocab, TokText first, TokText second)
{
    uint32_t slot;
    if (!find_slot(vocab, first, second, &slot) || !vocab->slots[slot]) return TOK_NONE;
    return vocab->slots[slot] - 1;
}

static bool add_token(TokVocab *vocab, uint32_t id, GgufString string, Error *error)
{
    size_t offset = (size_t)(string.data - vocab->base);
    if (string.n > TOK_MAX_TEXT_BYTES)
        return error_set_param(error, ERR_TOO_LARGE, KEY_TOKENS, "key '%s': token %u has %zu bytes, more than %d",
                               KEY_TOKENS, id, string.n, TOK_MAX_TEXT_BYTES);
    if (offset > UINT32_MAX)
        return error_set_param(error, ERR_TOO_LARGE, KEY_TOKENS, "key '%s': the texts take more than 4 GiB",
                               KEY_TOKENS);
    vocab->offset[id] = (uint32_t)offset;
    vocab->length[id] = (uint16_t)string.n;
    if (string.n > vocab->max_length) vocab->max_length = (uint32_t)string.n;
    if (!string.n) return true;
    uint32_t slot;
    if (!find_slot(vocab, tok_text(vocab, id), (TokText){"", 0}, &slot))
        return error_set_param(error, ERR_INVALID, KEY_TOKENS, "key '%s': too many texts share a hash, token %u",
                               KEY_TOKENS, id);
    if (vocab->slots[slot])
        return error_set_param(error, ERR_INVALID, KEY_TOKENS, "key '%s': token %u has the text of token %u",
                               KEY_TOKENS, id, vocab->slots[slot] - 1);
    vocab->slots[slot] = id + 1;
    return true;
}

static bool load_types(TokVocab *vocab, const Gguf *gguf, Error *error)
{
    memset(vocab->type, TOK_NORMAL, vocab->n);
    if (!gguf_find(gguf, KEY_TYPES)) return true;
    const GgufKv *kv;
    if (!gguf_get_array(gguf, KEY_TYPES, GGUF_I32, &kv, error)) return false;
    if (kv->n != vocab->n)
        return error_set_param(error, ERR_INVALID, KEY_TYPES, "key '%s' has %llu elements, but there are %u tokens",
                               KEY_TYPES, (unsigned long long)kv->n, vocab->n);
    for (uint32_t id = 0; id < vocab->n; id++) {
        int64_t type = gguf_int_at(kv, id);
        if (type < 0 || type >= TOK_TYPES)
            return error_set_param(error, ERR_INVALID, KEY_TYPES, "key '%s': token %u has the unknown type %lld",
                                   KEY_TYPES, id, (long long)type);
        vocab->type[id] = (uint8_t)type;
    }
    return true;
}

bool tok_vocab_load(TokVocab *vocab, Arena *arena, const Gguf *gguf, Error *error)
{
    const GgufKv *kv;
    if (!gguf_get_array(gguf, KEY_TOKENS, GGUF_STRING, &kv, error)) return false;
    if (kv->n == 0 || kv->n > TOK_MAX_VOCAB)
        return error_set_param(error, kv->n ? ERR_TOO_LARGE : ERR_INVALID, KEY_TOKENS,
                               "key '%s' has %llu tokens; 1 to %d are possible", KEY_TOKENS, (unsigned long long)kv->n,
                               TOK_MAX_VOCAB);
    vocab->n = (uint32_t)kv->n;
    vocab->base = (const char *)kv->data;
    vocab->mask = tok_table_mask(vocab->n);
    vocab->offset = arena_array(arena, vocab->n, sizeof *vocab->offset);
    vocab->length = arena_array(arena, vocab->n, sizeof *vocab->length);
    vocab->type = arena_array(arena, vocab->n, sizeof *vocab->type);
    vocab->ends = arena_array(arena, vocab->n, sizeof *vocab->ends);
    vocab->slots = arena_array(arena, (size_t)vocab->mask + 1, sizeof *vocab->slots);
    if (!vocab->offset || !vocab->length || !vocab->type || !vocab->ends || !vocab->slots)
        return error_set(error, ERR_NO_MEMORY, "no memory for a vocabulary of %u tokens", vocab->n);
    GgufStringIter iter = {kv->data};
    for (uint32_t id = 0; id < vocab->n; id++)
        if (!add_token(vocab, id, gguf_next_string(&iter), error)) return false;
    return load_types(vocab, gguf, error);
}

/* Reads the ids that name tokens; a file without token types at least has these as control tokens. */
static uint32_t find_control(const TokVocab *vocab, const char *text)
{
    uint32_t id = tok_vocab_find(vocab, (TokText){text, strlen(text)}, (TokText){"", 0});
    return id != TOK_NONE && vocab->type[id] == TOK_CONTROL ? id : TOK_NONE;
}

static bool load_ids(TokVocab *vocab, const Gguf *gguf, uint32_t *ids, Error *error)
{
    bool typed = gguf_find(gguf, KEY_TYPES);
    for (size_t i = 0; i < sizeof id_keys / sizeof *id_keys; i++) {
        ids[i] = TOK_NONE;
        if (!gguf_find(gguf, id_keys[i].key)) continue;
        if (!gguf_get_u32(gguf, id_keys[i].key, &ids[i], error)) return false;
        if (ids[i] >= vocab->n)
            return error_set_param(error, ERR_INVALID, id_keys[i].key, "key '%s' is %u, but there are %u tokens",
                                   id_keys[i].key, ids[i], vocab->n);
        if (id_keys[i].ends) vocab->ends[ids[i]] = true;
        if (!typed) vocab->type[ids[i]] = TOK_CONTROL;
    }
    return true;
}

bool tok_vocab_load_rules(TokVocab *vocab, const Gguf *gguf, Error *error)
{
    uint32_t ids[sizeof id_keys / sizeof *id_keys];
    if (!load_ids(vocab, gguf, ids, error) ||
        !gguf_opt_bool(gguf, "tokenizer.ggml.add_bos_token", &vocab->add_bos, error) ||
        !gguf_opt_bool(gguf, "tokenizer.ggml.add_eos_token", &vocab->add_eos, error))
        return false;
    vocab->bos = ids[0];
    vocab->eos = ids[1];
    if (vocab->add_bos && vocab->bos == TOK_NONE)
        return error_set_param(error, ERR_INVALID, KEY_BOS, "key '%s' is absent, but a BOS token is to be added",
                               KEY_BOS);
    if (vocab->add_eos && vocab->eos == TOK_NONE)
        return error_set_param(error, ERR_INVALID, KEY_EOS, "key '%s' is absent, but an EOS token is to be added",
                               KEY_EOS);
    for (size_t i = 0; i < sizeof end_texts / sizeof *end_texts; i++) {
        uint32_t id = find_control(vocab, end_texts[i]);
        if (id != TOK_NONE) vocab->ends[id] = true;
    }
    /* Where these two are, it ends a message, of which an answer may have several. */
    uint32_t id = find_control(vocab, "<|end|>");
    if (id != TOK_NONE && find_control(vocab, "<|return|>") != TOK_NONE && find_control(vocab, "<|call|>") != TOK_NONE)
        vocab->ends[id] = false;
    return true;
}
