/* SPDX-License-Identifier: Apache-2.0 */
/* Filters on text and numbers, and JSON. */
#include "engine/text/jinja_filters.h"
#include "engine/text/jinja_utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool flag(const JValue *argument)
{
    return !jinja_is_missing(argument) && jinja_truth(argument);
}

static bool change_case(JinjaRun *run, const JCall *call, JCase to, JValue *ret)
{
    JText text;
    return jinja_str(run, &call->self, &text) && jinja_text_case(run, text, to, &text) &&
           jinja_make_text(run, text, ret);
}

static bool filter_upper(JinjaRun *run, const JCall *call, JValue *ret)
{
    return change_case(run, call, J_CASE_UPPER, ret);
}

static bool filter_lower(JinjaRun *run, const JCall *call, JValue *ret)
{
    return change_case(run, call, J_CASE_LOWER, ret);
}

static bool filter_title(JinjaRun *run, const JCall *call, JValue *ret)
{
    return change_case(run, call, J_CASE_TITLE_WORDS, ret);
}

static bool filter_capitalize(JinjaRun *run, const JCall *call, JValue *ret)
{
    return change_case(run, call, J_CASE_CAPITAL, ret);
}

static bool filter_string(JinjaRun *run, const JCall *call, JValue *ret)
{
    JText text;
    return jinja_str(run, &call->self, &text) && jinja_make_text(run, text, ret);
}

/* chars */
static bool filter_trim(JinjaRun *run, const JCall *call, JValue *ret)
{
    JText text, chars = {0};
    bool given = !jinja_is_missing(&call->bound[0]) && call->bound[0].type != J_NONE;
    if (!jinja_str(run, &call->self, &text) || (given && !jinja_str(run, &call->bound[0], &chars)) ||
        !jinja_spend(run, text.n / 64 * (chars.n / 64 + 1)))
        return false;
    return jinja_make_text(run, jinja_text_strip(text, given ? &chars : NULL, J_STRIP_LEFT | J_STRIP_RIGHT), ret);
}

/* old new count */
static bool filter_replace(JinjaRun *run, const JCall *call, JValue *ret)
{
    JText text, from, to;
    if (!jinja_str(run, &call->self, &text) || !jinja_str(run, &call->bound[0], &from) ||
        !jinja_str(run, &call->bound[1], &to))
        return false;
    int64_t count = call->bound[2].type == J_INT ? call->bound[2].integer : -1;
    if (!jinja_text_replace(run, text, from, to, count, &text)) return false;
    text.safe = false;
    return jinja_make_text(run, text, ret);
}

static bool build_line(JinjaRun *run, JBuild *build, JText line, JText margin, bool wanted)
{
    return (!wanted || jinja_build_text(run, build, margin)) && jinja_build_text(run, build, line);
}

static bool indent_margin(JinjaRun *run, const JValue *width, JText *ret)
{
    if (width->type == J_TEXT) {
        *ret = *width->text;
        return true;
    }
    int64_t n = jinja_is_missing(width) ? 4 : width->type == J_INT ? width->integer : -1;
    if (n < 0 || n > 1000) return jinja_fail(run, "indent takes a width of 0 to 1000 or a string");
    char *spaces = jinja_alloc(run, (size_t)n + 1, 1);
    if (!spaces) return false;
    memset(spaces, ' ', (size_t)n);
    *ret = (JText){.data = spaces, .n = (size_t)n};
    return true;
}

/* width first blank */
static bool filter_indent(JinjaRun *run, const JCall *call, JValue *ret)
{
    JText text, margin;
    JList lines = {0};
    JBuild build = {0};
    if (!jinja_str(run, &call->self, &text) || !indent_margin(run, &call->bound[0], &margin)) return false;
    if (!jinja_text_lines(run, text, false, &lines)) return false;
    size_t n_lines = lines.n;
    /* A break at the end opens a last, empty line. */
    if (text.n == 0 || jinja_ends_line(text)) n_lines++;
    for (size_t i = 0; i < n_lines; i++) {
        JText line = i < lines.n ? *lines.items[i].text : (JText){0};
        bool wanted = i == 0 ? flag(&call->bound[1]) : line.n > 0 || flag(&call->bound[2]);
        if (i && !jinja_build_bytes(run, &build, "\n", 1, JINJA_MARK_TEMPLATE)) return false;
        if (!build_line(run, &build, line, margin, wanted)) return false;
    }
    return jinja_make_text(run, jinja_build_done(&build), ret);
}

