/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/jinja_lex.h"
#include "engine/text/jinja_utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static uint32_t line_of(JLexer *lexer, size_t at)
{
    for (; lexer->line_at < at; lexer->line_at++) lexer->line += lexer->source[lexer->line_at] == '\n';
    return lexer->line;
}

static bool lex_fail(JLexer *lexer, size_t at, const char *what)
{
    return error_set(lexer->error, ERR_TEMPLATE, "line %u: %s", line_of(lexer, at), what);
}

static JText rest_of(const JLexer *lexer, size_t from, size_t to)
{
    return jinja_text_part((JText){.data = lexer->source, .n = lexer->n}, from, to);
}

static bool looking_at(const JLexer *lexer, size_t at, const char *literal)
{
    size_t n = strlen(literal);
    return n <= lexer->n - at && memcmp(lexer->source + at, literal, n) == 0;
}

static char char_or_nul(const JLexer *lexer, size_t at)
{
    return at < lexer->n ? lexer->source[at] : '\0';
}

static size_t skip_space(const JLexer *lexer, size_t at)
{
    JText text = rest_of(lexer, 0, lexer->n);
    while (at < lexer->n && jinja_is_space(jinja_char_at(text, at))) at += jinja_char_bytes(text, at);
    return at;
}

/* The end of a tag at 'at': "-%}" takes the white space after it, "%}" one newline where trimming is on. 0: no end. */
static size_t tag_end(const JLexer *lexer, size_t at, char first, bool trims)
{
    const char plain[] = {first, '}', '\0'};
    if (looking_at(lexer, at, plain)) return at + 2 + (trims && char_or_nul(lexer, at + 2) == '\n');
    char sign = char_or_nul(lexer, at);
    if (sign != '-' && (sign != '+' || !trims)) return 0;
    if (!looking_at(lexer, at + 1, plain)) return 0;
    return sign == '-' ? skip_space(lexer, at + 3) : at + 3;
}

/* "{% raw %}" or "{% endraw %}" at 'tag': the offset after it, or 0. */
static size_t raw_tag(const JLexer *lexer, size_t tag, const char *word)
{
    if (!looking_at(lexer, tag, "{%")) return 0;
    char sign = char_or_nul(lexer, tag + 2);
    size_t at = skip_space(lexer, tag + 2 + (sign == '-' || sign == '+'));
    if (!looking_at(lexer, at, word)) return 0;
    at = skip_space(lexer, at + strlen(word));
    bool ends = word[0] == 'e';
    if (ends) return tag_end(lexer, at, '%', true);
    if (looking_at(lexer, at, "-%}")) return skip_space(lexer, at + 3);
    return looking_at(lexer, at, "%}") ? at + 2 : 0;
}

static size_t find_tag(const JLexer *lexer, size_t from)
{
    for (size_t at = from; at + 1 < lexer->n; at++) {
        const char *p = memchr(lexer->source + at, '{', lexer->n - 1 - at);
        if (!p) break;
        at = (size_t)(p - lexer->source);
        if (p[1] == '{' || p[1] == '%' || p[1] == '#') return at;
    }
    return SIZE_MAX;
}

/* The data before a tag, with the white space taken off that the tag asks for. */
static JText data_before(const JLexer *lexer, size_t start, size_t tag)
{
    JText data = rest_of(lexer, start, tag);
    char sign = char_or_nul(lexer, tag + 2);
    if (sign == '-') return jinja_text_strip(data, NULL, J_STRIP_RIGHT);
    if (sign == '+' || lexer->source[tag + 1] == '{') return data;
    size_t line = data.n;
    while (line > 0 && data.data[line - 1] != '\n') line--;
    bool at_line_start = line > 0 || start == 0 || lexer->source[start - 1] == '\n';
    if (!at_line_start || jinja_text_strip(jinja_text_part(data, line, data.n), NULL, J_STRIP_LEFT).n) return data;
    return jinja_text_part(data, 0, line);
}

