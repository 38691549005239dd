/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/sampler_impl.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_TEXT_BYTES = 16 << 20, /* far above the longest token of any vocabulary */
    FIRST_COUNTS = 64
};

void history_done(History *history)
{
    free(history->ids);
    free(history->breaks);
    free(history->counts);
    buffer_done(&history->tail);
    *history = (History){0};
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

/* How far back the rings have to reach. */
static uint32_t ring_tokens(const Sampler *sampler)
{
    uint32_t window = dry_window(sampler);
    int32_t range = sampler->params.repeat_last_n;
    return penalties_apply_to(sampler) && range > 0 && (uint32_t)range > window ? (uint32_t)range : window;
}

static bool take_memory(Sampler *sampler, Error *error)
{
    History *history = &sampler->history;
    uint32_t n_ring = ring_tokens(sampler);
    bool counts = penalties_apply_to(sampler);
    if (n_ring) history->ids = calloc(n_ring, sizeof *history->ids);
    if (n_ring) history->breaks = calloc(n_ring, sizeof *history->breaks);
    if (counts) history->counts = calloc(FIRST_COUNTS, sizeof *history->counts);
    if ((n_ring && (!history->ids || !history->breaks)) || (counts && !history->counts))
        return error_set(error, ERR_NO_MEMORY, "no memory to look back over %u tokens", n_ring);
    history->n_ring = n_ring;
    history->n_counts = counts ? FIRST_COUNTS : 0;
    return true;
}

bool history_reset(Sampler *sampler, const uint32_t *prompt, uint32_t n_prompt, Error *error)
{
    History *history = &sampler->history;
    history_done(history);
    buffer_init(&history->tail, MAX_TEXT_BYTES);
    if (!take_memory(sampler, error)) return false;
    for (uint32_t i = 0; i < sampler->params.n_dry_breakers; i++)
        history->breaker_bytes[i] = (uint8_t)strlen(sampler->params.dry_breakers[i]);
    uint32_t window = prompt_window(sampler);
    if (window > n_prompt) window = n_prompt;
    history->n_prompt = window;
    for (uint32_t i = n_prompt - window; i < n_prompt; i++)
        if (!history_push(sampler, prompt[i], error)) return false;
    return true;
}

/* The slot of this id, or the free one where it belongs. */
static TokenCount *find_count(TokenCount *counts, uint32_t n_counts, uint32_t id)
{
    uint32_t at = id * 2654435761u;
    for (at ^= at >> 15;; at++) {
        TokenCount *count = &counts[at & (n_counts - 1)];
        if (count->id_plus_1 == 0 || count->id_plus_1 == id + 1) return count;
    }
}

static bool grow_counts(History *history, Error *error)
{
    uint32_t n = history->n_counts * 2;
    TokenCount *counts = calloc(n, sizeof *counts);
    if (!counts) return error_set(error, ERR_NO_MEMORY, "no memory to count %u tokens", n);
    for (uint32_t i = 0; i < history->n_counts; i++)
        if (history->counts[i].id_plus_1) *find_count(counts, n, history->counts[i].id_plus_1 - 1) = history->counts[i];
    free(history->counts);
    history->counts = counts;
    history->n_counts = n;
    return true;
}

static bool count_token(History *history, uint32_t id, Error *error)
{
    TokenCount *count = find_count(history->counts, history->n_counts, id);
    if (!count->id_plus_1 && 2 * (history->n_counted + 1) > history->n_counts) {
        if (!grow_counts(history, error)) return false;
        count = find_count(history->counts, history->n_counts, id);
    }
    history->n_counted += !count->id_plus_1;
    count->id_plus_1 = id + 1;
    count->n_seen++;
    count->n_generated += history->n >= history->n_prompt;
    return true;
}

/* What this token does to sequence breakers; keeps as much text as one could still begin in. */
static bool find_breaks(Sampler *sampler, uint32_t id, uint8_t *ret_breaks, Error *error)
{
    History *history = &sampler->history;
    Buffer *tail = &history->tail;
    size_t n_old = tail->n;
    if (!sampler->space->text.append(sampler->space->text.arg, id, tail, error)) return false;
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
    TokenCount *count = find_count(history->counts, history->n_counts, history->ids[at % history->n_ring]);
    count->n_seen--;
    if (at >= history->n_prompt) count->n_generated--;
}

bool history_push(Sampler *sampler, uint32_t id, Error *error)
{
    History *history = &sampler->history;
    uint8_t breaks = BREAKS_NOT;
    bool has_text = dry_applies_to(sampler) && sampler->params.n_dry_breakers > 0;
    if (has_text && !find_breaks(sampler, id, &breaks, error)) return false;
    if (history->counts && !count_token(history, id, error)) return false;
    if (history->counts) forget_oldest(sampler);
    if (history->n_ring) {
        history->ids[history->n % history->n_ring] = id;
        history->breaks[history->n % history->n_ring] = breaks;
    }
    history->n++;
    return true;
}
