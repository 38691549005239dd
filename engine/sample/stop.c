/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/stop.h"

#include <stdlib.h>
#include <string.h>

/* Knuth-Morris-Pratt: one automaton a string, all fed in step. */
typedef struct Pattern {
    const char *text;
    size_t n;
    size_t *border;   /* [n] longest proper border of text[0..i] */
    size_t n_matched; /* bytes of text that end the stream so far */
} Pattern;

struct StopMatcher {
    Pattern patterns[STOP_MAX_STRINGS];
    uint32_t n_patterns;
    bool include, stopped;
    size_t n_held; /* what is held back is the first n_held bytes of 'held', a pattern's text */
    const char *held;
};

static size_t advance(const Pattern *pattern, size_t matched, char byte)
{
    while (matched > 0 && (matched == pattern->n || pattern->text[matched] != byte))
        matched = pattern->border[matched - 1];
    return pattern->text[matched] == byte ? matched + 1 : 0;
}

static bool pattern_init(Pattern *pattern, const char *text, size_t n, Error *error)
{
    if (n == 0) return error_set_param(error, ERR_INVALID, "stop", "an empty stop string");
    *pattern = (Pattern){.text = text, .n = n, .border = calloc(n, sizeof *pattern->border)};
    if (!pattern->border) return error_set(error, ERR_NO_MEMORY, "no memory for a stop string of %zu bytes", n);
    for (size_t i = 1; i < n; i++) pattern->border[i] = advance(pattern, pattern->border[i - 1], text[i]);
    return true;
}

bool stop_new(const StopStrings *strings, StopMatcher **ret_matcher, Error *error)
{
    if (strings->n > STOP_MAX_STRINGS)
        return error_set_param(error, ERR_INVALID, "stop", "%u stop strings, at most %d", strings->n, STOP_MAX_STRINGS);
    StopMatcher *matcher = calloc(1, sizeof *matcher);
    if (!matcher) return error_set(error, ERR_NO_MEMORY, "no memory for stop strings");
    matcher->include = strings->include;
    for (uint32_t i = 0; i < strings->n; i++) {
        if (!pattern_init(&matcher->patterns[i], strings->text[i], strings->n_bytes[i], error)) {
            stop_free(matcher);
            return false;
        }
        matcher->n_patterns++;
    }
    *ret_matcher = matcher;
    return true;
}

void stop_free(StopMatcher *matcher)
{
    if (!matcher) return;
    for (uint32_t i = 0; i < matcher->n_patterns; i++) free(matcher->patterns[i].border);
    free(matcher);
}

void stop_reset(StopMatcher *matcher)
{
    for (uint32_t i = 0; i < matcher->n_patterns; i++) matcher->patterns[i].n_matched = 0;
    matcher->stopped = false;
    matcher->n_held = 0;
}

/* Feeds one byte; returns the length of the longest string that it completes, or 0. */
static size_t feed(StopMatcher *matcher, char byte)
{
    size_t complete = 0;
    for (uint32_t i = 0; i < matcher->n_patterns; i++) {
        Pattern *pattern = &matcher->patterns[i];
        pattern->n_matched = advance(pattern, pattern->n_matched, byte);
        if (pattern->n_matched == pattern->n && pattern->n > complete) complete = pattern->n;
    }
    return complete;
}

/* Appends the first n bytes of what is held back followed by text. */
static bool release(const char *held, size_t n_held, const char *text, size_t n, Buffer *out, Error *error)
{
    size_t n_old = n < n_held ? n : n_held;
    return buffer_append(out, held, n_old, error) && buffer_append(out, text, n - n_old, error);
}

static void hold_longest(StopMatcher *matcher)
{
    matcher->n_held = 0;
    for (uint32_t i = 0; i < matcher->n_patterns; i++) {
        const Pattern *pattern = &matcher->patterns[i];
        if (pattern->n_matched <= matcher->n_held) continue;
        matcher->n_held = pattern->n_matched;
        matcher->held = pattern->text;
    }
}

bool stop_push(StopMatcher *matcher, const char *text, size_t n, Buffer *out, bool *ret_stopped, Error *error)
{
    for (size_t i = 0; !matcher->stopped && i < n; i++) {
        size_t complete = feed(matcher, text[i]);
        if (!complete) continue;
        size_t before = matcher->n_held + i + 1 - (matcher->include ? 0 : complete);
        if (!release(matcher->held, matcher->n_held, text, before, out, error)) return false;
        matcher->stopped = true;
        matcher->n_held = 0;
    }
    if (!matcher->stopped) {
        const char *held = matcher->held;
        size_t n_held = matcher->n_held;
        hold_longest(matcher);
        if (!release(held, n_held, text, n_held + n - matcher->n_held, out, error)) return false;
    }
    *ret_stopped = matcher->stopped;
    return true;
}

bool stop_flush(StopMatcher *matcher, Buffer *out, Error *error)
{
    size_t n = matcher->n_held;
    matcher->n_held = 0;
    return buffer_append(out, matcher->held, n, error);
}
