/* SPDX-License-Identifier: Apache-2.0 */
/* Python's two ways of formatting: '%s' % x and '{}'.format(x), as far as templates go. */
#include "engine/text/jinja_filters.h"
#include "engine/text/jinja_utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WIDTH = 1000, MAX_PRECISION = 50 };

typedef struct FormatSpec {
    char align; /* '<' '>' '^' '=' or 0 */
    JText fill; /* one character, or none: a blank */
    char sign;  /* '+', ' ' or 0 */
    bool alternate, comma;
    int width, precision; /* -1: not given */
    char type;            /* 0: the value's own */
} FormatSpec;

static size_t read_number(JText text, size_t at, int *ret)
{
    int value = 0;
    size_t start = at;
    for (; at < text.n && text.data[at] >= '0' && text.data[at] <= '9'; at++)
        if (value <= MAX_WIDTH) value = value * 10 + (text.data[at] - '0');
    if (at > start) *ret = value;
    return at;
}

static bool build_fill(JinjaRun *run, JBuild *build, JText fill, size_t times)
{
    if (fill.n == 0) fill = JTEXT(" ");
    for (size_t i = 0; i < times; i++)
        if (!jinja_build_text(run, build, fill)) return false;
    return true;
}

static bool build_aligned(JinjaRun *run, JBuild *build, const FormatSpec *spec, JText text, char natural)
{
    size_t n = jinja_char_count(text), width = spec->width > 0 ? (size_t)spec->width : 0;
    size_t missing = width > n ? width - n : 0;
    char align = spec->align ? spec->align : natural;
    size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
    if (align == '=' && missing && text.n && (text.data[0] == '-' || text.data[0] == '+' || text.data[0] == ' ')) {
        if (!jinja_build_text(run, build, jinja_text_part(text, 0, 1))) return false;
        text = jinja_text_part(text, 1, text.n);
    }
    return build_fill(run, build, spec->fill, before) && jinja_build_text(run, build, text) &&
           build_fill(run, build, spec->fill, missing - before);
}

/* Digits in threes, in place; room for a third more. */
static void add_commas(char *text)
{
    char *digits = text + strspn(text, "+- ");
    size_t n = strspn(digits, "0123456789");
    for (size_t at = n; at > 3;) {
        at -= 3;
        memmove(digits + at + 1, digits + at, strlen(digits + at) + 1);
        digits[at] = ',';
    }
}

static bool format_integer(JinjaRun *run, JBuild *build, const FormatSpec *spec, int64_t value)
{
    char text[128], digits[96];
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    char type = spec->type ? spec->type : 'd';
    const char *prefix = !spec->alternate ? "" : type == 'x' ? "0x" : type == 'X' ? "0X" : type == 'o' ? "0o" : "";
    snprintf(digits, sizeof digits,
             type == 'x'   ? "%" PRIx64
             : type == 'X' ? "%" PRIX64
             : type == 'o' ? "%" PRIo64
                           : "%" PRIu64,
             magnitude);
    char sign[2] = {value < 0 ? '-' : spec->sign, '\0'};
    snprintf(text, sizeof text, "%s%s%s", sign, prefix, digits);
    if (spec->comma) add_commas(text);
    return build_aligned(run, build, spec, (JText){.data = text, .n = strlen(text)}, '>');
}

static bool format_real(JinjaRun *run, JBuild *build, const FormatSpec *spec, double value)
{
    char text[600], format[16];
    bool percent = spec->type == '%';
    char type = percent || !spec->type ? 'f' : spec->type;
    int precision = spec->precision < 0 ? 6 : spec->precision;
    if (precision > MAX_PRECISION) return jinja_fail(run, "a format's precision is over %d", MAX_PRECISION);
    snprintf(format, sizeof format, "%%%s%s.*%c",
             spec->sign == '+' ? "+"
             : spec->sign      ? " "
                               : "",
             spec->alternate ? "#" : "", type);
    int n = snprintf(text, sizeof text - 160, format, precision, percent ? value * 100 : value);
    if (n < 0 || n >= (int)sizeof text - 160) return jinja_fail(run, "a formatted number is too long");
    if (spec->comma) add_commas(text);
    if (percent) strcat(text, "%");
    return build_aligned(run, build, spec, (JText){.data = text, .n = strlen(text)}, '>');
}

