/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/stop.h"

#include <criterion/criterion.h>
#include <string.h>

typedef struct Stream {
    StopMatcher *matcher;
    Buffer out;
    bool stopped;
} Stream;

static StopStrings strings_of(const char *const *text, size_t *n_bytes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) n_bytes[i] = strlen(text[i]);
    return (StopStrings){.text = text, .n_bytes = n_bytes, .n = n};
}

static void stream_open(Stream *stream, const StopStrings *strings)
{
    Error error;
    *stream = (Stream){0};
    buffer_init(&stream->out, 1 << 20);
    cr_assert(stop_new(strings, &stream->matcher, &error), "%s", error.text);
}

static void stream_push(Stream *stream, const char *text, size_t n)
{
    Error error;
    cr_assert(stop_push(stream->matcher, text, n, &stream->out, &stream->stopped, &error), "%s", error.text);
}

static void stream_flush(Stream *stream)
{
    Error error;
    cr_assert(stop_flush(stream->matcher, &stream->out, &error), "%s", error.text);
}

static void stream_close(Stream *stream)
{
    stop_free(stream->matcher);
    buffer_done(&stream->out);
}

static const char *shown(const Stream *stream)
{
    return stream->out.data ? stream->out.data : "";
}

/* A stop string that arrives letter by letter must not show any prefix of itself. */
Test(stop, never_shows_a_prefix)
{
    const char *text[] = {"DEFGHIJ"};
    size_t n_bytes[1];
    StopStrings strings = strings_of(text, n_bytes, 1);
    Stream stream;
    stream_open(&stream, &strings);
    const char *answer = " DEFGDEFGHIJKLM";
    for (size_t i = 0; answer[i] && !stream.stopped; i++) {
        stream_push(&stream, answer + i, 1);
        cr_assert_eq(strncmp(shown(&stream), " DEFG", strlen(shown(&stream))), 0);
    }
    cr_assert(stream.stopped);
    cr_assert_str_eq(shown(&stream), " DEFG");
    stream_close(&stream);
}

Test(stop, holds_back_no_more_than_needed)
{
    const char *text[] = {"abc", "bcdef"};
    size_t n_bytes[2];
    StopStrings strings = strings_of(text, n_bytes, 2);
    Stream stream;
    stream_open(&stream, &strings);
    stream_push(&stream, "xab", 3);
    cr_assert_str_eq(shown(&stream), "x");
    stream_push(&stream, "x", 1);
    cr_assert_str_eq(shown(&stream), "xabx");
    stream_push(&stream, "bcde", 4);
    cr_assert_str_eq(shown(&stream), "xabx");
    stream_flush(&stream);
    cr_assert_str_eq(shown(&stream), "xabxbcde");
    cr_assert_not(stream.stopped);
    stream_close(&stream);
}

Test(stop, first_to_complete_wins_and_the_longer_of_two)
{
    const char *text[] = {"cd", "abcde", "bcd"};
    size_t n_bytes[3];
    StopStrings strings = strings_of(text, n_bytes, 3);
    Stream stream;
    stream_open(&stream, &strings);
    stream_push(&stream, "zabcdef", 7);
    cr_assert(stream.stopped);
    cr_assert_str_eq(shown(&stream), "za");
    stream_push(&stream, "more", 4); /* nothing follows a stop */
    stream_flush(&stream);
    cr_assert_str_eq(shown(&stream), "za");
    stop_reset(stream.matcher);
    stream_push(&stream, "-ab", 3);
    stream_flush(&stream);
    cr_assert_str_eq(shown(&stream), "za-ab");
    cr_assert_not(stream.stopped);
    stream_close(&stream);
}

Test(stop, include_shows_the_string)
{
    const char *text[] = {"END"};
    size_t n_bytes[1];
    StopStrings strings = strings_of(text, n_bytes, 1);
    strings.include = true;
    Stream stream;
    stream_open(&stream, &strings);
    stream_push(&stream, "the E", 5);
    stream_push(&stream, "NDing", 5);
    cr_assert(stream.stopped);
    cr_assert_str_eq(shown(&stream), "the END");
    stream_close(&stream);
}

