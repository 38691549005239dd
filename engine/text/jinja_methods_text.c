/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of strings. */
#include "engine/text/jinja_methods.h"
#include "engine/text/jinja_utf8.h"

#include <string.h>
#include <utf8proc.h>

static JText self_of(const JCall *call)
{
    return *call->self.text;
}

/* A string argument; fails naming the method's need. */
static bool need_text(JinjaRun *run, const JValue *value, JText *ret)
{
    if (value->type != J_TEXT) return jinja_fail(run, "a string method needs a string, not %s", jinja_type_name(value));
    *ret = *value->text;
    return true;
}

static bool optional_text(JinjaRun *run, const JValue *value, JText *ret, bool *ret_given)
{
    *ret_given = !jinja_is_missing(value) && value->type != J_NONE;
    return !*ret_given || need_text(run, value, ret);
}

static bool optional_int(JinjaRun *run, const JValue *value, int64_t absent, int64_t *ret)
{
    *ret = absent;
    if (jinja_is_missing(value) || value->type == J_NONE) return true;
    if (value->type != J_INT)
        return jinja_fail(run, "a string method needs an integer, not %s", jinja_type_name(value));
    *ret = value->integer;
    return true;
}

/* chars */
static bool strip_sides(JinjaRun *run, const JCall *call, int sides, JValue *ret)
{
    JText chars;
    bool given;
    if (!optional_text(run, &call->bound[0], &chars, &given)) return false;
    JText text = self_of(call);
    if (!jinja_spend(run, given ? text.n / 64 * (chars.n / 64 + 1) : text.n / 64)) return false;
    return jinja_make_text(run, jinja_text_strip(text, given ? &chars : NULL, sides), ret);
}

static bool text_strip(JinjaRun *run, const JCall *call, JValue *ret)
{
    return strip_sides(run, call, J_STRIP_LEFT | J_STRIP_RIGHT, ret);
}

static bool text_lstrip(JinjaRun *run, const JCall *call, JValue *ret)
{
    return strip_sides(run, call, J_STRIP_LEFT, ret);
}

static bool text_rstrip(JinjaRun *run, const JCall *call, JValue *ret)
{
    return strip_sides(run, call, J_STRIP_RIGHT, ret);
}

/* sep maxsplit */
static bool split(JinjaRun *run, const JCall *call, bool from_right, JValue *ret)
{
    JText separator;
    bool given;
    int64_t max;
    if (!optional_text(run, &call->bound[0], &separator, &given) || !optional_int(run, &call->bound[1], -1, &max))
        return false;
    return jinja_make_list(run, J_LIST, 0, ret) &&
           jinja_text_split(run, self_of(call), given ? &separator : NULL, max, from_right, ret->list);
}

static bool text_split(JinjaRun *run, const JCall *call, JValue *ret)
{
    return split(run, call, false, ret);
}

static bool text_rsplit(JinjaRun *run, const JCall *call, JValue *ret)
{
    return split(run, call, true, ret);
}

/* keepends */
static bool text_splitlines(JinjaRun *run, const JCall *call, JValue *ret)
{
    bool keep = !jinja_is_missing(&call->bound[0]) && jinja_truth(&call->bound[0]);
    return jinja_make_list(run, J_LIST, 0, ret) && jinja_text_lines(run, self_of(call), keep, ret->list);
}

/* sep */
static bool partition(JinjaRun *run, const JCall *call, bool from_right, JValue *ret)
{
    JText text = self_of(call), separator;
    if (!need_text(run, &call->bound[0], &separator) || !jinja_make_list(run, J_TUPLE, 3, ret)) return false;
    if (separator.n == 0) return jinja_fail(run, "empty separator");
    if (!jinja_spend(run, (text.n / 64 + 1) * (from_right ? separator.n / 64 + 1 : 1))) return false;
    size_t at = from_right ? jinja_text_find_last(text, separator) : jinja_text_find(text, separator, 0);
    JText parts[3] = {text, {.data = ""}, {.data = ""}};
    if (at != SIZE_MAX) {
        parts[0] = jinja_text_part(text, 0, at);
        parts[1] = separator;
        parts[2] = jinja_text_part(text, at + separator.n, text.n);
    } else if (from_right) {
        parts[2] = parts[0];
        parts[0] = parts[1];
    }
    for (int i = 0; i < 3; i++) {
        JValue part;
        if (!jinja_make_text(run, parts[i], &part) || !jinja_list_push(run, ret->list, part)) return false;
    }
    return true;
}