static bool filter_escape(JinjaRun *run, const JCall *call, JValue *ret)
{
    JText text;
    JBuild build = {0};
    if (!jinja_str(run, &call->self, &text)) return false;
    if (!text.safe) {
        if (!jinja_build_escaped(run, &build, text)) return false;
        text = jinja_build_done(&build);
    }
    text.safe = true;
    return jinja_make_text(run, text, ret);
}

static bool filter_safe(JinjaRun *run, const JCall *call, JValue *ret)
{
    JText text;
    if (!jinja_str(run, &call->self, &text)) return false;
    text.safe = true;
    return jinja_make_text(run, text, ret);
}

static bool filter_format(JinjaRun *run, const JCall *call, JValue *ret)
{
    JText text;
    if (call->n_args && call->n_keywords) return jinja_fail(run, "format takes positional or named values, not both");
    return jinja_str(run, &call->self, &text) && jinja_format_percent(run, text, call, ret);
}

/* ---- numbers ---- */

/* The text without blanks around it, NUL-terminated, for strtod and strtoll; false when it does not fit. */
static bool number_text(JText text, char out[64])
{
    text = jinja_text_strip(text, NULL, J_STRIP_LEFT | J_STRIP_RIGHT);
    if (text.n == 0 || text.n > 63 || memchr(text.data, '\0', text.n)) return false;
    memcpy(out, text.data, text.n);
    out[text.n] = '\0';
    return !strpbrk(out, "xXpP");
}

static bool parse_real(const JValue *value, double *ret)
{
    char text[64], *end;
    if (jinja_is_number(value)) {
        *ret = value->type == J_FLOAT ? value->real : value->type == J_INT ? (double)value->integer : value->boolean;
        return true;
    }
    if (value->type != J_TEXT || !number_text(*value->text, text)) return false;
    *ret = strtod(text, &end);
    return *end == '\0';
}

static bool parse_integer(const JValue *value, int base, int64_t *ret)
{
    char text[64], *end;
    if (value->type == J_INT || value->type == J_BOOL) {
        *ret = value->type == J_INT ? value->integer : value->boolean;
        return true;
    }
    if (value->type == J_TEXT && number_text(*value->text, text)) {
        errno = 0;
        *ret = strtoll(text, &end, base);
        if (*end == '\0' && errno == 0) return true;
    }
    double d;
    if (!parse_real(value, &d) || !(fabs(d) < 9.2e18)) return false;
    *ret = (int64_t)d;
    return true;
}

/* default base */
static bool filter_int(JinjaRun *run, const JCall *call, JValue *ret)
{
    if (call->self.type == J_UNDEFINED) return jinja_fail_undefined(run, &call->self);
    int64_t i, base = call->bound[1].type == J_INT ? call->bound[1].integer : 10;
    if (base < 2 || base > 36) return jinja_fail(run, "int takes a base of 2 to 36");
    if (parse_integer(&call->self, (int)base, &i))
        *ret = jinja_int(i);
    else
        *ret = jinja_is_missing(&call->bound[0]) ? jinja_int(0) : call->bound[0];
    return true;
}

/* default */
static bool filter_float(JinjaRun *run, const JCall *call, JValue *ret)
{
    if (call->self.type == J_UNDEFINED) return jinja_fail_undefined(run, &call->self);
    double d;
    if (parse_real(&call->self, &d))
        *ret = jinja_float(d);
    else
        *ret = jinja_is_missing(&call->bound[0]) ? jinja_float(0) : call->bound[0];
    return true;
}

static bool filter_abs(JinjaRun *run, const JCall *call, JValue *ret)
{
    if (call->self.type == J_FLOAT) {
        *ret = jinja_float(fabs(call->self.real));
        return true;
    }
    JValue zero = jinja_int(0);
    int order;
    if (!jinja_compare(run, &call->self, &zero, &order)) return false;
    return jinja_unary(run, order < 0 ? OP_SUB : OP_ADD, &call->self, ret);
}

/* To 'digits' decimals, halves to even of the exact binary value, as Python's round and printf both do. */
static double round_half_even(double d, int digits)
{
    char text[400];
    if (digits < 0) {
        double unit = pow(10, -digits);
        return nearbyint(d / unit) * unit;
    }
    if (fabs(d) > 1e17) return d;
    snprintf(text, sizeof text, "%.*f", digits, d);
    return strtod(text, NULL);
}