static bool skip_comment(JLexer *lexer, size_t tag)
{
    size_t from = tag + 2;
    if (char_or_nul(lexer, from) == '-' || char_or_nul(lexer, from) == '+') from++;
    size_t found = jinja_text_find(rest_of(lexer, 0, lexer->n), JTEXT("#}"), from);
    if (found == SIZE_MAX) return lex_fail(lexer, tag, "missing end of comment");
    bool strips = found > from && lexer->source[found - 1] == '-',
         keeps = found > from && lexer->source[found - 1] == '+';
    lexer->at = found + 2;
    if (strips)
        lexer->at = skip_space(lexer, lexer->at);
    else if (!keeps && char_or_nul(lexer, lexer->at) == '\n')
        lexer->at++;
    return true;
}

static bool lex_data(JLexer *lexer, JToken *token)
{
    for (;;) {
        size_t start = lexer->at, tag = find_tag(lexer, start);
        *token = (JToken){.type = T_DATA, .line = line_of(lexer, start)};
        if (tag == SIZE_MAX) {
            token->text = rest_of(lexer, start, lexer->n);
            lexer->at = lexer->n;
            if (token->text.n == 0) token->type = T_END;
            return true;
        }
        token->text = data_before(lexer, start, tag);
        size_t after_raw = raw_tag(lexer, tag, "raw");
        char sign = char_or_nul(lexer, tag + 2);
        if (after_raw) {
            lexer->at = after_raw;
            lexer->mode = J_LEX_RAW;
        } else if (lexer->source[tag + 1] == '#') {
            if (!skip_comment(lexer, tag)) return false;
        } else {
            lexer->at = tag + 2 + (sign == '-' || sign == '+');
            lexer->mode = lexer->source[tag + 1] == '{' ? J_LEX_VARIABLE : J_LEX_BLOCK;
            lexer->begin_pending = true;
        }
        if (token->text.n) return true;
        if (lexer->mode != J_LEX_DATA) return jinja_lex(lexer, token);
    }
}

static bool lex_raw(JLexer *lexer, JToken *token)
{
    size_t start = lexer->at;
    for (size_t tag = find_tag(lexer, start); tag != SIZE_MAX; tag = find_tag(lexer, tag + 1)) {
        size_t after = raw_tag(lexer, tag, "endraw");
        if (!after) continue;
        *token = (JToken){.type = T_DATA, .line = line_of(lexer, start), .text = data_before(lexer, start, tag)};
        lexer->at = after;
        lexer->mode = J_LEX_DATA;
        return true;
    }
    return lex_fail(lexer, start, "missing end of raw directive");
}

static bool is_name_char(JText text, size_t at)
{
    int32_t c = jinja_char_at(text, at);
    if (c < 0x80) return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (jinja_char_bytes(text, at) == 1) return false;
    utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NO;
}

static void lex_name(JLexer *lexer, JToken *token)
{
    JText text = rest_of(lexer, 0, lexer->n);
    size_t at = lexer->at;
    while (at < lexer->n && is_name_char(text, at)) at += jinja_char_bytes(text, at);
    token->type = T_NAME;
    token->text = rest_of(lexer, lexer->at, at);
    lexer->at = at;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits with single underscores between them. */
static size_t skip_digits(const JLexer *lexer, size_t at)
{
    while (is_digit(char_or_nul(lexer, at)) || (char_or_nul(lexer, at) == '_' && is_digit(char_or_nul(lexer, at + 1))))
        at++;
    return at;
}

static size_t skip_fraction(const JLexer *lexer, size_t at)
{
    size_t end = at;
    if (char_or_nul(lexer, end) == '.' && is_digit(char_or_nul(lexer, end + 1))) end = skip_digits(lexer, end + 1);
    if ((char_or_nul(lexer, end) | 0x20) != 'e') return end;
    size_t exponent = end + 1;
    if (char_or_nul(lexer, exponent) == '+' || char_or_nul(lexer, exponent) == '-') exponent++;
    return is_digit(char_or_nul(lexer, exponent)) ? skip_digits(lexer, exponent) : end;
}

static bool lex_number(JLexer *lexer, JToken *token)
{
    size_t start = lexer->at, whole = skip_digits(lexer, start), end = whole;
    bool after_dot = start > 0 && lexer->source[start - 1] == '.';
    if (!after_dot) end = skip_fraction(lexer, whole);
    char digits[64];
    size_t n = 0;
    for (size_t i = start; i < end; i++) {
        if (lexer->source[i] == '_') continue;
        if (n == sizeof digits - 1) return lex_fail(lexer, start, "a number is too long");
        digits[n++] = lexer->source[i];
    }
    digits[n] = '\0';
    errno = 0;
    token->type = end > whole ? T_FLOAT : T_INT;
    token->real = strtod(digits, NULL);
    token->integer = token->type == T_INT ? strtoll(digits, NULL, 10) : 0;
    if (token->type == T_INT && errno == ERANGE) return lex_fail(lexer, start, "a number does not fit 64 bits");
    lexer->at = end;
    return true;
}

static size_t put_code_point(char *out, uint32_t c)
{
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) c = 0xFFFD;
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)c, (utf8proc_uint8_t *)out);
}