static bool format_text(JinjaRun *run, JBuild *build, const FormatSpec *spec, JText text)
{
    if (spec->precision >= 0) text = jinja_text_part(text, 0, jinja_char_offset(text, (size_t)spec->precision));
    return build_aligned(run, build, spec, text, '<');
}

static double as_real(const JValue *value)
{
    return value->type == J_FLOAT ? value->real : value->type == J_INT ? (double)value->integer : value->boolean;
}

static int64_t as_integer(const JValue *value)
{
    return value->type == J_INT ? value->integer : value->type == J_BOOL ? value->boolean : (int64_t)value->real;
}

static bool is_real_type(char type)
{
    return type && strchr("eEfFgG%", type);
}

static bool format_value(JinjaRun *run, JBuild *build, const FormatSpec *spec, const JValue *value)
{
    if (spec->width > MAX_WIDTH) return jinja_fail(run, "a format's width is over %d", MAX_WIDTH);
    bool number = jinja_is_number(value), integer = number && value->type != J_FLOAT;
    if (number && is_real_type(spec->type)) return format_real(run, build, spec, as_real(value));
    if (integer && value->type == J_INT && (spec->type == 0 || strchr("dxXo", spec->type)))
        return format_integer(run, build, spec, as_integer(value));
    if (value->type == J_BOOL && spec->type && strchr("dxXo", spec->type))
        return format_integer(run, build, spec, as_integer(value));
    if (value->type == J_FLOAT && spec->precision >= 0 && spec->type == 0) {
        FormatSpec general = *spec;
        general.type = 'g';
        return format_real(run, build, &general, value->real);
    }
    if (spec->type && spec->type != 's')
        return jinja_fail(run, "format code '%c' does not fit a value of type '%s'", spec->type,
                          jinja_type_name(value));
    JText text;
    if (!jinja_str(run, value, &text)) return false;
    if (!number) return format_text(run, build, spec, text);
    return build_aligned(run, build, spec, text, '>');
}

/* ---- '%' ---- */

typedef struct PercentArgs {
    const JCall *call;
    size_t next;
    bool named;
} PercentArgs;

static bool next_value(JinjaRun *run, PercentArgs *args, const JValue **ret)
{
    if (args->next >= args->call->n_args) return jinja_fail(run, "not enough arguments for format string");
    *ret = &args->call->args[args->next++];
    return true;
}

/* %(name)s: from the keywords, or from the one argument when that is a dictionary. */
static bool named_value(JinjaRun *run, PercentArgs *args, JText name, const JValue **ret)
{
    args->named = true;
    for (size_t i = 0; i < args->call->n_keywords; i++) {
        if (!jinja_text_equal(args->call->keywords[i].name, name)) continue;
        *ret = &args->call->keywords[i].value;
        return true;
    }
    JEntry *entry = NULL;
    if (args->call->n_args == 1 && args->call->args[0].type == J_DICT &&
        !jinja_dict_find(run, args->call->args[0].dict, &(JValue){.type = J_TEXT, .text = &name}, &entry))
        return false;
    if (!entry) return jinja_fail(run, "the format names '%.*s', which is not given", (int)name.n, name.data);
    *ret = &entry->value;
    return true;
}

static size_t percent_flags(JText format, size_t at, FormatSpec *spec)
{
    for (; at < format.n && strchr("-+ 0#", format.data[at]) && format.data[at]; at++) {
        if (format.data[at] == '-')
            spec->align = '<';
        else if (format.data[at] == '#')
            spec->alternate = true;
        else if (format.data[at] != '0')
            spec->sign = format.data[at];
        else if (!spec->align) {
            spec->align = '=';
            spec->fill = JTEXT("0");
        }
    }
    at = read_number(format, at, &spec->width);
    if (at < format.n && format.data[at] == '.') {
        spec->precision = 0;
        at = read_number(format, at + 1, &spec->precision);
    }
    return at;
}