static bool text_partition(JinjaRun *run, const JCall *call, JValue *ret)
{
    return partition(run, call, false, ret);
}

static bool text_rpartition(JinjaRun *run, const JCall *call, JValue *ret)
{
    return partition(run, call, true, ret);
}

/* The part that start and end (bound[1], bound[2]) choose, by characters; *ret_start: its first character's number. */
static bool search_range(JinjaRun *run, const JCall *call, JText *ret, int64_t *ret_start)
{
    JText text = self_of(call);
    *ret = text;
    *ret_start = 0;
    if (jinja_is_missing(&call->bound[1])) return true;
    int64_t n = (int64_t)jinja_char_count(text), start, end;
    if (!optional_int(run, &call->bound[1], 0, &start) || !optional_int(run, &call->bound[2], n, &end)) return false;
    if (start < 0) start = start < -n ? 0 : start + n;
    if (end < 0) end = end < -n ? 0 : end + n;
    if (start > n) start = n;
    if (end > n) end = n;
    *ret = jinja_text_part(text, jinja_char_offset(text, (size_t)start), jinja_char_offset(text, (size_t)end));
    *ret_start = start;
    return jinja_spend(run, text.n / 32);
}

static bool matches_any(JinjaRun *run, JText text, const JValue *what, bool at_end, bool *ret)
{
    JList items = {.items = (JValue *)what, .n = 1};
    if (what->type == J_TUPLE) items = *what->list;
    *ret = false;
    for (size_t i = 0; i < items.n && !*ret; i++) {
        JText part;
        if (!need_text(run, &items.items[i], &part)) return false;
        *ret = at_end ? jinja_text_ends(text, part) : jinja_text_starts(text, part);
    }
    return true;
}

/* prefix start end */
static bool text_startswith(JinjaRun *run, const JCall *call, JValue *ret)
{
    JText text;
    int64_t start;
    bool holds;
    if (!search_range(run, call, &text, &start) || !matches_any(run, text, &call->bound[0], false, &holds))
        return false;
    *ret = jinja_bool(holds);
    return true;
}

/* suffix start end */
static bool text_endswith(JinjaRun *run, const JCall *call, JValue *ret)
{
    JText text;
    int64_t start;
    bool holds;
    if (!search_range(run, call, &text, &start) || !matches_any(run, text, &call->bound[0], true, &holds)) return false;
    *ret = jinja_bool(holds);
    return true;
}

/* sub start end */
static bool find(JinjaRun *run, const JCall *call, bool last, bool must, JValue *ret)
{
    JText text, needle;
    int64_t start;
    if (!need_text(run, &call->bound[0], &needle) || !search_range(run, call, &text, &start)) return false;
    if (!jinja_spend(run, (text.n / 64 + 1) * (last ? needle.n / 64 + 1 : 1))) return false;
    size_t at = last ? jinja_text_find_last(text, needle) : jinja_text_find(text, needle, 0);
    if (at == SIZE_MAX && must) return jinja_fail(run, "substring not found");
    *ret = jinja_int(at == SIZE_MAX ? -1 : start + (int64_t)jinja_char_count(jinja_text_part(text, 0, at)));
    return true;
}

static bool text_find(JinjaRun *run, const JCall *call, JValue *ret)
{
    return find(run, call, false, false, ret);
}

static bool text_rfind(JinjaRun *run, const JCall *call, JValue *ret)
{
    return find(run, call, true, false, ret);
}

static bool text_index(JinjaRun *run, const JCall *call, JValue *ret)
{
    return find(run, call, false, true, ret);
}

static bool text_rindex(JinjaRun *run, const JCall *call, JValue *ret)
{
    return find(run, call, true, true, ret);
}

/* sub start end */
static bool text_count(JinjaRun *run, const JCall *call, JValue *ret)
{
    JText text, needle;
    int64_t start, n = 0;
    if (!need_text(run, &call->bound[0], &needle) || !search_range(run, call, &text, &start)) return false;
    if (!jinja_spend(run, text.n / 32)) return false;
    if (needle.n == 0) n = (int64_t)jinja_char_count(text) + 1;
    for (size_t at = 0; needle.n && (at = jinja_text_find(text, needle, at)) != SIZE_MAX; at += needle.n) n++;
    *ret = jinja_int(n);
    return true;
}

