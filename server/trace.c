/* SPDX-License-Identifier: Apache-2.0 */
#include "server/trace.h"
#include "base/clock.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* version-traceid-parentid-flags */
enum { TRACE_AT = 3, SPAN_AT = 36, FLAGS_AT = 53 };

bool request_id_is_valid(const char *text)
{
    size_t n = 0;
    while (n <= REQUEST_ID_BYTES && text[n] > ' ' && text[n] < 0x7F && text[n] != '"' && text[n] != '\\') n++;
    return n >= 1 && n <= REQUEST_ID_BYTES && !text[n];
}

/* Without random bytes ids may be guessed, but they differ. */
static uint64_t random_word(void)
{
    static _Atomic uint64_t n;
    uint64_t word;
    uint64_t count = atomic_fetch_add(&n, 1) + 1;
    if (getrandom(&word, sizeof word, GRND_NONBLOCK) == sizeof word) return word;
    return clock_now_usec() << 20 ^ count;
}

void request_id_make(char text[static REQUEST_ID_BYTES + 1])
{
    snprintf(text, REQUEST_ID_BYTES + 1, "req_%016llx%016llx", (unsigned long long)random_word(),
             (unsigned long long)random_word());
}

/* n lower-case hex digits from 'at' on; not only zeros, if those mean nothing. */
static bool is_hex(const char *at, size_t n, bool zeros_are_valid)
{
    size_t n_zeros = 0;
    for (size_t i = 0; i < n; i++) {
        if ((at[i] < '0' || at[i] > '9') && (at[i] < 'a' || at[i] > 'f')) return false;
        n_zeros += at[i] == '0';
    }
    return zeros_are_valid || n_zeros < n;
}

/* Later versions may have more behind the flags; version ff is none. */
static bool is_parent(const char *header)
{
    size_t n = strnlen(header, TRACE_PARENT_BYTES + 1);
    if (n < TRACE_PARENT_BYTES || !is_hex(header, 2, true) || !strncmp(header, "ff", 2)) return false;
    if (n > TRACE_PARENT_BYTES && (!strncmp(header, "00", 2) || header[TRACE_PARENT_BYTES] != '-')) return false;
    if (header[TRACE_AT - 1] != '-' || header[SPAN_AT - 1] != '-' || header[FLAGS_AT - 1] != '-') return false;
    return is_hex(header + TRACE_AT, 32, false) && is_hex(header + SPAN_AT, 16, false) &&
           is_hex(header + FLAGS_AT, 2, true);
}

void trace_read(const char *header, Trace *ret_trace)
{
    *ret_trace = (Trace){.trace_id = ""};
    if (!header || !is_parent(header)) return;
    memcpy(ret_trace->trace_id, header + TRACE_AT, 32);
    /* Of the flags 'sampled' alone has a meaning that we know to hand on. */
    snprintf(ret_trace->flags, sizeof ret_trace->flags, "0%c", strchr("13579bdf", header[FLAGS_AT + 1]) ? '1' : '0');
    do snprintf(ret_trace->span_id, sizeof ret_trace->span_id, "%016llx", (unsigned long long)random_word());
    while (!is_hex(ret_trace->span_id, 16, false));
}

void trace_write(const Trace *trace, char text[static TRACE_PARENT_BYTES + 1])
{
    snprintf(text, TRACE_PARENT_BYTES + 1, "00-%s-%s-%s", trace->trace_id, trace->span_id, trace->flags);
}
