/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/guide.h"

#include "base/utf8.h"
#include "engine/sample/grammar/vocab.h"

#include <stdlib.h>
#include <string.h>

bool guide_open(Guide *guide, Grammar *grammar, const Tokenizer *tokenizer, Error *error)
{
    Guide made = {.tokenizer = tokenizer};
    if (grammar) {
        made.vocab = grammar_vocab(grammar);
        made.words = calloc(((size_t)tok_n_vocab(tokenizer) + 63) / 64, sizeof *made.words);
        if (!made.words) return error_set(error, ERR_NO_MEMORY, "no memory for a grammar's mask");
        if (!matcher_new(grammar, &made.matcher, error)) {
            free(made.words);
            return false;
        }
    }
    *guide = made;
    return true;
}

void guide_done(Guide *guide)
{
    matcher_free(guide->matcher);
    free(guide->words);
    token_list_done(&guide->scratch);
    *guide = (Guide){0};
}

/* ---- ids ---- */

static bool is_ender(const Answer *answer, uint32_t id)
{
    for (uint32_t i = 0; i < answer->n_enders; i++)
        if (answer->enders[i] == id) return true;
    return false;
}

static bool is_control(const Tokenizer *tokenizer, uint32_t id)
{
    return tok_is_special(tokenizer, id) || tok_is_end(tokenizer, id);
}

/* What ends the answer is allowed where the text is whole, or where the grammar asks for its id as the last thing. */
static bool mask_enders(Guide *guide, const Answer *answer, Error *error)
{
    bool is_whole = matcher_may_end(guide->matcher) && answer_may_end(answer);
    for (uint32_t i = 0; i < answer->n_enders; i++) {
        uint32_t id = answer->enders[i];
        bool may_end = is_whole;
        if (id >= tok_n_vocab(guide->tokenizer)) continue;
        uint64_t *word = &guide->words[id / 64], bit = UINT64_C(1) << id % 64;
        if (!may_end && (*word & bit) && is_control(guide->tokenizer, id) &&
            !matcher_may_end_by(guide->matcher, id, &may_end, error))
            return false;
        *word = may_end ? *word | bit : *word & ~bit;
    }
    return true;
}

/* How many ids are allowed; *ret_one: the first of them. */
static uint32_t count_allowed(const Guide *guide, uint32_t *ret_first)
{
    uint32_t n_words = (tok_n_vocab(guide->tokenizer) + 63) / 64, n = 0;
    for (uint32_t i = 0; i < n_words; i++) {
        if (!guide->words[i]) continue;
        if (!n) *ret_first = i * 64 + (uint32_t)__builtin_ctzll(guide->words[i]);
        n += (uint32_t)__builtin_popcountll(guide->words[i]);
    }
    return n;
}

bool guide_next(Guide *guide, const Answer *answer, GuideStep *ret_step, Error *error)
{
    const uint64_t *words;
    uint32_t n;
    GuideStep step = {.kind = GUIDE_FREE};
    if (!guide->matcher) {
        *ret_step = step;
        return true;
    }
    if (guide->at < guide->n_ahead) {
        *ret_step = (GuideStep){GUIDE_FORCED, guide->ahead[guide->at]};
        return true;
    }
    if (!matcher_mask(guide->matcher, &words, &n, error)) return false;
    memcpy(guide->words, words, ((size_t)tok_n_vocab(guide->tokenizer) + 63) / 64 * sizeof *words);
    if (!mask_enders(guide, answer, error)) return false;
    n = count_allowed(guide, &step.id);
    if (n == 0) step.id = tok_eos(guide->tokenizer);
    if (n == 0 && (step.id == TOK_NONE || !matcher_may_end(guide->matcher)))
        return error_set(error, ERR_SCHEMA,
                         "no token of the vocabulary can go on with the text that the grammar wants");
    step.kind = n > 1 ? GUIDE_MASKED : GUIDE_FORCED;
    *ret_step = step;
    return true;
}

/* ---- text that is known ahead ---- */

/* The ids stand for the first bytes of the text, and none of them ends the answer. */
static bool are_usable(const Guide *guide, const Answer *answer, const uint32_t *ids, size_t n, const uint8_t *text,
                       size_t n_text)
{
    for (size_t i = 0; i < n; i++) {
        size_t n_piece;
        const uint8_t *piece = grammar_vocab_piece(guide->vocab, ids[i], &n_piece);
        if (!n_piece || n_piece > n_text || memcmp(piece, text, n_piece) || is_ender(answer, ids[i])) return false;
        text += n_piece;
        n_text -= n_piece;
    }
    return true;
}

/* The tokens of the text that must come. What follows it may merge with its last one, which is left to the model. */
static bool look_ahead(Guide *guide, const Answer *answer, Error *error)
{
    uint8_t text[GUIDE_AHEAD_BYTES];
    size_t n_text, n, n_cut;
    guide->n_ahead = guide->at = 0;
    if (!matcher_forced(guide->matcher, text, sizeof text, &n_text, error)) return false;
    (void)utf8_repair(text, n_text, false, NULL, &n_cut);
    n_text -= n_cut;
    if (n_text < 2) return true;
    guide->scratch.n = 0;
    TokEncode encode = {.text = (const char *)text, .n = n_text};
    if (!tok_encode(guide->tokenizer, &encode, &guide->scratch, error)) return false;
    n = guide->scratch.n > 0 ? guide->scratch.n - 1 : 0;
    if (n > GUIDE_MAX_AHEAD) n = GUIDE_MAX_AHEAD;
    if (!are_usable(guide, answer, guide->scratch.ids, n, text, n_text)) return true;
    if (n) memcpy(guide->ahead, guide->scratch.ids, n * sizeof *guide->ahead);
    guide->n_ahead = (uint32_t)n;
    guide->jumps = n >= GUIDE_JUMP_TOKENS;
    return true;
}

bool guide_take(Guide *guide, const Answer *answer, uint32_t id, bool *ret_is_over, Error *error)
{
    *ret_is_over = false;
    if (!guide->matcher) return true;
    if (!matcher_push_token(guide->matcher, id, error)) {
        *ret_is_over = is_ender(answer, id) || tok_is_end(guide->tokenizer, id); /* of the answer, no part of it */
        return *ret_is_over && error->code == ERR_INVALID;
    }
    *ret_is_over = matcher_is_over(guide->matcher);
    if (guide->at < guide->n_ahead) guide->at++;
    return guide->at < guide->n_ahead || look_ahead(guide, answer, error);
}

bool guide_is_ahead(const Guide *guide)
{
    return guide->jumps && guide->at < guide->n_ahead;
}
