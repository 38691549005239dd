/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/regex_class.h"

#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

const CodeRange regex_line_breaks[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
const size_t regex_n_line_breaks = COUNT(regex_line_breaks);

/* As in ECMAScript: digits and words are ASCII, blanks are Unicode's. */
static const CodeRange digits[] = {{'0', '9'}}, words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                       blanks[] = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                   {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                   {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

static const struct {
    char name; /* its capital is all the others */
    const CodeRange *ranges;
    size_t n;
} sets[] = {{'d', digits, COUNT(digits)}, {'w', words, COUNT(words)}, {'s', blanks, COUNT(blanks)}};

static void fail(RegexFault *fault, const Source *source, const char *text)
{
    if (!fault->text) *fault = (RegexFault){text, source->at};
}

/* false: the letter names no set. */
static bool push_set(GrammarBuilder *builder, uint32_t letter, RangeList *ranges)
{
    for (size_t i = 0; i < COUNT(sets); i++) {
        if (letter != (uint8_t)sets[i].name && letter != (uint8_t)sets[i].name - 0x20u) continue;
        bool negated = letter != (uint8_t)sets[i].name;
        uint32_t next = 0;
        for (size_t j = 0; j < sets[i].n; j++) {
            const CodeRange *range = &sets[i].ranges[j];
            if (!negated) range_list_push(builder, ranges, range->first, range->last);
            if (negated && range->first > next) range_list_push(builder, ranges, next, range->first - 1);
            next = range->last + 1;
        }
        if (negated) range_list_push(builder, ranges, next, SOURCE_MAX_CODE);
        return true;
    }
    return false;
}

static bool is_high(uint32_t code)
{
    return code >= 0xD800 && code < 0xDC00;
}

/* \u and its digits: four of them, two times four for what lies beyond, or any number in braces. */
static bool read_unicode(Source *source, uint32_t *ret_code)
{
    uint32_t low;
    if (source_take(source, "{")) {
        size_t n = 0;
        while (source->at + n < source->n && source->text[source->at + n] != '}') n++;
        return n >= 1 && n <= 8 && source_hex(source, n, ret_code) && source_take(source, "}");
    }
    if (!source_hex(source, 4, ret_code)) return false;
    if (!is_high(*ret_code)) return *ret_code < 0xDC00 || *ret_code >= 0xE000;
    if (!source_take(source, "\\u") || !source_hex(source, 4, &low) || low < 0xDC00 || low >= 0xE000) return false;
    *ret_code = 0x10000 + ((*ret_code - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

static const struct {
    const char *letters, *text;
} refused[] = {
    {"123456789k", "a back reference is not supported"},
    {"bB", "a word boundary is not supported"},
    {"pP", "a Unicode property is not supported"},
    {"AZzG", "'\\A', '\\Z', '\\z' and '\\G' are not supported; '^' and '$' are"},
    {"QE", "'\\Q' and '\\E' are not supported"},
};

/* One code point; false: the fault is told. */
static bool read_code(Source *source, bool in_class, uint32_t *ret_code, RegexFault *fault)
{
    static const char names[] = "tnrfv", codes[] = "\t\n\r\f\v";
    uint32_t c = source_peek(source);
    const char *found = c && c < 0x80 ? strchr(names, (int)c) : NULL;
    *ret_code = c;
    if (found || (in_class && c == 'b')) *ret_code = found ? (uint8_t)codes[found - names] : '\b';
    for (size_t i = 0; !found && i < COUNT(refused); i++)
        if (c && c < 0x80 && strchr(refused[i].letters, (int)c) && !(in_class && c == 'b')) {
            fail(fault, source, refused[i].text);
            return false;
        }
    if (c == SOURCE_END) fail(fault, source, "the pattern ends behind a backslash");
    if (c == '0') fail(fault, source, "U+0000 cannot be part of an answer");
    if (fault->text) return false;
    size_t at = source->at;
    (void)source_next(source);
    bool ok = true, is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c == 'x')
        ok = source_hex(source, 2, ret_code);
    else if (c == 'u')
        ok = read_unicode(source, ret_code);
    else if (c == 'U')
        ok = source_hex(source, 8, ret_code);
    else if (is_letter && !found && !(in_class && c == 'b'))
        ok = false;
    if (ok) return true;
    source->at = at;
    fail(fault, source,
         c == 'x' || c == 'u' || c == 'U' ? "an escape without the digits of a code point" : "an unknown escape");
    return false;
}

void regex_read_escape(GrammarBuilder *builder, Source *source, bool in_class, RangeList *ranges, RegexFault *fault)
{
    uint32_t code;
    if (push_set(builder, source_peek(source), ranges)) {
        (void)source_next(source);
        return;
    }
    if (read_code(source, in_class, &code, fault)) range_list_push(builder, ranges, code, code);
}

/* One member of a class; is_code: it is a code point, which can begin or end a range. */
static void read_member(GrammarBuilder *builder, Source *source, RangeList *ranges, bool *ret_is_code,
                        RegexFault *fault)
{
    size_t n_before = ranges->n;
    uint32_t c = source_peek(source);
    if (c == SOURCE_END) {
        fail(fault, source, "a class is not closed");
        return;
    }
    if (c == '[' && source->at + 1 < source->n && strchr(":.=", source->text[source->at + 1])) {
        fail(fault, source, "POSIX classes are not supported");
        return;
    }
    (void)source_next(source);
    *ret_is_code = c != '\\' || !strchr("dDwWsS", source->at < source->n ? source->text[source->at] : 'd');
    if (c == '\\')
        regex_read_escape(builder, source, true, ranges, fault);
    else
        range_list_push(builder, ranges, c, c);
    *ret_is_code = *ret_is_code && ranges->n == n_before + 1;
}

/* A '-' with something behind it that is not the end of the class. */
static bool take_dash(Source *source)
{
    if (source->n - source->at < 2 || source->text[source->at] != '-' || source->text[source->at + 1] == ']')
        return false;
    source->at++;
    return true;
}

void regex_read_class(GrammarBuilder *builder, Source *source, RangeList *ranges, bool *ret_negated, RegexFault *fault)
{
    *ret_negated = source_take(source, "^");
    if (source->at < source->n && source->text[source->at] == ']') fail(fault, source, "an empty class");
    while (!fault->text && !source_take(source, "]")) {
        bool is_code, ends_range = false;
        read_member(builder, source, ranges, &is_code, fault);
        if (fault->text || !is_code || ranges->n == 0 || !take_dash(source)) continue;
        uint32_t first = ranges->ranges[--ranges->n].first;
        size_t n_before = ranges->n;
        read_member(builder, source, ranges, &ends_range, fault);
        if (fault->text || ranges->n == n_before) return;
        CodeRange *last = &ranges->ranges[ranges->n - 1];
        if (!ends_range || last->first < first)
            fail(fault, source, "a range that ends before it begins");
        else
            last->first = first;
    }
}
