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

/* Names have 253 characters at most: three labels of any length, or more and shorter ones. */
#define LABEL(n) "[A-Za-z0-9](?:[A-Za-z0-9-]{0," n "}[A-Za-z0-9])?"
#define HOSTNAME LABEL("61") "(?:\\." LABEL("61") "){0,2}|" LABEL("22") "(?:\\." LABEL("22") "){0,9}"
#define DOMAIN "(?:" LABEL("61") "(?:\\." LABEL("61") "){1,2}|" LABEL("22") "(?:\\." LABEL("22") "){1,9})"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
/* The local part has 64 characters at most. */
#define EMAIL                                                                                                          \
    "(?:" ATOM "{1,64}|" ATOM "{1,20}(?:\\." ATOM "{1,20}){1,2}|" ATOM "{1,12}(?:\\." ATOM "{1,12}){1,3})@" DOMAIN

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
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "[Tt]" TIME},
    {"duration", "P(?:" DURATION_DATE "(?:" DURATION_TIME ")?|" DURATION_TIME "|" N "W)"},
    {"uuid", HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}"},
    {"email", EMAIL},
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

bool format_compile(const char *name, Arena *arena, const Dfa **ret_dfa, Error *error)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, name)) continue;
        if (!formats[i].pattern) {
            *ret_dfa = NULL;
            return true;
        }
        size_t n = strlen(formats[i].pattern);
        char *whole = arena_alloc(arena, n + 8);
        if (!whole) return error_set(error, ERR_NO_MEMORY, "no memory for a format");
        memcpy(whole, "^(?:", 4);
        memcpy(whole + 4, formats[i].pattern, n);
        memcpy(whole + 4 + n, ")$", 3);
        return pattern_compile(whole, arena, ret_dfa, error);
    }
    return error_set(error, ERR_SCHEMA, "'format' %.40s is not supported", name);
}
