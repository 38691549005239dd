/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/jinja_utf8.h"
#include "engine/text/jinja_run.h"

#include <string.h>
#include <utf8proc.h>

static size_t decode(JText text, size_t at, int32_t *ret_char)
{
    utf8proc_int32_t c;
    size_t left = text.n - at;
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text.data + at, (utf8proc_ssize_t)left, &c);
    if (n < 1) {
        *ret_char = (uint8_t)text.data[at];
        return 1;
    }
    *ret_char = c;
    return (size_t)n;
}

size_t jinja_char_bytes(JText text, size_t at)
{
    int32_t c;
    return (uint8_t)text.data[at] < 0x80 ? 1 : decode(text, at, &c);
}

int32_t jinja_char_at(JText text, size_t at)
{
    int32_t c;
    (void)decode(text, at, &c);
    return c;
}

size_t jinja_char_count(JText text)
{
    size_t count = 0;
    for (size_t at = 0; at < text.n; at += jinja_char_bytes(text, at)) count++;
    return count;
}

size_t jinja_char_offset(JText text, size_t index)
{
    size_t at = 0;
    while (at < text.n && index--) at += jinja_char_bytes(text, at);
    return at;
}

JText jinja_text_part(JText text, size_t start, size_t end)
{
    if (start >= end) return (JText){.data = "", .safe = text.safe};
    text.data += start;
    if (text.marks) text.marks += start;
    text.n = end - start;
    return text;
}

