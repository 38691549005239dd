/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/sampler_impl.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 16 << 20 }; /* far above the longest token of any vocabulary */

bool history_init(History *history, uint32_t n_vocab)
{
    history->ids = calloc(SAMPLE_MAX_WINDOW, sizeof *history->ids);
    history->breaks = calloc(SAMPLE_MAX_WINDOW, sizeof *history->breaks);
    history->n_generated = calloc(n_vocab, sizeof *history->n_generated);
    history->n_seen = calloc(n_vocab, sizeof *history->n_seen);
    history->listed = calloc(n_vocab, sizeof *history->listed);
    history->listed_ids = calloc(n_vocab, sizeof *history->listed_ids);
    buffer_init(&history->tail, MAX_TEXT_BYTES);
    return history->ids && history->breaks && history->n_generated && history->n_seen && history->listed &&
           history->listed_ids;
}

void history_done(History *history)
{
    free(history->ids);
    free(history->breaks);
    free(history->n_generated);
    free(history->n_seen);
    free(history->listed);
    free(history->listed_ids);
    buffer_done(&history->tail);
}

static bool append_piece(const void *arg, uint32_t id, Buffer *out, Error *error)
{
    return tok_piece(arg, id, true, out, error);
}

TokenText sampler_text_of(const Tokenizer *tokenizer)
{
    return (TokenText){.append = append_piece, .arg = tokenizer};
}

static uint32_t dry_window(const Sampler *sampler)
{
    if (!dry_applies_to(sampler)) return 0;
    return sampler->params.dry_penalty_last_n < 0 ? SAMPLE_MAX_WINDOW : (uint32_t)sampler->params.dry_penalty_last_n;
}

/* How much of a prompt the penalties have to know. */
static uint32_t prompt_window(const Sampler *sampler)
{
    const SamplingParams *p = &sampler->params;
    uint32_t window = dry_window(sampler);
    if (p->repeat_last_n < 0 && p->repetition_penalty != 1) return UINT32_MAX;
    if (p->repeat_last_n > 0 && (uint32_t)p->repeat_last_n > window && penalties_apply_to(sampler))
        window = (uint32_t)p->repeat_last_n;
    return window;
}

bool history_reset(Sampler *sampler, const uint32_t *prompt, uint32_t n_prompt, Error *error)
{
    History *history = &sampler->history;
    for (uint32_t i = 0; i < history->n_listed; i++) {
        uint32_t id = history->listed_ids[i];
        history->n_generated[id] = history->n_seen[id] = 0;
        history->listed[id] = false;
    }
    history->n_listed = 0;
    history->n = 0;
    buffer_clear(&history->tail);
    for (uint32_t i = 0; i < sampler->params.n_dry_breakers; i++)
        history->breaker_bytes[i] = (uint8_t)strlen(sampler->params.dry_breakers[i]);
    uint32_t window = prompt_window(sampler);
    if (window > n_prompt) window = n_prompt;
    history->n_prompt = window;
    for (uint32_t i = n_prompt - window; i < n_prompt; i++)
        if (!history_push(sampler, prompt[i], error)) return false;
    return true;
}

/* What this token does to sequence breakers; keeps as much text as one could still begin in. */
static bool find_breaks(Sampler *sampler, uint32_t id, uint8_t *ret_breaks, Error *error)
{
    History *history = &sampler->history;
    Buffer *tail = &history->tail;
    size_t n_old = tail->n;
    if (!sampler->text.append(sampler->text.arg, id, tail, error)) return false;
    size_t n_piece = tail->n - n_old;
    *ret_breaks = BREAKS_NOT;
    if (n_piece == 0) return true;
    for (uint32_t i = 0; i < sampler->params.n_dry_breakers; i++) {
        const char *breaker = sampler->params.dry_breakers[i];
        size_t n = history->breaker_bytes[i], n_before = n_old < n - 1 ? n_old : n - 1;
        if (!memmem(tail->data + n_old - n_before, n_before + n_piece, breaker, n)) continue;
        *ret_breaks |= BREAKS_BEHIND;
        if (memmem(tail->data + n_old, n_piece, breaker, n)) *ret_breaks |= BREAKS_ALONE;
    }
    if (tail->n >= SAMPLE_MAX_BREAKER_BYTES) buffer_consume(tail, tail->n - (SAMPLE_MAX_BREAKER_BYTES - 1));
    return true;
}

/* The token that falls out of the penalties' range when one more comes. */
static void forget_oldest(Sampler *sampler)
{
    History *history = &sampler->history;
    int32_t range = sampler->params.repeat_last_n;
    if (range <= 0 || history->n < (uint64_t)range) return;
    uint64_t at = history->n - (uint64_t)range;
    uint32_t id = history->ids[at % SAMPLE_MAX_WINDOW];
    history->n_seen[id]--;
    if (at >= history->n_prompt) history->n_generated[id]--;
}

bool history_push(Sampler *sampler, uint32_t id, Error *error)
{
    History *history = &sampler->history;
    uint8_t breaks = BREAKS_NOT;
    bool has_text = dry_applies_to(sampler) && sampler->params.n_dry_breakers > 0;
    if (has_text && !find_breaks(sampler, id, &breaks, error)) return false;
    forget_oldest(sampler);
    history->ids[history->n % SAMPLE_MAX_WINDOW] = id;
    history->breaks[history->n % SAMPLE_MAX_WINDOW] = breaks;
    if (!history->listed[id]) {
        history->listed[id] = true;
        history->listed_ids[history->n_listed++] = id;
    }
    history->n_seen[id]++;
    if (history->n >= history->n_prompt) history->n_generated[id]++;
    history->n++;
    return true;
}