static bool percent_value(JinjaRun *run, JBuild *build, FormatSpec *spec, char type, const JValue *value)
{
    if (type == 's' || type == 'r') {
        JBuild text = {0};
        if (!(type == 'r' ? jinja_build_repr(run, &text, value) : jinja_build_str(run, &text, value))) return false;
        if (!spec->align) spec->align = '>';
        return format_text(run, build, spec, jinja_build_done(&text));
    }
    if (!strchr("diuxXoeEfFgG", type) || !type) return jinja_fail(run, "unsupported format character '%c'", type);
    if (!jinja_is_number(value))
        return jinja_fail(run, "%%%c format: a number is required, not %s", type, jinja_type_name(value));
    spec->type = type == 'i' || type == 'u' ? 'd' : type;
    if (is_real_type(type)) return format_value(run, build, spec, value);
    if (value->type == J_FLOAT && !(value->real > -9.2e18 && value->real < 9.2e18))
        return jinja_fail(run, "a number does not fit 64 bits");
    JValue integer = jinja_int(as_integer(value));
    return format_value(run, build, spec, &integer);
}

static bool percent_field(JinjaRun *run, JBuild *build, JText format, size_t *at, PercentArgs *args)
{
    FormatSpec spec = {.width = -1, .precision = -1};
    const JValue *value = NULL;
    if (*at < format.n && format.data[*at] == '(') {
        size_t end = jinja_text_find(format, JTEXT(")"), *at);
        if (end == SIZE_MAX) return jinja_fail(run, "incomplete format key");
        if (!named_value(run, args, jinja_text_part(format, *at + 1, end), &value)) return false;
        *at = end + 1;
    }
    *at = percent_flags(format, *at, &spec);
    if (*at >= format.n) return jinja_fail(run, "incomplete format");
    char type = format.data[(*at)++];
    if (type == '%') return jinja_build_bytes(run, build, "%", 1, JINJA_MARK_TEMPLATE);
    if (!value && !next_value(run, args, &value)) return false;
    return percent_value(run, build, &spec, type, value);
}

bool jinja_format_percent(JinjaRun *run, JText format, const JCall *call, JValue *ret)
{
    JBuild build = {0};
    PercentArgs args = {.call = call};
    for (size_t at = 0; at < format.n;) {
        size_t percent = jinja_text_find(format, JTEXT("%"), at);
        if (percent == SIZE_MAX) percent = format.n;
        if (!jinja_build_text(run, &build, jinja_text_part(format, at, percent))) return false;
        at = percent + 1;
        if (percent < format.n && (!jinja_spend(run, 1) || !percent_field(run, &build, format, &at, &args)))
            return false;
    }
    /* Python does not mind one container that the format has no use for. */
    JType first = call->n_args == 1 ? call->args[0].type : J_NONE;
    bool container = first == J_DICT || first == J_LIST || first == J_RANGE;
    if (!args.named && !container && args.next < call->n_args)
        return jinja_fail(run, "not all arguments converted during string formatting");
    return jinja_make_text(run, jinja_build_done(&build), ret);
}

/* ---- '{}' ---- */

typedef struct BraceArgs {
    const JCall *call;
    size_t next;
} BraceArgs;

/* name, number or nothing, then .attribute and [item] */
static bool brace_value(JinjaRun *run, BraceArgs *args, JText field, JValue *ret)
{
    size_t end = 0;
    while (end < field.n && field.data[end] != '.' && field.data[end] != '[') end++;
    JText first = jinja_text_part(field, 0, end);
    int number = -1;
    bool numbered = read_number(first, 0, &number) == first.n;
    if (numbered) {
        size_t index = first.n ? (size_t)number : args->next++;
        if (index >= args->call->n_args) return jinja_fail(run, "format: argument %zu is not given", index);
        *ret = args->call->args[index];
    } else {
        size_t i = 0;
        while (i < args->call->n_keywords && !jinja_text_equal(args->call->keywords[i].name, first)) i++;
        if (i == args->call->n_keywords)
            return jinja_fail(run, "format: '%.*s' is not given", (int)(first.n < 64 ? first.n : 64), first.data);
        *ret = args->call->keywords[i].value;
    }
    while (end < field.n) {
        bool bracket = field.data[end] == '[';
        size_t start = end + 1;
        for (end = start;
             end < field.n && (bracket ? field.data[end] != ']' : field.data[end] != '.' && field.data[end] != '[');)
            end++;
        JText part = jinja_text_part(field, start, end);
        JValue path = {.type = J_TEXT, .text = &part};
        if (bracket ? !jinja_path(run, ret, &path, NULL, ret) : !jinja_attribute(run, ret, part, ret)) return false;
        end += bracket;
    }
    return true;
}

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