Test(stop, none_passes_all)
{
    StopStrings strings = {0};
    Stream stream;
    stream_open(&stream, &strings);
    stream_push(&stream, "", 0);
    stream_push(&stream, "all of it", 9);
    cr_assert_str_eq(shown(&stream), "all of it");
    stream_flush(&stream);
    cr_assert_str_eq(shown(&stream), "all of it");
    stream_close(&stream);
}

Test(stop, refuses_empty_and_too_many)
{
    const char *text[17];
    size_t n_bytes[17];
    for (int i = 0; i < 17; i++) text[i] = "x";
    StopStrings strings = strings_of(text, n_bytes, 17);
    StopMatcher *matcher = NULL;
    Error error = {0};
    cr_assert_not(stop_new(&strings, &matcher, &error));
    cr_assert_str_eq(error.param, "stop");
    text[1] = "";
    strings = strings_of(text, n_bytes, 2);
    cr_assert_not(stop_new(&strings, &matcher, &error));
    cr_assert_str_eq(error.param, "stop");
    cr_assert_null(matcher);
    stop_free(NULL);
}

Test(stop, full_output_is_an_error)
{
    StopStrings strings = {0};
    StopMatcher *matcher = NULL;
    Buffer out;
    Error error = {0};
    bool stopped = false;
    buffer_init(&out, 4);
    cr_assert(stop_new(&strings, &matcher, &error));
    cr_assert_not(stop_push(matcher, "12345", 5, &out, &stopped, &error));
    cr_assert_eq(error.code, ERR_TOO_LARGE);
    stop_free(matcher);
    buffer_done(&out);
}

/* The slow definition: after n bytes, is a string complete, and which tail may still become one? */
typedef struct Oracle {
    size_t shown;
    bool stopped;
} Oracle;

static Oracle oracle_of(const char *text, size_t n, const StopStrings *strings)
{
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;
        for (uint32_t i = 0; i < strings->n; i++) {
            size_t m = strings->n_bytes[i];
            if (m <= end && m > longest && memcmp(text + end - m, strings->text[i], m) == 0) longest = m;
        }
        if (longest) return (Oracle){.shown = end - (strings->include ? 0 : longest), .stopped = true};
    }
    size_t held = 0;
    for (uint32_t i = 0; i < strings->n; i++)
        for (size_t m = 1; m < strings->n_bytes[i] && m <= n; m++)
            if (m > held && memcmp(text + n - m, strings->text[i], m) == 0) held = m;
    return (Oracle){.shown = n - held};
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void fill_random(uint32_t *state, char *text, size_t n, uint32_t alphabet)
{
    for (size_t i = 0; i < n; i++) text[i] = (char)('a' + next_random(state) % alphabet);
    text[n] = '\0';
}

Test(stop, equals_the_slow_definition_on_random_text)
{
    uint32_t state = 7, n_stopped = 0;
    for (uint32_t round = 0; round < 3000; round++) {
        char texts[16][12], answer[64];
        const char *text[16];
        size_t n_bytes[16];
        uint32_t n = 1 + next_random(&state) % 16, alphabet = 2 + next_random(&state) % 3;
        for (uint32_t i = 0; i < n; i++) {
            fill_random(&state, texts[i], 2 + next_random(&state) % 9, alphabet);
            text[i] = texts[i];
        }
        StopStrings strings = strings_of(text, n_bytes, n);
        strings.include = next_random(&state) % 4 == 0;
        size_t n_answer = next_random(&state) % 60, at = 0;
        fill_random(&state, answer, n_answer, alphabet);
        Stream stream;
        stream_open(&stream, &strings);
        while (at < n_answer) {
            size_t n_push = 1 + next_random(&state) % 7;
            if (n_push > n_answer - at) n_push = n_answer - at;
            stream_push(&stream, answer + at, n_push);
            at += n_push;
            Oracle want = oracle_of(answer, at, &strings);
            cr_assert_eq(stream.stopped, want.stopped);
            cr_assert_eq(stream.out.n, want.shown, "round %u: %zu shown, %zu wanted", round, stream.out.n, want.shown);
            cr_assert_eq(memcmp(shown(&stream), answer, want.shown), 0);
        }
        stream_flush(&stream);
        if (!stream.stopped) cr_assert_str_eq(shown(&stream), answer);
        n_stopped += stream.stopped;
        stream_close(&stream);
    }
    cr_assert(n_stopped > 300 && n_stopped < 2900, "%u of 3000 stopped: the test has lost its teeth", n_stopped);
}
