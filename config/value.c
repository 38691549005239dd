/* SPDX-License-Identifier: Apache-2.0 */
#include "config/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Unit {
    const char *name;
    uint64_t factor;
    uint32_t kinds; /* bits: 1 << OptionKind */
} Unit;

enum { MAX_WHOLE_CHARS = 32 };
enum {
    BYTES = 1 << OPTION_BYTES | 1 << OPTION_SHARE,
    TOKENS = 1 << OPTION_TOKENS | 1 << OPTION_LIST,
    SECONDS = 1 << OPTION_SECONDS
};

static const Unit units[] = {
    {"", 1, BYTES | TOKENS | SECONDS | 1 << OPTION_INTEGER},
    {"B", 1, BYTES},
    {"K", 1ull << 10, BYTES | TOKENS},
    {"KiB", 1ull << 10, BYTES},
    {"M", 1ull << 20, BYTES | TOKENS},
    {"MiB", 1ull << 20, BYTES},
    {"G", 1ull << 30, BYTES | TOKENS},
    {"GiB", 1ull << 30, BYTES},
    {"T", 1ull << 40, BYTES},
    {"TiB", 1ull << 40, BYTES},
    {"s", 1, SECONDS},
    {"m", 60, SECONDS},
    {"h", 3600, SECONDS},
};

static const char *const kind_wants[] = {
    [OPTION_FLAG] = "on or off",
    [OPTION_INTEGER] = "a whole number",
    [OPTION_TOKENS] = "a whole number, K, M or G behind it for powers of 1024",
    [OPTION_BYTES] = "a size such as 512K, 32MiB or 4G (powers of 1024)",
    [OPTION_SECONDS] = "whole seconds, or a time such as 90s, 5m or 1h, or none",
    [OPTION_REAL] = "a number",
    [OPTION_SHARE] = "a fraction such as 0.9, or a size such as 32MiB or 40G (powers of 1024)",
    [OPTION_LIST] = "none or whole numbers with commas between them",
};

static bool refuse(const ConfigOption *option, const char *text, Error *error)
{
    return error_set_param(error, ERR_INVALID, option->name, "'%s' is not %s", text, kind_wants[option->kind]);
}

static bool find_factor(const char *name, OptionKind kind, uint64_t *ret_factor)
{
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if ((units[i].kinds & 1u << kind) && !strcmp(units[i].name, name)) {
            *ret_factor = units[i].factor;
            return true;
        }
    return false;
}

static bool out_of_range(const ConfigOption *option, const char *text, Error *error)
{
    return error_set_param(error, ERR_INVALID, option->name, "'%s' is not between %llu and %llu", text,
                           (unsigned long long)option->min, (unsigned long long)option->max);
}

static bool read_whole(const ConfigOption *option, const char *text, uint64_t *ret_value, Error *error)
{
    uint64_t value = 0, factor = 1;
    bool fits = true;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++)
        fits &=
            !__builtin_mul_overflow(value, 10u, &value) && !__builtin_add_overflow(value, (unsigned)(*p - '0'), &value);
    bool none = option->kind == OPTION_SECONDS && !strcmp(text, "none");
    if (!none && (p == text || !find_factor(p, option->kind, &factor))) return refuse(option, text, error);
    fits &= !__builtin_mul_overflow(value, factor, &value);
    if (!fits || value < option->min || value > option->max) return out_of_range(option, text, error);
    *ret_value = value;
    return true;
}

static bool set_whole(const ConfigOption *option, const char *text, void *field, Error *error)
{
    uint64_t value;
    if (!read_whole(option, text, &value, error)) return false;
    if (option->width == sizeof(uint16_t))
        *(uint16_t *)field = (uint16_t)value;
    else if (option->width == sizeof(uint32_t))
        *(uint32_t *)field = (uint32_t)value;
    else
        *(uint64_t *)field = value;
    return true;
}