/* \xhh, \uhhhh, \Uhhhhhhhh: reads 'digits' hexadecimal digits; -1 when they are not there. */
static int64_t read_hex(JText text, size_t at, size_t digits)
{
    if (digits > text.n - at) return -1;
    int64_t value = 0;
    for (size_t i = 0; i < digits; i++) {
        char c = text.data[at + i], low = (char)(c | 0x20);
        if (!is_digit(c) && (low < 'a' || low > 'f')) return -1;
        value = value * 16 + (is_digit(c) ? c - '0' : low - 'a' + 10);
    }
    return value;
}

/* One escape after its backslash: how many bytes of the source it takes (0: malformed) and what it stands for. */
static size_t unescape(JText text, size_t at, char out[4], size_t *n_out)
{
    static const char from[] = "ntr\\'\"abfv", to[] = "\n\t\r\\'\"\a\b\f\v";
    char c = text.data[at];
    *n_out = 1;
    if (c == '\n') {
        *n_out = 0;
        return 1;
    }
    if (c >= '0' && c <= '7') {
        uint32_t value = 0;
        size_t n = 0;
        while (n < 3 && at + n < text.n && text.data[at + n] >= '0' && text.data[at + n] <= '7')
            value = value * 8 + (uint32_t)(text.data[at + n++] - '0');
        *n_out = put_code_point(out, value);
        return n;
    }
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits) {
        int64_t value = read_hex(text, at + 1, digits);
        if (value < 0) return 0;
        *n_out = put_code_point(out, (uint32_t)value);
        return 1 + digits;
    }
    const char *found = strchr(from, c);
    if (found && c) {
        out[0] = to[found - from];
        return 1;
    }
    out[0] = '\\'; /* an unknown escape stays as it is written */
    return SIZE_MAX;
}

static bool unescape_string(JLexer *lexer, size_t start, JText raw, JText *ret)
{
    if (raw.n == 0 || !memchr(raw.data, '\\', raw.n)) {
        *ret = raw;
        return true;
    }
    /* no escape stands for more bytes than it is written with */
    char *out = arena_alloc(lexer->arena, raw.n + 1);
    if (!out) return jinja_fail_memory(lexer->arena, raw.n + 1, line_of(lexer, start), lexer->error);
    size_t n = 0;
    for (size_t at = 0; at < raw.n;) {
        if (raw.data[at] != '\\') {
            out[n++] = raw.data[at++];
            continue;
        }
        char bytes[4];
        size_t n_bytes, taken = unescape(raw, at + 1, bytes, &n_bytes);
        if (taken == 0) return lex_fail(lexer, start, "malformed escape in a string");
        memcpy(out + n, bytes, n_bytes);
        n += n_bytes;
        at += 1 + (taken == SIZE_MAX ? 0 : taken);
    }
    *ret = (JText){.data = out, .n = n};
    return true;
}

static bool lex_string(JLexer *lexer, JToken *token)
{
    size_t start = lexer->at, at = start + 1;
    char quote = lexer->source[start];
    while (at < lexer->n && lexer->source[at] != quote) at += lexer->source[at] == '\\' ? 2 : 1;
    if (at >= lexer->n) return lex_fail(lexer, start, "a string does not end");
    token->type = T_STRING;
    lexer->at = at + 1;
    return unescape_string(lexer, start, rest_of(lexer, start + 1, at), &token->text);
}