/* precision method */
static bool filter_round(JinjaRun *run, const JCall *call, JValue *ret)
{
    if (call->self.type == J_UNDEFINED) return jinja_fail_undefined(run, &call->self);
    if (!jinja_is_number(&call->self))
        return jinja_fail(run, "round needs a number, not %s", jinja_type_name(&call->self));
    int64_t digits = call->bound[0].type == J_INT ? call->bound[0].integer : 0;
    if (digits < -15 || digits > 100) return jinja_fail(run, "round takes a precision of -15 to 100");
    JText method = call->bound[1].type == J_TEXT ? *call->bound[1].text : JTEXT("common");
    bool up = jinja_text_equal(method, JTEXT("ceil")), down = jinja_text_equal(method, JTEXT("floor"));
    if (!up && !down && !jinja_text_equal(method, JTEXT("common")))
        return jinja_fail(run, "round's method is common, ceil or floor");
    if (!up && !down && call->self.type != J_FLOAT && digits >= 0) return jinja_unary(run, OP_ADD, &call->self, ret);
    double d, unit = pow(10, (double)digits);
    if (!parse_real(&call->self, &d)) return false;
    *ret = jinja_float(up ? ceil(d * unit) / unit : down ? floor(d * unit) / unit : round_half_even(d, (int)digits));
    return true;
}

/* ---- JSON ---- */

static bool json_indent(JinjaRun *run, const JValue *indent, JsonStyle *style)
{
    style->pretty = indent->type == J_TEXT || indent->type == J_INT;
    if (!style->pretty) return true;
    JValue width = *indent;
    if (width.type == J_INT && width.integer < 0) width.integer = 0;
    style->item_separator = JTEXT(",");
    return indent_margin(run, &width, &style->indent);
}

static bool json_separators(JinjaRun *run, const JValue *separators, JsonStyle *style)
{
    if (jinja_is_missing(separators) || separators->type == J_NONE) return true;
    JList items;
    if (!jinja_items(run, separators, &items)) return false;
    if (items.n != 2 || items.items[0].type != J_TEXT || items.items[1].type != J_TEXT)
        return jinja_fail(run, "tojson's separators are two strings");
    style->item_separator = *items.items[0].text;
    style->key_separator = *items.items[1].text;
    return true;
}

/* ensure_ascii indent separators sort_keys */
static bool filter_tojson(JinjaRun *run, const JCall *call, JValue *ret)
{
    JsonStyle style = {.item_separator = JTEXT(", "), .key_separator = JTEXT(": ")};
    style.ascii = flag(&call->bound[0]);
    style.sort_keys = flag(&call->bound[3]);
    if (!json_indent(run, &call->bound[1], &style) || !json_separators(run, &call->bound[2], &style)) return false;
    JBuild build = {0};
    return jinja_build_json(run, &build, &style, &call->self) && jinja_make_text(run, jinja_build_done(&build), ret);
}

/* Not Jinja's, but templates of some families use it. Everything in it counts as input. */
static bool filter_from_json(JinjaRun *run, const JCall *call, JValue *ret)
{
    if (call->self.type != J_TEXT) return jinja_fail(run, "from_json needs a string");
    size_t n = call->self.text->n;
    char *copy = jinja_alloc(run, n + 1, 1);
    cJSON *json;
    if (!copy || !jinja_spend(run, n / 8)) return false;
    if (n) memcpy(copy, call->self.text->data, n);
    if (memchr(copy, 0, n)) return jinja_fail(run, "from_json was given text that is not JSON");
    if (!jinja_parse_json(run, copy, &json)) return false;
    if (!json) return jinja_fail(run, "from_json was given text that is not JSON");
    bool ok = jinja_copy_json(run, json, ret);
    cJSON_Delete(json);
    return ok;
}

static const JCallRow filters[] = {
    {"abs", filter_abs, "", 0},
    {"capitalize", filter_capitalize, "", 0},
    {"e", filter_escape, "", 0},
    {"escape", filter_escape, "", 0},
    {"float", filter_float, "default", 0},
    {"format", filter_format, NULL, 0},
    {"from_json", filter_from_json, "", 0},
    {"indent", filter_indent, "width first blank", 0},
    {"int", filter_int, "default base", 0},
    {"lower", filter_lower, "", 0},
    {"replace", filter_replace, "old new count", 2},
    {"round", filter_round, "precision method", 0},
    {"safe", filter_safe, "", 0},
    {"string", filter_string, "", 0},
    {"title", filter_title, "", 0},
    {"tojson", filter_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"trim", filter_trim, "chars", 0},
    {"upper", filter_upper, "", 0},
};

const JCallRow *jinja_scalar_filter_find(JText name)
{
    return jinja_row_find(filters, sizeof filters / sizeof *filters, name);
}
