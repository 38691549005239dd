/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_json.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Scan {
    const char *what; /* the text, in messages */
    const char *text;
    size_t n, at;
    uint32_t values;
    Error *error;
} Scan;

static bool fail(const Scan *scan, const char *what)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < scan->at; i++) {
        bool feed = scan->text[i] == '\n';
        line += feed;
        column = feed ? 1 : column + 1;
    }
    return error_set(scan->error, ERR_INVALID, "%s is not valid JSON: %s at line %zu, column %zu (byte %zu)",
                     scan->what, scan->at < scan->n ? what : "unexpected end", line, column, scan->at);
}

static int peek(const Scan *scan)
{
    return scan->at < scan->n ? (unsigned char)scan->text[scan->at] : -1;
}

static int skip_space(Scan *scan)
{
    while (scan->at < scan->n && strchr(" \t\r\n", scan->text[scan->at]) && scan->text[scan->at]) scan->at++;
    return peek(scan);
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static bool scan_digits(Scan *scan)
{
    if (!is_digit(peek(scan))) return fail(scan, "a digit is missing");
    while (is_digit(peek(scan))) scan->at++;
    return true;
}

static bool scan_number(Scan *scan)
{
    size_t start = scan->at;
    if (peek(scan) == '-') scan->at++;
    if (peek(scan) == '0')
        scan->at++;
    else if (!scan_digits(scan))
        return false;
    if (peek(scan) == '.') {
        scan->at++;
        if (!scan_digits(scan)) return false;
    }
    if (peek(scan) == 'e' || peek(scan) == 'E') {
        scan->at++;
        if (peek(scan) == '+' || peek(scan) == '-') scan->at++;
        if (!scan_digits(scan)) return false;
    }
    if (scan->at - start <= JSON_MAX_NUMBER_CHARS) return true;
    scan->at = start;
    return fail(scan, "a number has too many digits");
}

static bool scan_hex4(Scan *scan, unsigned *ret_unit)
{
    unsigned unit = 0;
    for (int i = 0; i < 4; i++, scan->at++) {
        int c = peek(scan);
        int lower = c | 0x20;
        if (is_digit(c))
            unit = unit * 16 + (unsigned)(c - '0');
        else if (lower >= 'a' && lower <= 'f')
            unit = unit * 16 + (unsigned)(lower - 'a') + 10;
        else
            return fail(scan, "\\u needs four hex digits");
    }
    *ret_unit = unit;
    return true;
}

/* at: behind the backslash. */
static bool scan_escape(Scan *scan)
{
    int c = peek(scan);
    if (c < 0 || !strchr("\"\\/bfnrtu", c) || !c) return fail(scan, "unknown escape in a string");
    size_t start = scan->at++;
    if (c != 'u') return true;
    unsigned unit = 0, low = 0;
    if (!scan_hex4(scan, &unit)) return false;
    bool wrong = unit == 0 || (unit >= 0xDC00 && unit <= 0xDFFF);
    if (unit >= 0xD800 && unit <= 0xDBFF) {
        wrong = peek(scan) != '\\' || scan->at + 1 >= scan->n || scan->text[scan->at + 1] != 'u';
        if (!wrong) {
            scan->at += 2;
            if (!scan_hex4(scan, &low)) return false;
            wrong = low < 0xDC00 || low > 0xDFFF;
        }
    }
    if (!wrong) return true;
    scan->at = start;
    return fail(scan, unit ? "lone surrogate in a string" : "NUL in a string");
}

static bool scan_string(Scan *scan)
{
    if (peek(scan) != '"') return fail(scan, "a string is missing");
    scan->at++;
    for (;;) {
        int c = peek(scan);
        if (c < 0x20) return fail(scan, "control character in a string");
        if (c == '"') break;
        scan->at++;
        if (c == '\\') {
            if (!scan_escape(scan)) return false;
        } else if (c >= 0x80) {
            size_t used;
            scan->at--;
            if (utf8_step((const uint8_t *)scan->text + scan->at, scan->n - scan->at, &used) != UTF8_WHOLE)
                return fail(scan, "invalid UTF-8 in a string");
            scan->at += used;
        }
    }
    scan->at++;
    return true;
}

static bool scan_value(Scan *scan, unsigned depth);

/* Members of an object or items of an array, up to the closing character. at: behind the opening one. */
static bool scan_list(Scan *scan, unsigned depth, bool object)
{
    if (depth > JSON_MAX_DEPTH) return fail(scan, "nesting is too deep");
    int close = object ? '}' : ']';
    if (skip_space(scan) == close) {
        scan->at++;
        return true;
    }
    for (;;) {
        if (object) {
            skip_space(scan);
            if (!scan_string(scan)) return false;
            if (skip_space(scan) != ':') return fail(scan, "':' is missing");
            scan->at++;
        }
        if (!scan_value(scan, depth)) return false;
        int c = skip_space(scan);
        if (c != ',' && c != close) return fail(scan, object ? "',' or '}' is missing" : "',' or ']' is missing");
        scan->at++;
        if (c == close) return true;
    }
}

static bool scan_word(Scan *scan, const char *word)
{
    size_t n = strlen(word);
    if (scan->n - scan->at < n || memcmp(scan->text + scan->at, word, n)) return fail(scan, "unknown word");
    scan->at += n;
    return true;
}

static bool scan_value(Scan *scan, unsigned depth)
{
    if (++scan->values > JSON_MAX_VALUES) return fail(scan, "too many values");
    int c = skip_space(scan);
    switch (c) {
    case '{':
    case '[':
        scan->at++;
        return scan_list(scan, depth + 1, c == '{');
    case '"':
        return scan_string(scan);
    case 't':
        return scan_word(scan, "true");
    case 'f':
        return scan_word(scan, "false");
    case 'n':
        return scan_word(scan, "null");
    default:
        return c == '-' || is_digit(c) ? scan_number(scan) : fail(scan, "a value is missing");
    }
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool check_keys(const cJSON *object, const char *what, Error *error)
{
    size_t n = (size_t)cJSON_GetArraySize(object), i = 0;
    if (n < 2) return true;
    const char **keys = malloc(n * sizeof *keys);
    if (!keys) return error_set(error, ERR_NO_MEMORY, "no memory for %zu keys", n);
    for (const cJSON *item = object->child; item; item = item->next) keys[i++] = item->string;
    qsort(keys, n, sizeof *keys, compare_keys);
    bool ok = true;
    for (i = 1; i < n && ok; i++)
        if (!strcmp(keys[i - 1], keys[i]))
            ok = error_set_param(error, ERR_INVALID, keys[i], "duplicate key '%.100s' in %s", keys[i], what);
    free(keys);
    return ok;
}

/* What the grammar allows and readers disagree about. Recursion is bounded by JSON_MAX_DEPTH. */
static bool check_tree(const cJSON *item, const char *what, Error *error)
{
    if (cJSON_IsNumber(item) && !isfinite(item->valuedouble))
        return error_set_param(error, ERR_INVALID, item->string ? item->string : "",
                               "a number in %s is beyond the range of double precision", what);
    if (cJSON_IsObject(item) && !check_keys(item, what, error)) return false;
    if (cJSON_IsObject(item) || cJSON_IsArray(item))
        for (const cJSON *child = item->child; child; child = child->next)
            if (!check_tree(child, what, error)) return false;
    return true;
}

bool json_parse(const char *text, size_t n, cJSON **ret_json, Error *error)
{
    return json_parse_as("the request body", text, n, ret_json, error);
}

bool json_parse_as(const char *what, const char *text, size_t n, cJSON **ret_json, Error *error)
{
    Scan scan = {.what = what, .text = text, .n = n, .error = error};
    if (!n) return error_set(error, ERR_INVALID, "%s is empty; a JSON object is wanted", what);
    if (!scan_value(&scan, 0)) return false;
    if (skip_space(&scan) >= 0) return fail(&scan, "text after the value");
    cJSON *json = cJSON_ParseWithLength(text, n + 1);
    if (!json) return error_set(error, ERR_NO_MEMORY, "no memory for %s of %zu bytes", what, n);
    if (!check_tree(json, what, error)) {
        cJSON_Delete(json);
        return false;
    }
    *ret_json = json;
    return true;
}

const cJSON *json_member(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return item && !cJSON_IsNull(item) ? item : NULL;
}

const char *json_type_name(const cJSON *item)
{
    if (cJSON_IsBool(item)) return "a boolean";
    if (cJSON_IsNumber(item)) return "a number";
    if (cJSON_IsString(item)) return "a string";
    if (cJSON_IsArray(item)) return "an array";
    if (cJSON_IsObject(item)) return "an object";
    return "null";
}

static bool wrong_type(const cJSON *item, const char *path, const char *wanted, Error *error)
{
    return error_set_param(error, ERR_INVALID, path, "'%s' must be %s, not %s", path, wanted, json_type_name(item));
}

bool json_get_bool(const cJSON *item, const char *path, bool *ret_value, Error *error)
{
    if (!cJSON_IsBool(item)) return wrong_type(item, path, "a boolean", error);
    *ret_value = cJSON_IsTrue(item);
    return true;
}

bool json_get_real(const cJSON *item, const char *path, double min, double max, double *ret_value, Error *error)
{
    if (!cJSON_IsNumber(item)) return wrong_type(item, path, "a number", error);
    double value = item->valuedouble;
    if (!(value >= min && value <= max))
        return error_set_param(error, ERR_INVALID, path, "'%s' must lie between %g and %g, not %g", path, min, max,
                               value);
    *ret_value = value;
    return true;
}

bool json_get_int(const cJSON *item, const char *path, int64_t min, int64_t max, int64_t *ret_value, Error *error)
{
    if (!cJSON_IsNumber(item)) return wrong_type(item, path, "an integer", error);
    double value = item->valuedouble;
    if (value != floor(value))
        return error_set_param(error, ERR_INVALID, path, "'%s' must be an integer, not %g", path, value);
    /* 2^63 itself is a double but no int64_t */
    if (!(value >= (double)min && value <= (double)max && value < 0x1p63))
        return error_set_param(error, ERR_INVALID, path, "'%s' must lie between %lld and %lld, not %.17g", path,
                               (long long)min, (long long)max, value);
    *ret_value = (int64_t)value;
    return true;
}

bool json_get_string(const cJSON *item, const char *path, const char **ret_value, Error *error)
{
    if (!cJSON_IsString(item)) return wrong_type(item, path, "a string", error);
    *ret_value = item->valuestring;
    return true;
}

bool json_get_array(const cJSON *item, const char *path, size_t max_items, size_t *ret_n, Error *error)
{
    if (!cJSON_IsArray(item)) return wrong_type(item, path, "an array", error);
    size_t n = (size_t)cJSON_GetArraySize(item);
    if (n > max_items)
        return error_set_param(error, ERR_INVALID, path, "'%s' has %zu items, more than %zu", path, n, max_items);
    *ret_n = n;
    return true;
}

bool json_get_object(const cJSON *item, const char *path, Error *error)
{
    return cJSON_IsObject(item) || wrong_type(item, path, "an object", error);
}