static bool set_list(const ConfigOption *option, const char *text, void *field, Error *error)
{
    ConfigList list = {0};
    const char *at = text, *end = text + strlen(text);
    if (!strcmp(text, "none")) at = end + 1;
    while (at <= end) {
        char number[MAX_WHOLE_CHARS];
        uint64_t value;
        size_t n = strcspn(at, ",");
        if (n >= sizeof number) return refuse(option, text, error);
        memcpy(number, at, n);
        number[n] = '\0';
        if (!read_whole(option, number, &value, error)) return false;
        if (list.n == CONFIG_LIST_MAX)
            return error_set_param(error, ERR_INVALID, option->name, "'%s' has more than %d numbers", text,
                                   CONFIG_LIST_MAX);
        list.at[list.n++] = (uint32_t)value;
        at += n + 1;
    }
    memcpy(field, &list, sizeof list);
    return true;
}

static bool set_real(const ConfigOption *option, const char *text, void *field, Error *error)
{
    if (!*text || strspn(text, "0123456789.eE+-") != strlen(text)) return refuse(option, text, error);
    char *end;
    double value = strtod(text, &end);
    if (*end) return refuse(option, text, error);
    if (!isfinite(value) || value < option->real_min || value > option->real_max)
        return error_set_param(error, ERR_INVALID, option->name, "'%s' is not between %g and %g", text,
                               option->real_min, option->real_max);
    *(float *)field = (float)value;
    return true;
}

/* With a point it is a fraction. */
static bool set_share(const ConfigOption *option, const char *text, void *field, Error *error)
{
    ConfigShare share = {0};
    char *end;
    if (!strchr(text, '.')) {
        if (!read_whole(option, text, &share.bytes, error)) return false;
    } else {
        if (strspn(text, "0123456789.") != strlen(text)) return refuse(option, text, error);
        share.fraction = strtod(text, &end);
        if (*end) return refuse(option, text, error);
        if (!(share.fraction > 0 && share.fraction <= 1))
            return error_set_param(error, ERR_INVALID, option->name, "'%s' is no fraction above 0 and at most 1", text);
    }
    memcpy(field, &share, sizeof share);
    return true;
}

static bool set_flag(const ConfigOption *option, const char *text, void *field, Error *error)
{
    static const char *const words[] = {"off", "on", "false", "true", "no", "yes", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(text, words[i])) {
            *(bool *)field = i % 2;
            return true;
        }
    return refuse(option, text, error);
}

static bool set_choice(const ConfigOption *option, const char *text, void *field, Error *error)
{
    char names[200] = "";
    for (const OptionChoice *choice = option->choices; choice->name; choice++) {
        if (!strcmp(text, choice->name)) {
            memcpy(field, &choice->value, sizeof choice->value);
            return true;
        }
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", choice->name);
    }
    return error_set_param(error, ERR_INVALID, option->name, "'%s' is not one of: %s", text, names);
}

static bool set_text(const ConfigOption *option, const char *text, Config *config, void *field, Error *error)
{
    if (!*text) return error_set_param(error, ERR_INVALID, option->name, "wants a value that is not empty");
    char *copy = arena_strdup(&config->arena, text);
    if (!copy) return error_set_param(error, ERR_NO_MEMORY, option->name, "no memory for %zu bytes", strlen(text));
    *(const char **)field = copy;
    return true;
}

static bool set_field(const ConfigOption *option, const char *text, Config *config, Error *error)
{
    void *field = (char *)config + option->offset;
    switch (option->kind) {
    case OPTION_TEXT:
        return set_text(option, text, config, field, error);
    case OPTION_FLAG:
        return set_flag(option, text, field, error);
    case OPTION_REAL:
        return set_real(option, text, field, error);
    case OPTION_CHOICE:
        return set_choice(option, text, field, error);
    case OPTION_SHARE:
        return set_share(option, text, field, error);
    case OPTION_LIST:
        return set_list(option, text, field, error);
    case OPTION_INTEGER:
    case OPTION_TOKENS:
    case OPTION_BYTES:
    case OPTION_SECONDS:
        return set_whole(option, text, field, error);
    }
    return error_set_param(error, ERR_INTERNAL, option->name, "unknown kind of option");
}

bool option_set_value(const ConfigOption *option, const char *text, Config *config, Error *error)
{
    if (!set_field(option, text, config, error)) return false;
    if (option->seen_offset) *(bool *)((char *)config + option->seen_offset) = true;
    return true;
}
