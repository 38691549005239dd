/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/format.h"
#include "engine/sample/schema/pattern.h"

#include <string.h>

/* RFC 3339: days that there are, from the year 1 on; no leap seconds, which most readers refuse. */
#define LEAP_YEAR "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define YEAR "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
#define DATE                                                                                                           \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"              \
    "02-(?:0[1-9]|1[0-9]|2[0-8]))|" LEAP_YEAR "-02-29)"
#define CLOCK "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
#define TIME CLOCK ":[0-5][0-9](?:\\.[0-9]{1,9})?(?:[Zz]|[+-]" CLOCK ")"

#define N "[0-9]{1,9}"
#define DURATION_DATE "(?:" N "Y(?:" N "M(?:" N "D)?)?|" N "M(?:" N "D)?|" N "D)"
#define DURATION_TIME "T(?:" N "H(?:" N "M(?:" N "S)?)?|" N "M(?:" N "S)?|" N "S)"

#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 BYTE "(?:\\." BYTE "){3}"
#define HEX "[0-9A-Fa-f]"
#define GROUP HEX "{1,4}"
#define LAST_GROUPS "(?:" GROUP ":" GROUP "|" IPV4 ")"
#define GROUPS(n) "(?:(?:" GROUP ":){0," n "}" GROUP ")?"
#define IPV6                                                                                                           \
    "(?:(?:" GROUP ":){6}" LAST_GROUPS "|::(?:" GROUP ":){5}" LAST_GROUPS "|(?:" GROUP ")?::(?:" GROUP                 \
    ":){4}" LAST_GROUPS                                                                                                \
    "|" GROUPS("1") "::(?:" GROUP ":){3}" LAST_GROUPS                                                                  \
                    "|" GROUPS("2") "::(?:" GROUP ":){2}" LAST_GROUPS                                                  \
                                    "|" GROUPS("3") "::" GROUP ":" LAST_GROUPS                                         \
                                                    "|" GROUPS("4") "::" LAST_GROUPS                                   \
                                                                    "|" GROUPS("5") "::" GROUP "|" GROUPS("6") "::)"

/* Names have 253 characters at most and labels 63: seven labels of 31 are within both. */
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,29}[A-Za-z0-9])?"
#define HOSTNAME LABEL "(?:\\." LABEL "){0,6}"
#define DOMAIN LABEL "(?:\\." LABEL "){1,6}"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define EMAIL ATOM "(?:\\." ATOM ")*@" DOMAIN
#define EMAIL_LIMIT "[^@]{1,64}@.*"

/* RFC 3986 */
#define ESCAPED "%" HEX "{2}"
#define SEGMENT_CHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" ESCAPED ")"
#define USER "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" ESCAPED ")*@)?"
#define HOST "(?:\\[" IPV6 "\\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|" ESCAPED ")*)"
#define PATH "(?:/" SEGMENT_CHAR "*)*"
#define AUTHORITY "//" USER HOST "(?::[0-9]*)?" PATH
#define ROOTLESS SEGMENT_CHAR "+" PATH
#define QUERY "(?:\\?(?:" SEGMENT_CHAR "|[/?])*)?(?:#(?:" SEGMENT_CHAR "|[/?])*)?"
#define URI "[A-Za-z][A-Za-z0-9+.-]*:(?:" AUTHORITY "|/(?:" ROOTLESS ")?|" ROOTLESS "|)" QUERY

#define BASE64 "[A-Za-z0-9+/]"

static const struct {
    const char *name;
    const char *pattern; /* of the whole string; NULL: says nothing of strings */
    const char *also;    /* another one that holds too, or NULL */
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "[Tt]" TIME},
    {"duration", "P(?:" DURATION_DATE "(?:" DURATION_TIME ")?|" DURATION_TIME "|" N "W)"},
    {"uuid", HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}"},
    {"email", EMAIL, EMAIL_LIMIT},
    {"hostname", HOSTNAME},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uri", URI},
    {"json-pointer", "(?:/(?:[^~/]|~[01])*)*"},
    {"byte", "(?:" BASE64 "{4})*(?:" BASE64 "{2}==|" BASE64 "{3}=)?"},
    {"int32", NULL},
    {"int64", NULL},
    {"float", NULL},
    {"double", NULL},
    {"password", NULL},
    {"binary", NULL},
};

enum { N_FORMATS = sizeof formats / sizeof *formats };

static bool compile_whole(const char *pattern, Arena *arena, const Dfa **ret_dfa, Error *error)
{
    size_t n = strlen(pattern);
    char *whole = arena_alloc(arena, n + 8);
    if (!whole) return error_set(error, ERR_NO_MEMORY, "no memory for a format");
    memcpy(whole, "^(?:", 4);
    memcpy(whole + 4, pattern, n);
    memcpy(whole + 4 + n, ")$", 3);
    return pattern_compile(whole, arena, ret_dfa, error);
}

bool format_compile(const char *name, Arena *arena, const Dfa **ret_dfa, Error *error)
{
    const Dfa *dfa = NULL, *also, *both;
    size_t i = 0;
    while (i < N_FORMATS && strcmp(formats[i].name, name)) i++;
    if (i == N_FORMATS) return error_set(error, ERR_SCHEMA, "'format' %.40s is not supported", name);
    if (formats[i].pattern && !compile_whole(formats[i].pattern, arena, &dfa, error)) return false;
    if (formats[i].also &&
        !(compile_whole(formats[i].also, arena, &also, error) && dfa_combine(dfa, also, DFA_AND, arena, &both, error) &&
          dfa_minimize(both, arena, &dfa, error)))
        return false;
    *ret_dfa = dfa;
    return true;
}