/* old new count */
static bool text_replace(JinjaRun *run, const JCall *call, JValue *ret)
{
    JText from, to, text;
    int64_t count;
    if (!need_text(run, &call->bound[0], &from) || !need_text(run, &call->bound[1], &to) ||
        !optional_int(run, &call->bound[2], -1, &count))
        return false;
    return jinja_text_replace(run, self_of(call), from, to, count, &text) && jinja_make_text(run, text, ret);
}

static bool text_removeprefix(JinjaRun *run, const JCall *call, JValue *ret)
{
    JText text = self_of(call), part;
    if (!need_text(run, &call->bound[0], &part)) return false;
    return jinja_make_text(run, jinja_text_part(text, jinja_text_starts(text, part) ? part.n : 0, text.n), ret);
}

static bool text_removesuffix(JinjaRun *run, const JCall *call, JValue *ret)
{
    JText text = self_of(call), part;
    if (!need_text(run, &call->bound[0], &part)) return false;
    return jinja_make_text(run, jinja_text_part(text, 0, text.n - (jinja_text_ends(text, part) ? part.n : 0)), ret);
}

static bool change_case(JinjaRun *run, const JCall *call, JCase to, JValue *ret)
{
    JText text;
    return jinja_text_case(run, self_of(call), to, &text) && jinja_make_text(run, text, ret);
}

static bool text_upper(JinjaRun *run, const JCall *call, JValue *ret)
{
    return change_case(run, call, J_CASE_UPPER, ret);
}

static bool text_lower(JinjaRun *run, const JCall *call, JValue *ret)
{
    return change_case(run, call, J_CASE_LOWER, ret);
}

static bool text_title(JinjaRun *run, const JCall *call, JValue *ret)
{
    return change_case(run, call, J_CASE_TITLE, ret);
}

static bool text_capitalize(JinjaRun *run, const JCall *call, JValue *ret)
{
    return change_case(run, call, J_CASE_CAPITAL, ret);
}

/* iterable */
static bool text_join(JinjaRun *run, const JCall *call, JValue *ret)
{
    JList items;
    JBuild build = {0};
    if (!jinja_items(run, &call->bound[0], &items)) return false;
    for (size_t i = 0; i < items.n; i++) {
        JText part;
        if (!need_text(run, &items.items[i], &part)) return false;
        if (i && !jinja_build_text(run, &build, self_of(call))) return false;
        if (!jinja_build_text(run, &build, part)) return false;
    }
    return jinja_make_text(run, jinja_build_done(&build), ret);
}

static bool text_format(JinjaRun *run, const JCall *call, JValue *ret)
{
    return jinja_format_braces(run, self_of(call), call, ret);
}

/* width fillchar */
static bool pad(JinjaRun *run, const JCall *call, bool left, bool right, char fill, JValue *ret)
{
    JText text = self_of(call), filler = {.data = &fill, .n = 1};
    int64_t width;
    bool given;
    if (!optional_int(run, &call->bound[0], 0, &width) || !optional_text(run, &call->bound[1], &filler, &given))
        return false;
    if (jinja_char_count(filler) != 1) return jinja_fail(run, "the fill must be one character");
    int64_t missing = width > 0 ? width - (int64_t)jinja_char_count(text) : 0;
    if (missing < 0) missing = 0;
    int64_t before = !left ? 0 : !right ? missing : missing / 2 + (missing & width & 1); /* as CPython centres */
    JBuild build = {0};
    for (int64_t i = 0; i < before; i++)
        if (!jinja_spend(run, 1) || !jinja_build_text(run, &build, filler)) return false;
    if (!jinja_build_text(run, &build, text)) return false;
    for (int64_t i = before; i < missing; i++)
        if (!jinja_spend(run, 1) || !jinja_build_text(run, &build, filler)) return false;
    return jinja_make_text(run, jinja_build_done(&build), ret);
}

static bool text_ljust(JinjaRun *run, const JCall *call, JValue *ret)
{
    return pad(run, call, false, true, ' ', ret);
}

static bool text_rjust(JinjaRun *run, const JCall *call, JValue *ret)
{
    return pad(run, call, true, false, ' ', ret);
}

static bool text_center(JinjaRun *run, const JCall *call, JValue *ret)
{
    return pad(run, call, true, true, ' ', ret);
}

