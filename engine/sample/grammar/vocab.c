/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/vocab_impl.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PIECE_BYTES = 1024 }; /* longer ones are left out: no text needs them */

typedef struct Text {
    const uint8_t *bytes;
    uint32_t n, id;
} Text;

static int compare_texts(const void *a, const void *b)
{
    const Text *left = a, *right = b;
    int order = memcmp(left->bytes, right->bytes, left->n < right->n ? left->n : right->n);
    if (order) return order;
    if (left->n != right->n) return left->n < right->n ? -1 : 1;
    return (left->id > right->id) - (left->id < right->id);
}

static uint32_t shared_bytes(const Text *a, const Text *b)
{
    uint32_t n = 0;
    while (n < a->n && n < b->n && a->bytes[n] == b->bytes[n]) n++;
    return n;
}

/* Pieces that a text may hold, in order; *ret_nodes: nodes of their trie. */
static uint32_t sort_texts(const GrammarVocab *vocab, Text *texts, size_t *ret_nodes)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < vocab->n_vocab; id++) {
        size_t bytes = vocab->first[id + 1] - vocab->first[id];
        if (bytes < 1 || bytes > MAX_PIECE_BYTES) continue;
        texts[n++] = (Text){vocab->bytes + vocab->first[id], (uint32_t)bytes, id};
    }
    qsort(texts, n, sizeof *texts, compare_texts);
    *ret_nodes = 1;
    for (uint32_t i = 0; i < n; i++) *ret_nodes += texts[i].n - (i ? shared_bytes(&texts[i - 1], &texts[i]) : 0);
    return n;
}

/* path [depth]: the nodes that are open; those deeper than depth end here. */
static void close_nodes(GrammarVocab *vocab, const uint32_t *path, uint32_t from, uint32_t depth)
{
    for (uint32_t i = depth + 1; i <= from; i++) vocab->nodes[path[i]].after = vocab->n_nodes;
}

static void fill_trie(GrammarVocab *vocab, const Text *texts, uint32_t n)
{
    uint32_t path[MAX_PIECE_BYTES + 1] = {0}, depth = 0;
    vocab->nodes[vocab->n_nodes++] = (TrieNode){0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t shared = i ? shared_bytes(&texts[i - 1], &texts[i]) : 0;
        close_nodes(vocab, path, depth, shared);
        for (depth = shared; depth < texts[i].n; depth++) {
            path[depth + 1] = vocab->n_nodes;
            vocab->nodes[vocab->n_nodes++] = (TrieNode){
                .first_token = vocab->n_tokens, .depth = (uint16_t)(depth + 1), .byte = texts[i].bytes[depth]};
        }
        if (depth > vocab->max_depth) vocab->max_depth = depth;
        vocab->tokens[vocab->n_tokens++] = texts[i].id;
        if (depth > AUTOMATON_ALIKE_BYTES) vocab->long_tokens[vocab->n_long++] = texts[i].id;
    }
    close_nodes(vocab, path, depth, 0);
    vocab->nodes[0].after = vocab->n_nodes;
    vocab->nodes[vocab->n_nodes] = (TrieNode){.first_token = vocab->n_tokens};
}

static bool build_trie(GrammarVocab *vocab, Error *error)
{
    Text *texts = calloc((size_t)vocab->n_vocab + 1, sizeof *texts);
    size_t n_nodes;
    bool ok = texts;
    if (ok) {
        uint32_t n = sort_texts(vocab, texts, &n_nodes);
        ok = n_nodes < UINT32_MAX;
        if (ok) vocab->nodes = calloc(n_nodes + 1, sizeof *vocab->nodes);
        vocab->tokens = calloc((size_t)n + 1, sizeof *vocab->tokens);
        vocab->long_tokens = calloc((size_t)n + 1, sizeof *vocab->long_tokens);
        ok = ok && vocab->nodes && vocab->tokens && vocab->long_tokens;
        if (ok) fill_trie(vocab, texts, n);
    }
    free(texts);
    return ok || error_set(error, ERR_NO_MEMORY, "no memory for the trie of %u tokens", vocab->n_vocab);
}

/* Takes bytes and first. */
static bool make(uint32_t n_vocab, uint8_t *bytes, size_t *first, GrammarVocab **ret_vocab, Error *error)
{
    GrammarVocab *vocab = calloc(1, sizeof *vocab);
    if (!vocab) {
        free(bytes);
        free(first);
        return error_set(error, ERR_NO_MEMORY, "no memory for the trie of %u tokens", n_vocab);
    }
    *vocab = (GrammarVocab){.n_vocab = n_vocab, .n_words = (n_vocab + 63) / 64, .bytes = bytes, .first = first};
    if (!build_trie(vocab, error)) {
        grammar_vocab_free(vocab);
        return false;
    }
    *ret_vocab = vocab;
    return true;
}

bool grammar_vocab_new(const GrammarPieces *pieces, GrammarVocab **ret_vocab, Error *error)
{
    size_t n = pieces->first[pieces->n_vocab];
    uint8_t *bytes = malloc(n + 1);
    size_t *first = malloc(((size_t)pieces->n_vocab + 1) * sizeof *first);
    if (!bytes || !first) {
        free(bytes);
        free(first);
        return error_set(error, ERR_NO_MEMORY, "no memory for the pieces of %u tokens", pieces->n_vocab);
    }
    memcpy(bytes, pieces->bytes, n);
    memcpy(first, pieces->first, ((size_t)pieces->n_vocab + 1) * sizeof *first);
    return make(pieces->n_vocab, bytes, first, ret_vocab, error);
}

bool grammar_vocab_of(const Tokenizer *tokenizer, GrammarVocab **ret_vocab, Error *error)
{
    uint32_t n = tok_n_vocab(tokenizer);
    size_t *first = calloc((size_t)n + 1, sizeof *first);
    Buffer bytes;
    buffer_init(&bytes, SIZE_MAX / 2);
    bool ok = first || error_set(error, ERR_NO_MEMORY, "no memory for the pieces of %u tokens", n);
    for (uint32_t id = 0; ok && id < n; id++) {
        ok = tok_is_special(tokenizer, id) || tok_is_end(tokenizer, id) ||
             tok_piece(tokenizer, id, false, &bytes, error);
        first[id + 1] = bytes.n;
    }
    char *taken = ok ? buffer_take(&bytes) : NULL;
    if (ok && !taken) ok = error_set(error, ERR_NO_MEMORY, "no memory for the pieces of %u tokens", n);
    buffer_done(&bytes);
    if (ok) return make(n, (uint8_t *)taken, first, ret_vocab, error);
    free(first);
    return false;
}

void grammar_vocab_free(GrammarVocab *vocab)
{
    if (!vocab) return;
    free(vocab->nodes);
    free(vocab->tokens);
    free(vocab->long_tokens);
    free(vocab->bytes);
    free(vocab->first);
    free(vocab);
}

uint32_t grammar_vocab_size(const GrammarVocab *vocab)
{
    return vocab->n_vocab;
}

const uint8_t *grammar_vocab_piece(const GrammarVocab *vocab, uint32_t id, size_t *ret_n)
{
    *ret_n = id < vocab->n_vocab ? vocab->first[id + 1] - vocab->first[id] : 0;
    return *ret_n ? vocab->bytes + vocab->first[id] : NULL;
}
