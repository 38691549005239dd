/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/answer.h"

#include <stdlib.h>
#include <string.h>

/* Far above any token with any held-back stop string; both are bounded where they come in. */
enum { MAX_TEXT_BYTES = 64 << 20 };

bool answer_open(Answer *answer, const Tokenizer *tokenizer, const Request *request, const uint32_t *end_ids,
                 uint32_t n_end_ids, Error *error)
{
    Answer made = {.tokenizer = tokenizer, .request = request};
    uint32_t n_end = request->ignore_eos ? 0 : n_end_ids;
    made.n_enders = n_end + request->n_stop_ids;
    made.enders = calloc((size_t)made.n_enders + 1, sizeof *made.enders);
    if (!made.enders) return error_set(error, ERR_NO_MEMORY, "no memory for %u stop tokens", made.n_enders);
    for (uint32_t i = 0; i < made.n_enders; i++) made.enders[i] = i < n_end ? end_ids[i] : request->stop_ids[i - n_end];
    if (!stop_new(&request->stop, &made.stop, error)) {
        free(made.enders);
        return false;
    }
    buffer_init(&made.piece, MAX_TEXT_BYTES);
    buffer_init(&made.text, MAX_TEXT_BYTES);
    *answer = made;
    return true;
}

void answer_done(Answer *answer)
{
    stop_free(answer->stop);
    free(answer->enders);
    buffer_done(&answer->piece);
    buffer_done(&answer->text);
    *answer = (Answer){0};
}

bool answer_may_end(const Answer *answer)
{
    return answer->n_tokens >= answer->request->min_tokens;
}

static bool ends(const Answer *answer, uint32_t id)
{
    for (uint32_t i = 0; i < answer->n_enders; i++)
        if (answer->enders[i] == id) return true;
    return false;
}

bool answer_take(Answer *answer, uint32_t id, AnswerState *ret_state, Error *error)
{
    const Request *request = answer->request;
    bool is_end = ends(answer, id), stopped = false, may_end = answer_may_end(answer);
    bool is_last = is_end || answer->n_tokens + 1 >= request->max_tokens;
    bool shows = !tok_is_end(answer->tokenizer, id) && (!is_end || request->stop.include);
    buffer_clear(&answer->piece);
    buffer_clear(&answer->text);
    if (shows && !tok_stream_push(&answer->stream, answer->tokenizer, id, false, &answer->piece, error)) return false;
    if (is_last && !tok_stream_flush(&answer->stream, &answer->piece, error)) return false;
    bool ok = may_end ? stop_push(answer->stop, answer->piece.data, answer->piece.n, &answer->text, &stopped, error)
                      : buffer_append(&answer->text, answer->piece.data, answer->piece.n, error);
    if (!ok) return false;
    if (is_last && !stop_flush(answer->stop, &answer->text, error)) return false;
    answer->n_tokens++;
    *ret_state = is_end || stopped ? ANSWER_STOPPED : is_last ? ANSWER_FULL : ANSWER_OPEN;
    return true;
}
