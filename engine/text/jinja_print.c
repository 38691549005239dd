/* SPDX-License-Identifier: Apache-2.0 */
/* Values as text: str(), repr() and JSON, byte for byte as Python writes them. */
#include "engine/text/jinja_run.h"
#include "engine/text/jinja_utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static bool reserve(JinjaRun *run, JBuild *build, size_t n)
{
    if (n > run->max_text_bytes - build->n) {
        jinja_fail(run, "the template makes a text of more than %zu bytes", run->max_text_bytes);
        run->error->code = ERR_TOO_LARGE; /* what it was given may be to blame */
        return false;
    }
    size_t need = build->n + n;
    if (need <= build->capacity) return true;
    size_t capacity = build->capacity * 2 > need ? build->capacity * 2 : need + 32;
    char *data = jinja_alloc(run, capacity, 2);
    if (!data) return false;
    uint8_t *marks = (uint8_t *)data + capacity;
    if (build->n) {
        memcpy(data, build->data, build->n);
        memcpy(marks, build->marks, build->n);
    }
    *build =
        (JBuild){.data = data, .marks = marks, .n = build->n, .capacity = capacity, .any_marked = build->any_marked};
    return true;
}

bool jinja_build_bytes(JinjaRun *run, JBuild *build, const char *data, size_t n, uint8_t mark)
{
    if (n == 0) return true;
    if (!reserve(run, build, n)) return false;
    memcpy(build->data + build->n, data, n);
    memset(build->marks + build->n, mark, n);
    build->any_marked |= mark != JINJA_MARK_TEMPLATE;
    build->n += n;
    return true;
}

bool jinja_build_text(JinjaRun *run, JBuild *build, JText text)
{
    if (!text.marks) return jinja_build_bytes(run, build, text.data, text.n, JINJA_MARK_TEMPLATE);
    if (text.n == 0) return true;
    if (!reserve(run, build, text.n)) return false;
    memcpy(build->data + build->n, text.data, text.n);
    memcpy(build->marks + build->n, text.marks, text.n);
    build->any_marked = true;
    build->n += text.n;
    return true;
}

static const char *html_escape(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '\'':
        return "&#39;";
    case '"':
        return "&#34;";
    default:
        return NULL;
    }
}

bool jinja_build_escaped(JinjaRun *run, JBuild *build, JText text)
{
    for (size_t i = 0; i < text.n; i++) {
        const char *escape = html_escape(text.data[i]);
        uint8_t mark = text.marks ? text.marks[i] : JINJA_MARK_TEMPLATE;
        if (escape ? !jinja_build_bytes(run, build, escape, strlen(escape), mark)
                   : !jinja_build_bytes(run, build, text.data + i, 1, mark))
            return false;
    }
    return jinja_spend(run, text.n / 16);
}

JText jinja_build_done(const JBuild *build)
{
    if (build->n == 0) return (JText){.data = ""};
    return (JText){.data = build->data, .marks = build->any_marked ? build->marks : NULL, .n = build->n};
}

bool jinja_concat(JinjaRun *run, JText a, JText b, JText *ret)
{
    JBuild *build = a.build;
    if (!build || build->n != a.n || build->data != a.data) {
        build = jinja_alloc(run, 1, sizeof *build);
        if (!build || !jinja_build_text(run, build, a)) return false;
    }
    if (!jinja_build_text(run, build, b)) return false;
    *ret = jinja_build_done(build);
    ret->build = build;
    return true;
}

static bool build_literal(JinjaRun *run, JBuild *build, const char *literal)
{
    return jinja_build_bytes(run, build, literal, strlen(literal), JINJA_MARK_TEMPLATE);
}

