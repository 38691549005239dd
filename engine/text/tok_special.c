/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/tok_impl.h"

#include <stdlib.h>
#include <string.h>

static bool is_special(uint8_t type)
{
    return type == TOK_CONTROL || type == TOK_UNKNOWN || type == TOK_USER_DEFINED;
}

/* For qsort_r: by bytes, a prefix before what it begins. */
static int compare_texts(const void *a, const void *b, void *arg)
{
    TokText x = tok_text(arg, *(const uint32_t *)a), y = tok_text(arg, *(const uint32_t *)b);
    int order = memcmp(x.data, y.data, x.n < y.n ? x.n : y.n);
    return order ? order : (x.n > y.n) - (x.n < y.n);
}

bool tok_specials_load(TokSpecials *specials, const TokVocab *vocab, Arena *arena, Error *error)
{
    for (uint32_t id = 0; id < vocab->n; id++) {
        if (!is_special(vocab->type[id]) || !vocab->length[id]) continue;
        if (vocab->length[id] > TOK_MAX_SPECIAL_BYTES)
            return error_set_param(error, ERR_TOO_LARGE, "tokenizer.ggml.tokens",
                                   "key 'tokenizer.ggml.tokens': special token %u has %u bytes, more than %d", id,
                                   vocab->length[id], TOK_MAX_SPECIAL_BYTES);
        specials->n++;
    }
    specials->ids = arena_array(arena, specials->n, sizeof *specials->ids);
    if (!specials->ids) return error_set(error, ERR_NO_MEMORY, "no memory for %u special tokens", specials->n);
    uint32_t n = 0;
    for (uint32_t id = 0; id < vocab->n; id++)
        if (is_special(vocab->type[id]) && vocab->length[id]) specials->ids[n++] = id;
    qsort_r(specials->ids, n, sizeof *specials->ids, compare_texts, (void *)vocab);
    for (uint32_t i = 0; i < n; i++) specials->first[(uint8_t)*tok_text(vocab, specials->ids[i]).data + 1]++;
    for (int byte = 0; byte < 256; byte++) specials->first[byte + 1] += specials->first[byte];
    return true;
}

/* The first of ids[low..high) whose byte at 'depth' is at least 'byte'; all of them are longer than depth. */
static uint32_t lower_bound(const Tokenizer *tokenizer, uint32_t low, uint32_t high, size_t depth, int byte)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((uint8_t)tok_text(&tokenizer->vocab, tokenizer->specials.ids[middle]).data[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/*
 * User-defined tokens are ordinary words of the vocabulary that no merge makes (runs of blanks, markers): they are
 * found everywhere. The others carry the authority of the chat format and need a trusted range around them.
 */
static bool allowed(const Tokenizer *tokenizer, const TokEncode *in, uint32_t id, size_t start, size_t end,
                    size_t range)
{
    if (tokenizer->vocab.type[id] == TOK_USER_DEFINED) return true;
    return range < in->n_trusted && in->trusted[range].start <= start && end <= in->trusted[range].end;
}

/* The longest special token that begins at 'at'. */
static bool match_at(const Tokenizer *tokenizer, const TokEncode *in, size_t at, size_t range, TokHit *ret_hit)
{
    const TokSpecials *specials = &tokenizer->specials;
    uint32_t low = specials->first[(uint8_t)in->text[at]], high = specials->first[(uint8_t)in->text[at] + 1];
    bool found = false;
    for (size_t depth = 1; low < high; depth++) {
        uint32_t id = specials->ids[low];
        if (tokenizer->vocab.length[id] == depth) {
            if (allowed(tokenizer, in, id, at, at + depth, range)) {
                *ret_hit = (TokHit){at, at + depth, id};
                found = true;
            }
            low++;
        }
        if (at + depth == in->n) break;
        uint8_t byte = (uint8_t)in->text[at + depth];
        low = lower_bound(tokenizer, low, high, depth, byte);
        high = lower_bound(tokenizer, low, high, depth, byte + 1);
    }
    return found;
}

bool tok_specials_next(const Tokenizer *tokenizer, const TokEncode *in, size_t from, size_t *range, TokHit *ret_hit)
{
    const uint32_t *first = tokenizer->specials.first;
    for (size_t at = from; at < in->n; at++) {
        uint8_t byte = (uint8_t)in->text[at];
        if (first[byte] == first[byte + 1]) continue;
        while (*range < in->n_trusted && in->trusted[*range].end <= at) ++*range;
        if (match_at(tokenizer, in, at, *range, ret_hit)) return true;
    }
    return false;
}
