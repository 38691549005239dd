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
    if (request->answer && !answer_parser_new(request->answer, &made.parser, error)) {
        stop_free(made.stop);
        free(made.enders);
        return false;
    }
    buffer_init(&made.piece, MAX_TEXT_BYTES);
    buffer_init(&made.text, MAX_TEXT_BYTES);
    answer_parts_init(&made.found, MAX_TEXT_BYTES);
    answer_parts_init(&made.parts, MAX_TEXT_BYTES);
    *answer = made;
    return true;
}

void answer_done(Answer *answer)
{
    stop_free(answer->stop);
    answer_parser_free(answer->parser);
    free(answer->enders);
    buffer_done(&answer->piece);
    buffer_done(&answer->text);
    answer_parts_done(&answer->found);
    answer_parts_done(&answer->parts);
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

/* What the token stands for; marks that are control tokens as the parser wants them. */
static bool decode(Answer *answer, uint32_t id, bool shows, bool is_last, Error *error)
{
    const AnswerPlan *plan = answer->request->answer;
    AnswerMark mark = plan ? answer_style_control(plan->style, id) : ANSWER_MARKS;
    bool is_mark = mark != ANSWER_MARKS;
    if (shows && !tok_stream_push(&answer->stream, answer->tokenizer, id, false, &answer->piece, error)) return false;
    if ((is_last || is_mark) && !tok_stream_flush(&answer->stream, &answer->piece, error)) return false;
    if (!is_mark) return true;
    const AnswerMarker *marker = &plan->style->marks[mark];
    return buffer_append(&answer->piece, marker->bytes, marker->n, error);
}

/* Text up to a stop string, into answer->text. */
static bool stop_text(Answer *answer, const char *text, size_t n, bool matches, bool *stopped, Error *error)
{
    return matches ? stop_push(answer->stop, text, n, &answer->text, stopped, error)
                   : buffer_append(&answer->text, text, n, error);
}

/* What the stop strings let go of, as a part of this kind. */
static void release(Answer *answer, PartKind kind)
{
    if (answer->text.n) answer_parts_add(&answer->parts, kind, answer->text.data, answer->text.n);
    buffer_clear(&answer->text);
}

/* Text of another kind comes: what is held back of this one cannot become a stop string. */
static bool change_kind(Answer *answer, PartKind kind, Error *error)
{
    if (kind == answer->stop_kind) return true;
    if (!stop_flush(answer->stop, &answer->text, error)) return false;
    release(answer, answer->stop_kind);
    stop_reset(answer->stop);
    answer->stop_kind = kind;
    return true;
}

static bool stop_parts(Answer *answer, bool matches, bool *stopped, Error *error)
{
    const char *text = answer->found.text.data;
    for (uint32_t i = 0; i < answer->found.n && !*stopped; text += answer->found.items[i++].n_bytes) {
        const AnswerPart *part = &answer->found.items[i];
        if (!change_kind(answer, part->kind, error)) return false;
        if (part->kind == PART_CALL || part->kind == PART_ARGUMENTS) {
            answer_parts_add(&answer->parts, part->kind, text, part->n_bytes);
            continue;
        }
        if (!stop_text(answer, text, part->n_bytes, matches, stopped, error)) return false;
        release(answer, part->kind);
    }
    return true;
}

/* The token's piece through the parser; answer->parts and, as one text, answer->text. */
static bool take_apart(Answer *answer, bool matches, bool is_last, bool *stopped, Error *error)
{
    bool was_reasoning = answer_parser_phase(answer->parser) == PHASE_REASONING;
    answer_parts_clear(&answer->found);
    answer_parts_clear(&answer->parts);
    if (!answer_parser_push(answer->parser, answer->piece.data, answer->piece.n, &answer->found, error)) return false;
    if (was_reasoning || answer_parser_phase(answer->parser) == PHASE_REASONING) answer->n_reasoning++;
    *stopped = answer_parser_is_over(answer->parser);
    is_last |= *stopped;
    if (is_last && !answer_parser_finish(answer->parser, &answer->found, error)) return false;
    bool at_string = false;
    if (!stop_parts(answer, matches, &at_string, error)) return false;
    *stopped |= at_string;
    if (is_last && !stop_flush(answer->stop, &answer->text, error)) return false;
    release(answer, answer->stop_kind);
    if (!answer_parts_end(&answer->parts, error)) return false;
    return buffer_append(&answer->text, answer->parts.text.data, answer->parts.text.n, error);
}

bool answer_ends_reasoning(const Answer *answer, uint32_t *ret_id)
{
    const Request *request = answer->request;
    if (!answer->parser || !request->n_reasoning_end) return false;
    uint32_t at = answer->n_ended % request->n_reasoning_end; /* channels may think again */
    bool is_spent = answer->n_reasoning >= request->reasoning_budget && !answer->stream.n_pending &&
                    answer_parser_phase(answer->parser) == PHASE_REASONING;
    if (!at && !is_spent) return false;
    *ret_id = request->reasoning_end[at];
    return true;
}

bool answer_take(Answer *answer, uint32_t id, bool is_whole, AnswerState *ret_state, Error *error)
{
    const Request *request = answer->request;
    bool is_end = ends(answer, id), stopped = false, may_end = answer_may_end(answer);
    bool is_last = is_end || is_whole || answer->n_tokens + 1 >= request->max_tokens;
    bool shows = !tok_is_end(answer->tokenizer, id) && (!is_end || request->stop.include);
    uint32_t forced;
    if (answer_ends_reasoning(answer, &forced)) answer->n_ended++;
    buffer_clear(&answer->piece);
    buffer_clear(&answer->text);
    if (!decode(answer, id, shows, is_last, error)) return false;
    if (answer->parser) {
        if (!take_apart(answer, may_end, is_last, &stopped, error)) return false;
    } else {
        if (!stop_text(answer, answer->piece.data, answer->piece.n, may_end, &stopped, error)) return false;
        if (is_last && !stop_flush(answer->stop, &answer->text, error)) return false;
    }
    answer->n_tokens++;
    *ret_state = is_end || is_whole || stopped ? ANSWER_STOPPED : is_last ? ANSWER_FULL : ANSWER_OPEN;
    return true;
}