/* The shortest digits that read back as the same double, laid out as Python's repr does. */
static void format_float(double d, char out[40])
{
    if (isnan(d) || isinf(d)) {
        strcpy(out, isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
        return;
    }
    char e[40];
    for (int precision = 0; precision <= 17; precision++) {
        snprintf(e, sizeof e, "%.*e", precision, d);
        if (strtod(e, NULL) == d) break;
    }
    int exponent = atoi(strchr(e, 'e') + 1);
    if (exponent < -4 || exponent >= 16) {
        snprintf(out, 40, "%.*se%c%02d", (int)(strchr(e, 'e') - e), e, exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    int digits = (int)(strchr(e, 'e') - e) - (e[0] == '-') - (strchr(e, '.') != NULL);
    int decimals = digits - 1 - exponent;
    snprintf(out, 40, "%.*f", decimals > 1 ? decimals : 1, d);
}

static bool build_float(JinjaRun *run, JBuild *build, double d)
{
    char text[40];
    format_float(d, text);
    return build_literal(run, build, text);
}

static bool build_int(JinjaRun *run, JBuild *build, int64_t i)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, i);
    return build_literal(run, build, text);
}

/* What Python's str.isprintable refuses. */
static bool is_printable(int32_t c)
{
    if (c < 0x80) return c >= 0x20 && c != 0x7F;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

/* The escape of a character, or 0 bytes when it stands for itself. */
static int repr_escape(int32_t c, char quote, char out[12])
{
    if (c == '\\' || c == quote) return snprintf(out, 12, "\\%c", (char)c);
    if (c == '\n') return snprintf(out, 12, "\\n");
    if (c == '\r') return snprintf(out, 12, "\\r");
    if (c == '\t') return snprintf(out, 12, "\\t");
    if (is_printable(c)) return 0;
    return snprintf(out, 12, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
}

static int json_escape(int32_t c, bool ascii, char out[16])
{
    switch (c) {
    case '"':
    case '\\':
        return snprintf(out, 16, "\\%c", (char)c);
    case '\n':
        return snprintf(out, 16, "\\n");
    case '\r':
        return snprintf(out, 16, "\\r");
    case '\t':
        return snprintf(out, 16, "\\t");
    case '\f':
        return snprintf(out, 16, "\\f");
    case '\b':
        return snprintf(out, 16, "\\b");
    default:
        break;
    }
    if (c >= 0x20 && (c < 0x80 || !ascii)) return 0;
    if (c < 0x10000) return snprintf(out, 16, "\\u%04x", (unsigned)c);
    unsigned v = (unsigned)c - 0x10000;
    return snprintf(out, 16, "\\u%04x\\u%04x", 0xD800 + (v >> 10), 0xDC00 + (v & 0x3FF));
}

/* quote 0: JSON. Runs of characters that need no escape are copied at once; an escape has the mark of its character. */
static bool build_quoted(JinjaRun *run, JBuild *build, JText text, char quote, bool ascii)
{
    if (!jinja_spend(run, text.n / 32)) return false;
    if (!jinja_build_bytes(run, build, quote ? &quote : "\"", 1, JINJA_MARK_TEMPLATE)) return false;
    size_t from = 0;
    for (size_t at = 0; at < text.n;) {
        char escape[16];
        int32_t c = jinja_char_at(text, at);
        int n_escape = quote ? repr_escape(c, quote, escape) : json_escape(c, ascii, escape);
        size_t n = jinja_char_bytes(text, at);
        if (n_escape) {
            if (!jinja_build_text(run, build, jinja_text_part(text, from, at))) return false;
            uint8_t mark = text.marks ? text.marks[at] : JINJA_MARK_TEMPLATE;
            if (!jinja_build_bytes(run, build, escape, (size_t)n_escape, mark)) return false;
            from = at + n;
        }
        at += n;
    }
    return jinja_build_text(run, build, jinja_text_part(text, from, text.n)) &&
           jinja_build_bytes(run, build, quote ? &quote : "\"", 1, JINJA_MARK_TEMPLATE);
}

static bool build_repr_text(JinjaRun *run, JBuild *build, JText text)
{
    bool single = text.n && memchr(text.data, '\'', text.n), twice = text.n && memchr(text.data, '"', text.n);
    return build_quoted(run, build, text, single && !twice ? '"' : '\'', false);
}

static bool build_items_repr(JinjaRun *run, JBuild *build, const JValue *value)
{
    const JList *list = value->list;
    bool round = value->type == J_TUPLE;
    if (value->type == J_VIEW && !(build_literal(run, build, list->label) && build_literal(run, build, "(")))
        return false;
    if (!build_literal(run, build, round ? "(" : "[")) return false;
    for (size_t i = 0; i < list->n; i++) {
        if (i && !build_literal(run, build, ", ")) return false;
        if (!jinja_build_repr(run, build, &list->items[i])) return false;
    }
    if (round && list->n == 1 && !build_literal(run, build, ",")) return false;
    return build_literal(run, build, round ? ")" : value->type == J_VIEW ? "])" : "]");
}

static bool build_dict_repr(JinjaRun *run, JBuild *build, const JDict *dict)
{
    if (!build_literal(run, build, "{")) return false;
    for (size_t i = 0; i < dict->n; i++) {
        if (i && !build_literal(run, build, ", ")) return false;
        if (!jinja_build_repr(run, build, &dict->entries[i].key) || !build_literal(run, build, ": ") ||
            !jinja_build_repr(run, build, &dict->entries[i].value))
            return false;
    }
    return build_literal(run, build, "}");
}

static bool build_range_repr(JinjaRun *run, JBuild *build, const JList *range)
{
    char text[96];
    int n = snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64, range->start, range->stop);
    if (range->step != 1) snprintf(text + n, sizeof text - (size_t)n, ", %" PRId64, range->step);
    return build_literal(run, build, text) && build_literal(run, build, ")");
}

static bool build_container(JinjaRun *run, JBuild *build, const JValue *value)
{
    if (run->value_depth >= JINJA_MAX_VALUE_DEPTH) return jinja_fail(run, "a value is nested too deeply to print");
    run->value_depth++;
    bool ok = value->type == J_DICT ? build_dict_repr(run, build, value->dict) : build_items_repr(run, build, value);
    run->value_depth--;
    return ok;
}

bool jinja_build_repr(JinjaRun *run, JBuild *build, const JValue *value)
{
    if (!jinja_spend(run, 1)) return false;
    switch (value->type) {
    case J_UNDEFINED:
        return build_literal(run, build, "Undefined");
    case J_NONE:
        return build_literal(run, build, "None");
    case J_BOOL:
        return build_literal(run, build, value->boolean ? "True" : "False");
    case J_INT:
        return build_int(run, build, value->integer);
    case J_FLOAT:
        return build_float(run, build, value->real);
    case J_TEXT:
        return build_repr_text(run, build, *value->text);
    case J_RANGE:
        return build_range_repr(run, build, value->list);
    case J_LIST:
    case J_TUPLE:
    case J_VIEW:
    case J_DICT:
        return build_container(run, build, value);
    default:
        return build_literal(run, build, "<") && build_literal(run, build, jinja_type_name(value)) &&
               build_literal(run, build, ">");
    }
}

bool jinja_build_str(JinjaRun *run, JBuild *build, const JValue *value)
{
    if (value->type == J_TEXT) return jinja_build_text(run, build, *value->text);
    return value->type == J_UNDEFINED || jinja_build_repr(run, build, value);
}

bool jinja_str(JinjaRun *run, const JValue *value, JText *ret)
{
    if (value->type == J_TEXT) {
        *ret = *value->text;
        return true;
    }
    JBuild build = {0};
    if (!jinja_build_str(run, &build, value)) return false;
    *ret = jinja_build_done(&build);
    return true;
}

/* ---- JSON ---- */

static bool json_break(JinjaRun *run, JBuild *build, const JsonStyle *style, uint32_t level)
{
    if (!style->pretty) return true;
    if (!build_literal(run, build, "\n")) return false;
    for (uint32_t i = 0; i < level; i++)
        if (!jinja_build_text(run, build, style->indent)) return false;
    return true;
}

static bool build_json(JinjaRun *run, JBuild *build, const JsonStyle *style, const JValue *value, uint32_t level);

static bool build_json_list(JinjaRun *run, JBuild *build, const JsonStyle *style, const JList *list, uint32_t level)
{
    if (list->n == 0) return build_literal(run, build, "[]");
    if (!build_literal(run, build, "[")) return false;
    for (size_t i = 0; i < list->n; i++) {
        if (i && !jinja_build_text(run, build, style->item_separator)) return false;
        if (!json_break(run, build, style, level + 1)) return false;
        if (!build_json(run, build, style, &list->items[i], level + 1)) return false;
    }
    return json_break(run, build, style, level) && build_literal(run, build, "]");
}

static bool build_json_key(JinjaRun *run, JBuild *build, const JsonStyle *style, const JValue *key)
{
    if (key->type == J_TEXT) return build_quoted(run, build, *key->text, 0, style->ascii);
    if (!jinja_is_number(key) && key->type != J_NONE)
        return jinja_fail(run, "keys must be str, int, float, bool or None, not %s", jinja_type_name(key));
    return build_literal(run, build, "\"") && build_json(run, build, style, key, 0) && build_literal(run, build, "\"");
}

static bool sorted_entries(JinjaRun *run, const JDict *dict, JEntry **ret);

static bool build_json_dict(JinjaRun *run, JBuild *build, const JsonStyle *style, const JDict *dict, uint32_t level)
{
    if (dict->n == 0) return build_literal(run, build, "{}");
    JEntry *entries = dict->entries;
    if (style->sort_keys && !sorted_entries(run, dict, &entries)) return false;
    if (!build_literal(run, build, "{")) return false;
    for (size_t i = 0; i < dict->n; i++) {
        if (i && !jinja_build_text(run, build, style->item_separator)) return false;
        if (!json_break(run, build, style, level + 1)) return false;
        if (!build_json_key(run, build, style, &entries[i].key)) return false;
        if (!jinja_build_text(run, build, style->key_separator)) return false;
        if (!build_json(run, build, style, &entries[i].value, level + 1)) return false;
    }
    return json_break(run, build, style, level) && build_literal(run, build, "}");
}

static bool sorted_entries(JinjaRun *run, const JDict *dict, JEntry **ret)
{
    JValue keys;
    if (!jinja_make_list(run, J_LIST, dict->n, &keys)) return false;
    for (size_t i = 0; i < dict->n; i++) {
        JValue pair;
        if (!jinja_make_pair(run, dict->entries[i].key, jinja_int((int64_t)i), &pair)) return false;
        if (!jinja_list_push(run, keys.list, pair)) return false;
    }
    if (!jinja_sort_pairs(run, keys.list, false)) return false;
    JEntry *entries = jinja_alloc(run, dict->n, sizeof *entries);
    if (!entries) return false;
    for (size_t i = 0; i < dict->n; i++) entries[i] = dict->entries[keys.list->items[i].list->items[1].integer];
    *ret = entries;
    return true;
}

static bool build_json_float(JinjaRun *run, JBuild *build, double d)
{
    if (isnan(d)) return build_literal(run, build, "NaN");
    if (isinf(d)) return build_literal(run, build, d < 0 ? "-Infinity" : "Infinity");
    return build_float(run, build, d);
}

static bool build_json(JinjaRun *run, JBuild *build, const JsonStyle *style, const JValue *value, uint32_t level)
{
    if (!jinja_spend(run, 1)) return false;
    if (level >= JINJA_MAX_VALUE_DEPTH) return jinja_fail(run, "a value is nested too deeply for JSON");
    switch (value->type) {
    case J_NONE:
        return build_literal(run, build, "null");
    case J_BOOL:
        return build_literal(run, build, value->boolean ? "true" : "false");
    case J_INT:
        return build_int(run, build, value->integer);
    case J_FLOAT:
        return build_json_float(run, build, value->real);
    case J_TEXT:
        return build_quoted(run, build, *value->text, 0, style->ascii);
    case J_LIST:
    case J_TUPLE:
        return build_json_list(run, build, style, value->list, level);
    case J_DICT:
        return build_json_dict(run, build, style, value->dict, level);
    default:
        return jinja_fail(run, "Object of type %s is not JSON serializable", jinja_type_name(value));
    }
}

bool jinja_build_json(JinjaRun *run, JBuild *build, const JsonStyle *style, const JValue *value)
{
    return build_json(run, build, style, value, 0);
}