static bool track_bracket(JLexer *lexer, char c)
{
    char closing = c == '(' ? ')' : c == '[' ? ']' : c == '{' ? '}' : '\0';
    if (closing) {
        if (lexer->n_brackets == JINJA_MAX_BRACKETS)
            return lex_fail(lexer, lexer->at, "brackets are nested too deeply");
        lexer->brackets[lexer->n_brackets++] = closing;
        return true;
    }
    if (c != ')' && c != ']' && c != '}') return true;
    char text[64];
    snprintf(text, sizeof text, "unexpected '%c'", c);
    if (lexer->n_brackets == 0 || lexer->brackets[--lexer->n_brackets] != c) return lex_fail(lexer, lexer->at, text);
    return true;
}

static bool lex_operator(JLexer *lexer, JToken *token)
{
    static const char *const pairs[] = {"//", "**", "==", "!=", ">=", "<="};
    token->type = T_OPERATOR;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!looking_at(lexer, lexer->at, pairs[i])) continue;
        token->op = JINJA_OP(pairs[i][0], pairs[i][1]);
        lexer->at += 2;
        return true;
    }
    char c = lexer->source[lexer->at];
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c)) {
        char text[64];
        snprintf(text, sizeof text, c > ' ' && c < 0x7F ? "unexpected character '%c'" : "unexpected byte 0x%02x",
                 (uint8_t)c);
        return lex_fail(lexer, lexer->at, text);
    }
    if (!track_bracket(lexer, c)) return false;
    token->op = JINJA_OP(c, 0);
    lexer->at++;
    return true;
}

bool jinja_lex(JLexer *lexer, JToken *token)
{
    if (lexer->mode == J_LEX_DATA) return lex_data(lexer, token);
    if (lexer->mode == J_LEX_RAW) return lex_raw(lexer, token);
    bool block = lexer->mode == J_LEX_BLOCK;
    *token = (JToken){.line = line_of(lexer, lexer->at)};
    if (lexer->begin_pending) {
        lexer->begin_pending = false;
        token->type = block ? T_BLOCK_BEGIN : T_VARIABLE_BEGIN;
        return true;
    }
    lexer->at = skip_space(lexer, lexer->at);
    token->line = line_of(lexer, lexer->at);
    if (lexer->at >= lexer->n) {
        token->type = T_END;
        return true;
    }
    size_t end = lexer->n_brackets ? 0 : tag_end(lexer, lexer->at, block ? '%' : '}', block);
    if (end) {
        token->type = block ? T_BLOCK_END : T_VARIABLE_END;
        lexer->at = end;
        lexer->mode = J_LEX_DATA;
        return true;
    }
    char c = lexer->source[lexer->at];
    if (is_digit(c)) return lex_number(lexer, token);
    if (c == '"' || c == '\'') return lex_string(lexer, token);
    if (is_name_char(rest_of(lexer, 0, lexer->n), lexer->at)) {
        lex_name(lexer, token);
        return true;
    }
    return lex_operator(lexer, token);
}

void jinja_token_describe(const JToken *token, char text[64])
{
    static const char *const names[] = {
        [T_END] = "end of template", [T_DATA] = "text",
        [T_VARIABLE_BEGIN] = "'{{'", [T_VARIABLE_END] = "end of print statement",
        [T_BLOCK_BEGIN] = "'{%'",    [T_BLOCK_END] = "end of statement block",
        [T_STRING] = "string",       [T_INT] = "integer",
        [T_FLOAT] = "float",
    };
    if (token->type == T_NAME)
        snprintf(text, 64, "'%.*s'", (int)(token->text.n < 40 ? token->text.n : 40), token->text.data);
    else if (token->type == T_OPERATOR)
        snprintf(text, 64, "'%c%.1s'", (char)(token->op & 0xFF),
                 token->op >> 8 ? (char[]){(char)(token->op >> 8), 0} : "");
    else
        snprintf(text, 64, "%s", names[token->type]);
}