static bool brace_spec(JinjaRun *run, JText text, FormatSpec *spec)
{
    *spec = (FormatSpec){.width = -1, .precision = -1};
    size_t at = 0, fill = text.n ? jinja_char_bytes(text, 0) : 0;
    if (fill < text.n && is_align(text.data[fill])) {
        spec->fill = jinja_text_part(text, 0, fill);
        spec->align = text.data[fill];
        at = fill + 1;
    } else if (text.n && is_align(text.data[0])) {
        spec->align = text.data[at++];
    }
    if (at < text.n && (text.data[at] == '+' || text.data[at] == ' ' || text.data[at] == '-')) {
        spec->sign = text.data[at] == '-' ? 0 : text.data[at];
        at++;
    }
    if (at < text.n && text.data[at] == '#') {
        spec->alternate = true;
        at++;
    }
    if (at < text.n && text.data[at] == '0' && !spec->align) {
        spec->align = '=';
        spec->fill = JTEXT("0");
    }
    at = read_number(text, at, &spec->width);
    if (at < text.n && text.data[at] == ',') {
        spec->comma = true;
        at++;
    }
    if (at < text.n && text.data[at] == '.') at = read_number(text, at + 1, &spec->precision);
    if (at < text.n) spec->type = text.data[at++];
    if (at == text.n && (!spec->type || strchr("sdxXoeEfFgG%", spec->type))) return true;
    return jinja_fail(run, "unsupported format '%.*s'", (int)(text.n < 64 ? text.n : 64), text.data);
}

static bool brace_field(JinjaRun *run, JBuild *build, JText field, BraceArgs *args)
{
    FormatSpec spec;
    JValue value;
    size_t colon = jinja_text_find(field, JTEXT(":"), 0), name_end = colon == SIZE_MAX ? field.n : colon;
    JText name = jinja_text_part(field, 0, name_end);
    size_t bang = jinja_text_find(name, JTEXT("!"), 0);
    if (!brace_spec(run, colon == SIZE_MAX ? (JText){0} : jinja_text_part(field, colon + 1, field.n), &spec))
        return false;
    if (!brace_value(run, args, bang == SIZE_MAX ? name : jinja_text_part(name, 0, bang), &value)) return false;
    if (bang == SIZE_MAX) return format_value(run, build, &spec, &value);
    JBuild text = {0};
    if (bang + 2 != name.n || (name.data[bang + 1] != 'r' && name.data[bang + 1] != 's'))
        return jinja_fail(run, "unknown conversion in a format");
    if (!(name.data[bang + 1] == 'r' ? jinja_build_repr(run, &text, &value) : jinja_build_str(run, &text, &value)))
        return false;
    return format_text(run, build, &spec, jinja_build_done(&text));
}

bool jinja_format_braces(JinjaRun *run, JText format, const JCall *call, JValue *ret)
{
    JBuild build = {0};
    BraceArgs args = {.call = call};
    for (size_t at = 0; at < format.n;) {
        size_t run_end = at;
        while (run_end < format.n && format.data[run_end] != '{' && format.data[run_end] != '}') run_end++;
        if (!jinja_build_text(run, &build, jinja_text_part(format, at, run_end))) return false;
        if (run_end == format.n) break;
        char c = format.data[run_end];
        if (run_end + 1 < format.n && format.data[run_end + 1] == c) {
            if (!jinja_build_text(run, &build, jinja_text_part(format, run_end, run_end + 1))) return false;
            at = run_end + 2;
            continue;
        }
        size_t end = c == '{' ? jinja_text_find(format, JTEXT("}"), run_end) : SIZE_MAX;
        if (end == SIZE_MAX) return jinja_fail(run, "a single '%c' in a format string", c);
        if (!jinja_spend(run, 1) || !brace_field(run, &build, jinja_text_part(format, run_end + 1, end), &args))
            return false;
        at = end + 1;
    }
    return jinja_make_text(run, jinja_build_done(&build), ret);
}