bool jinja_is_space(int32_t c)
{
    if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t jinja_text_find(JText text, JText needle, size_t from)
{
    if (from > text.n) return SIZE_MAX;
    if (needle.n == 0) return from;
    if (needle.n > text.n - from) return SIZE_MAX;
    const char *found = memmem(text.data + from, text.n - from, needle.data, needle.n);
    return found ? (size_t)(found - text.data) : SIZE_MAX;
}

size_t jinja_text_find_last(JText text, JText needle)
{
    if (needle.n > text.n) return SIZE_MAX;
    for (size_t at = text.n - needle.n + 1; at-- > 0;)
        if (needle.n == 0 || memcmp(text.data + at, needle.data, needle.n) == 0) return at;
    return SIZE_MAX;
}

bool jinja_text_starts(JText text, JText prefix)
{
    return prefix.n <= text.n && jinja_text_equal(jinja_text_part(text, 0, prefix.n), prefix);
}

bool jinja_text_ends(JText text, JText suffix)
{
    return suffix.n <= text.n && jinja_text_equal(jinja_text_part(text, text.n - suffix.n, text.n), suffix);
}

static bool strips(JText text, size_t at, size_t n, const JText *chars)
{
    if (!chars) return jinja_is_space(jinja_char_at(text, at));
    for (size_t i = 0; i < chars->n;) {
        size_t m = jinja_char_bytes(*chars, i);
        if (m == n && memcmp(text.data + at, chars->data + i, n) == 0) return true;
        i += m;
    }
    return false;
}

/* Where the character that ends at 'end' begins. */
static size_t char_before(JText text, size_t end)
{
    for (size_t n = 2; n <= 4 && n <= end; n++)
        if (((uint8_t)text.data[end - n] & 0xC0) == 0xC0)
            return jinja_char_bytes(text, end - n) == n ? end - n : end - 1;
    return end - 1;
}

JText jinja_text_strip(JText text, const JText *chars, int sides)
{
    size_t start = 0, end = text.n;
    while ((sides & J_STRIP_LEFT) && start < end) {
        size_t n = jinja_char_bytes(text, start);
        if (!strips(text, start, n, chars)) break;
        start += n;
    }
    while ((sides & J_STRIP_RIGHT) && start < end) {
        size_t at = char_before(text, end);
        if (!strips(text, at, end - at, chars)) break;
        end = at;
    }
    return jinja_text_part(text, start, end);
}

static bool is_cased(int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

static bool breaks_word(int32_t c)
{
    return jinja_is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

enum { SHARP_S = 0xDF }; /* the one common letter whose upper case is two */

static bool build_cased(JinjaRun *run, JBuild *build, int32_t c, bool upper, uint8_t mark)
{
    if (c == SHARP_S && upper) return jinja_build_bytes(run, build, "SS", 2, mark);
    utf8proc_uint8_t bytes[4];
    utf8proc_ssize_t n = utf8proc_encode_char(upper ? utf8proc_toupper(c) : utf8proc_tolower(c), bytes);
    return jinja_build_bytes(run, build, (const char *)bytes, (size_t)n, mark);
}

bool jinja_text_case(JinjaRun *run, JText text, JCase to, JText *ret)
{
    JBuild build = {0};
    bool at_start = true; /* of a word, or of the text */
    for (size_t at = 0; at < text.n;) {
        int32_t c;
        size_t n = decode(text, at, &c);
        uint8_t mark = text.marks ? text.marks[at] : JINJA_MARK_TEMPLATE;
        bool upper = to == J_CASE_UPPER || (to != J_CASE_LOWER && at_start);
        bool is_utf8 = n > 1 || (uint8_t)text.data[at] < 0x80;
        if (is_utf8 ? !build_cased(run, &build, c, upper, mark)
                    : !jinja_build_bytes(run, &build, text.data + at, 1, mark))
            return false;
        at_start = to == J_CASE_TITLE ? !is_cased(c) : to == J_CASE_TITLE_WORDS && breaks_word(c);
        at += n;
    }
    *ret = jinja_build_done(&build);
    ret->safe = text.safe;
    return jinja_spend(run, text.n / 16);
}

/* Python puts the new text between all characters when the old one is empty. */
static bool replace_empty(JinjaRun *run, JText text, JText to, int64_t count, JBuild *build)
{
    size_t at = 0;
    for (; count != 0; count--) {
        if (!jinja_build_text(run, build, to)) return false;
        if (at == text.n) return true;
        size_t n = jinja_char_bytes(text, at);
        if (!jinja_build_text(run, build, jinja_text_part(text, at, at + n))) return false;
        at += n;
    }
    return jinja_build_text(run, build, jinja_text_part(text, at, text.n));
}

bool jinja_text_replace(JinjaRun *run, JText text, JText from, JText to, int64_t count, JText *ret)
{
    if (!jinja_spend(run, text.n / 64)) return false;
    JBuild build = {0};
    if (from.n == 0) {
        if (!replace_empty(run, text, to, count, &build)) return false;
        *ret = jinja_build_done(&build);
        return true;
    }
    size_t at = 0;
    for (; count != 0; count--) {
        size_t found = jinja_text_find(text, from, at);
        if (found == SIZE_MAX) break;
        if (!jinja_build_text(run, &build, jinja_text_part(text, at, found))) return false;
        if (!jinja_build_text(run, &build, to)) return false;
        at = found + from.n;
    }
    if (at == 0) {
        *ret = text;
        return true;
    }
    if (!jinja_build_text(run, &build, jinja_text_part(text, at, text.n))) return false;
    *ret = jinja_build_done(&build);
    return true;
}

static bool push_part(JinjaRun *run, JList *list, JText text, size_t start, size_t end)
{
    JValue part;
    return jinja_make_text(run, jinja_text_part(text, start, end), &part) && jinja_list_push(run, list, part);
}

static size_t skip_spaces(JText text, size_t at, bool want_space)
{
    while (at < text.n && jinja_is_space(jinja_char_at(text, at)) == want_space) at += jinja_char_bytes(text, at);
    return at;
}

static bool split_spaces(JinjaRun *run, JText text, int64_t max, JList *ret)
{
    size_t at = skip_spaces(text, 0, true);
    for (; at < text.n && max != 0; max--) {
        size_t end = skip_spaces(text, at, false);
        if (!push_part(run, ret, text, at, end)) return false;
        at = skip_spaces(text, end, true);
    }
    return at == text.n || push_part(run, ret, text, at, text.n);
}

static size_t skip_back(JText text, size_t end, bool want_space)
{
    while (end > 0) {
        size_t at = char_before(text, end);
        if (jinja_is_space(jinja_char_at(text, at)) != want_space) break;
        end = at;
    }
    return end;
}

static void reverse_items(JList *list)
{
    for (size_t i = 0; i < list->n / 2; i++) {
        JValue other = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = list->items[i];
        list->items[i] = other;
    }
}

static bool split_spaces_right(JinjaRun *run, JText text, int64_t max, JList *ret)
{
    size_t end = skip_back(text, text.n, true);
    for (; end > 0 && max != 0; max--) {
        size_t at = skip_back(text, end, false);
        if (!push_part(run, ret, text, at, end)) return false;
        end = skip_back(text, at, true);
    }
    if (end > 0 && !push_part(run, ret, text, 0, end)) return false;
    reverse_items(ret);
    return true;
}

static bool split_right(JinjaRun *run, JText text, JText separator, int64_t max, JList *ret)
{
    size_t end = text.n;
    for (; max != 0; max--) {
        size_t found = jinja_text_find_last(jinja_text_part(text, 0, end), separator);
        if (found == SIZE_MAX) break;
        if (!push_part(run, ret, text, found + separator.n, end)) return false;
        end = found;
    }
    if (!push_part(run, ret, text, 0, end)) return false;
    reverse_items(ret);
    return true;
}

bool jinja_text_split(JinjaRun *run, JText text, const JText *separator, int64_t max, bool from_right, JList *ret)
{
    size_t work = separator ? (text.n / 64 + 1) * (separator->n / 64 + 1) : text.n / 16;
    if (!jinja_spend(run, work)) return false;
    if (!separator) return from_right ? split_spaces_right(run, text, max, ret) : split_spaces(run, text, max, ret);
    if (separator->n == 0) return jinja_fail(run, "empty separator");
    if (from_right && max >= 0) return split_right(run, text, *separator, max, ret);
    size_t at = 0;
    for (; max != 0; max--) {
        size_t found = jinja_text_find(text, *separator, at);
        if (found == SIZE_MAX) break;
        if (!push_part(run, ret, text, at, found)) return false;
        at = found + separator->n;
    }
    return push_part(run, ret, text, at, text.n);
}

static bool breaks_line(int32_t c)
{
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool jinja_ends_line(JText text)
{
    return text.n && breaks_line(jinja_char_at(text, char_before(text, text.n)));
}

bool jinja_text_lines(JinjaRun *run, JText text, bool keep_ends, JList *ret)
{
    if (!jinja_spend(run, text.n / 16)) return false;
    size_t start = 0;
    for (size_t at = 0; at < text.n;) {
        int32_t c;
        size_t n = decode(text, at, &c);
        if (!breaks_line(c)) {
            at += n;
            continue;
        }
        size_t after = at + n;
        if (c == '\r' && after < text.n && text.data[after] == '\n') after++;
        if (!push_part(run, ret, text, start, keep_ends ? after : at)) return false;
        start = at = after;
    }
    return start == text.n || push_part(run, ret, text, start, text.n);
}