/* width */
static bool text_zfill(JinjaRun *run, const JCall *call, JValue *ret)
{
    JText text = self_of(call);
    int64_t width;
    if (!optional_int(run, &call->bound[0], 0, &width)) return false;
    size_t sign = text.n && (text.data[0] == '-' || text.data[0] == '+');
    JBuild build = {0};
    if (!jinja_build_text(run, &build, jinja_text_part(text, 0, sign))) return false;
    for (int64_t i = (int64_t)jinja_char_count(text); i < width; i++)
        if (!jinja_spend(run, 1) || !jinja_build_bytes(run, &build, "0", 1, JINJA_MARK_TEMPLATE)) return false;
    return jinja_build_text(run, &build, jinja_text_part(text, sign, text.n)) &&
           jinja_make_text(run, jinja_build_done(&build), ret);
}

/* ---- what the characters are ---- */

static bool is_alpha(int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

static bool is_decimal(int32_t c)
{
    return utf8proc_category(c) == UTF8PROC_CATEGORY_ND;
}

static bool is_numeric(int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

static bool is_alnum(int32_t c)
{
    return is_alpha(c) || is_numeric(c);
}

static bool all_are(JinjaRun *run, const JCall *call, bool (*is)(int32_t), JValue *ret)
{
    JText text = self_of(call);
    bool all = text.n > 0;
    for (size_t at = 0; all && at < text.n; at += jinja_char_bytes(text, at)) all = is(jinja_char_at(text, at));
    *ret = jinja_bool(all);
    return jinja_spend(run, text.n / 32);
}

static bool text_isalpha(JinjaRun *run, const JCall *call, JValue *ret)
{
    return all_are(run, call, is_alpha, ret);
}

static bool text_isdigit(JinjaRun *run, const JCall *call, JValue *ret)
{
    return all_are(run, call, is_decimal, ret);
}

static bool text_isnumeric(JinjaRun *run, const JCall *call, JValue *ret)
{
    return all_are(run, call, is_numeric, ret);
}

static bool text_isalnum(JinjaRun *run, const JCall *call, JValue *ret)
{
    return all_are(run, call, is_alnum, ret);
}

static bool text_isspace(JinjaRun *run, const JCall *call, JValue *ret)
{
    return all_are(run, call, jinja_is_space, ret);
}

static bool run_test(JinjaRun *run, const JCall *call, JText name, JValue *ret)
{
    JCall inner = {.self = call->self};
    return jinja_call_row(run, jinja_test_find(name), &inner, ret);
}

static bool text_isupper(JinjaRun *run, const JCall *call, JValue *ret)
{
    return run_test(run, call, JTEXT("upper"), ret);
}

static bool text_islower(JinjaRun *run, const JCall *call, JValue *ret)
{
    return run_test(run, call, JTEXT("lower"), ret);
}

static const JCallRow methods[] = {
    {"capitalize", text_capitalize, "", 0},
    {"center", text_center, "width fillchar", 1},
    {"count", text_count, "sub start end", 1},
    {"endswith", text_endswith, "suffix start end", 1},
    {"find", text_find, "sub start end", 1},
    {"format", text_format, NULL, 0},
    {"index", text_index, "sub start end", 1},
    {"isalnum", text_isalnum, "", 0},
    {"isalpha", text_isalpha, "", 0},
    {"isdecimal", text_isdigit, "", 0},
    {"isdigit", text_isdigit, "", 0},
    {"islower", text_islower, "", 0},
    {"isnumeric", text_isnumeric, "", 0},
    {"isspace", text_isspace, "", 0},
    {"isupper", text_isupper, "", 0},
    {"join", text_join, "iterable", 1},
    {"ljust", text_ljust, "width fillchar", 1},
    {"lower", text_lower, "", 0},
    {"lstrip", text_lstrip, "chars", 0},
    {"partition", text_partition, "sep", 1},
    {"removeprefix", text_removeprefix, "prefix", 1},
    {"removesuffix", text_removesuffix, "suffix", 1},
    {"replace", text_replace, "old new count", 2},
    {"rfind", text_rfind, "sub start end", 1},
    {"rindex", text_rindex, "sub start end", 1},
    {"rjust", text_rjust, "width fillchar", 1},
    {"rpartition", text_rpartition, "sep", 1},
    {"rsplit", text_rsplit, "sep maxsplit", 0},
    {"rstrip", text_rstrip, "chars", 0},
    {"split", text_split, "sep maxsplit", 0},
    {"splitlines", text_splitlines, "keepends", 0},
    {"startswith", text_startswith, "prefix start end", 1},
    {"strip", text_strip, "chars", 0},
    {"title", text_title, "", 0},
    {"upper", text_upper, "", 0},
    {"zfill", text_zfill, "width", 1},
};

const JCallRow *jinja_text_method_find(JText name)
{
    return jinja_row_find(methods, sizeof methods / sizeof *methods, name);
}
