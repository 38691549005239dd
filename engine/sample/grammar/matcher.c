/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/matcher.h"

#include "engine/sample/grammar/compiled.h"
#include "engine/sample/grammar/mask.h"

#include <stdlib.h>

struct GrammarMatcher {
    Grammar *grammar;
    RunUser at;
};

/* ---- steps that make room once ---- */

typedef bool (*StepFn)(Run *run, RunUser *user, const void *arg, Error *error);

/* Spots get other numbers when room is made, so the step looks at user->spot anew. */
static bool try_step(Run *run, RunUser *user, StepFn step, const void *arg, Error *error)
{
    run->is_full = false;
    if (step(run, user, arg, error)) return true;
    return run->is_full && run_compact(run, error) && step(run, user, arg, error);
}

static bool is_way(uint32_t spot, RunUser *user, Error *error)
{
    if (spot == SPOT_DEAD) return error_set(error, ERR_INVALID, "the grammar has no such text");
    if (spot == SPOT_LOST)
        return error_set(error, ERR_TOO_LARGE, "the grammar has more than %d ways to read the text", SPOT_MAX_STACKS);
    user->spot = spot;
    return true;
}

static bool step_start(Run *run, RunUser *user, const void *arg, Error *error)
{
    const uint32_t *state = arg;
    uint32_t stack, spot;
    return run_stack(run, *state, STACK_END, &stack, error) && run_spot_from(run, stack, &spot, error) &&
           is_way(spot, user, error);
}

static bool step_byte(Run *run, RunUser *user, const void *arg, Error *error)
{
    uint32_t next;
    return run_byte(run, user->spot, *(const uint8_t *)arg, &next, error) && is_way(next, user, error);
}

static bool step_token(Run *run, RunUser *user, const void *arg, Error *error)
{
    uint32_t next;
    return run_token(run, user->spot, *(const uint32_t *)arg, &next, error) && is_way(next, user, error);
}

typedef struct MaskWish {
    const uint64_t **ret_words;
    uint32_t *ret_n;
} MaskWish;

static bool step_mask(Run *run, RunUser *user, const void *arg, Error *error)
{
    const MaskWish *wish = arg;
    return mask_of(run, user->spot, wish->ret_words, wish->ret_n, error);
}

/* ---- matchers ---- */

bool matcher_new(Grammar *grammar, GrammarMatcher **ret_matcher, Error *error)
{
    GrammarMatcher *matcher = calloc(1, sizeof *matcher);
    if (!matcher) return error_set(error, ERR_NO_MEMORY, "no memory for a matcher");
    matcher->grammar = grammar_take(grammar);
    run_join(&grammar->run, &matcher->at, SPOT_DEAD);
    if (!matcher_reset(matcher, error)) {
        matcher_free(matcher);
        return false;
    }
    *ret_matcher = matcher;
    return true;
}

void matcher_free(GrammarMatcher *matcher)
{
    if (!matcher) return;
    run_leave(&matcher->at);
    grammar_weigh(matcher->grammar);
    grammar_release(matcher->grammar);
    free(matcher);
}

bool matcher_reset(GrammarMatcher *matcher, Error *error)
{
    Grammar *grammar = matcher->grammar;
    return try_step(&grammar->run, &matcher->at, step_start, &grammar->start, error);
}

void matcher_copy(GrammarMatcher *matcher, const GrammarMatcher *from)
{
    matcher->at.spot = from->at.spot;
}

bool matcher_push_bytes(GrammarMatcher *matcher, const uint8_t *bytes, size_t n, Error *error)
{
    Run *run = &matcher->grammar->run;
    RunUser ahead;
    bool ok = true;
    run_join(run, &ahead, matcher->at.spot);
    for (size_t i = 0; ok && i < n; i++) ok = try_step(run, &ahead, step_byte, &bytes[i], error);
    run_leave(&ahead);
    if (ok) matcher->at.spot = ahead.spot;
    return ok;
}

bool matcher_push_token(GrammarMatcher *matcher, uint32_t id, Error *error)
{
    Grammar *grammar = matcher->grammar;
    size_t n = 0;
    const uint8_t *bytes = grammar->vocab ? grammar_vocab_piece(grammar->vocab, id, &n) : NULL;
    if (try_step(&grammar->run, &matcher->at, step_token, &id, error)) return true;
    if (error->code != ERR_INVALID) return false;
    return n ? matcher_push_bytes(matcher, bytes, n, error)
             : error_set(error, ERR_INVALID, "the grammar does not have token %u here", id);
}

static const Spot *spot_of(const GrammarMatcher *matcher)
{
    return &matcher->grammar->run.spots[matcher->at.spot];
}

bool matcher_may_end(const GrammarMatcher *matcher)
{
    return spot_of(matcher)->may_end;
}

bool matcher_may_end_by(GrammarMatcher *matcher, uint32_t id, bool *ret_may, Error *error)
{
    Run *run = &matcher->grammar->run;
    RunUser ahead;
    run_join(run, &ahead, matcher->at.spot);
    bool goes_on = try_step(run, &ahead, step_token, &id, error);
    *ret_may = goes_on && run->spots[ahead.spot].may_end;
    run_leave(&ahead);
    return goes_on || error->code == ERR_INVALID;
}

bool matcher_is_over(const GrammarMatcher *matcher)
{
    return spot_of(matcher)->n == 0;
}

/* The one byte that can be next; false: there are several, or a token may come, or the end. */
static bool find_only_byte(const Run *run, const Spot *spot, uint8_t *ret_byte)
{
    const Automaton *automaton = run->automaton;
    if (spot->may_end || spot->n == 0) return false;
    const AutomatonState *first = &automaton->states[run->stacks[run->members[spot->first]].state];
    uint8_t byte = first[0].first_byte < first[1].first_byte ? automaton->bytes[first->first_byte].first : 0;
    for (uint32_t i = 0; i < spot->n; i++) {
        const AutomatonState *at = &automaton->states[run->stacks[run->members[spot->first + i]].state];
        if (at[0].first_token < at[1].first_token) return false;
        for (uint32_t j = at[0].first_byte; j < at[1].first_byte; j++)
            if (automaton->bytes[j].first != byte || automaton->bytes[j].last != byte) return false;
    }
    *ret_byte = byte;
    return true;
}

bool matcher_forced(GrammarMatcher *matcher, uint8_t *out, size_t max, size_t *ret_n, Error *error)
{
    Run *run = &matcher->grammar->run;
    RunUser ahead;
    size_t n = 0;
    bool ok = true;
    run_join(run, &ahead, matcher->at.spot);
    while (ok && n < max && find_only_byte(run, &run->spots[ahead.spot], &out[n]))
        ok = try_step(run, &ahead, step_byte, &out[n++], error);
    run_leave(&ahead);
    if (ok) *ret_n = n;
    return ok;
}

bool matcher_mask(GrammarMatcher *matcher, const uint64_t **ret_words, uint32_t *ret_n, Error *error)
{
    MaskWish wish = {ret_words, ret_n};
    if (!matcher->grammar->vocab) return error_set(error, ERR_INTERNAL, "a mask without a vocabulary");
    bool ok = try_step(&matcher->grammar->run, &matcher->at, step_mask, &wish, error);
    grammar_weigh(matcher->grammar);
    return ok;
}
