/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/jinja_run.h"
#include "engine/text/jinja_utf8.h"

#include <errno.h>
#include <math.h>
#include <string.h>

bool jinja_fail_memory(const Arena *arena, size_t n, uint32_t line, Error *error)
{
    size_t left = arena->max_bytes - arena->used_bytes;
    if (n < left && left - n >= 16) return error_set(error, ERR_NO_MEMORY, "no memory for a template");
    error_set(error, ERR_TEMPLATE, "the template needs more than %zu bytes of memory", arena->max_bytes);
    return line ? error_prefix(error, "line %u", line) : false;
}

void *jinja_alloc(JinjaRun *run, size_t count, size_t size)
{
    void *p = arena_array(&run->arena, count, size);
    size_t bytes;
    if (!p && __builtin_mul_overflow(count, size, &bytes)) bytes = SIZE_MAX;
    if (!p) (void)jinja_fail_memory(&run->arena, bytes, run->line, run->error);
    return p;
}

bool jinja_make_text(JinjaRun *run, JText text, JValue *ret)
{
    JText *copy = jinja_alloc(run, 1, sizeof *copy);
    if (!copy) return false;
    *copy = text;
    *ret = (JValue){.type = J_TEXT, .text = copy};
    return true;
}

void *jinja_room(JinjaRun *run, void *items, size_t n, size_t size, size_t *capacity)
{
    if (n < *capacity) return items;
    size_t more = *capacity ? *capacity * 2 : 4;
    void *copy = jinja_alloc(run, more, size);
    if (!copy) return NULL;
    if (n) memcpy(copy, items, n * size);
    *capacity = more;
    return copy;
}

bool jinja_make_list(JinjaRun *run, JType type, size_t capacity, JValue *ret)
{
    JList *list = jinja_alloc(run, 1, sizeof *list);
    if (!list) return false;
    if (capacity) {
        list->items = jinja_alloc(run, capacity, sizeof *list->items);
        if (!list->items) return false;
        list->capacity = capacity;
    }
    *ret = (JValue){.type = type, .list = list};
    return true;
}

bool jinja_list_push(JinjaRun *run, JList *list, JValue item)
{
    JValue *items = jinja_room(run, list->items, list->n, sizeof *items, &list->capacity);
    if (!items) return false;
    list->items = items;
    list->items[list->n++] = item;
    return true;
}

bool jinja_make_dict(JinjaRun *run, JType type, JValue *ret)
{
    JDict *dict = jinja_alloc(run, 1, sizeof *dict);
    if (!dict) return false;
    *ret = (JValue){.type = type, .dict = dict};
    return true;
}

bool jinja_make_undefined(JinjaRun *run, JText name, const char *owner, JValue *ret)
{
    JUndefined *undefined = jinja_alloc(run, 1, sizeof *undefined);
    if (!undefined) return false;
    *undefined = (JUndefined){.name = name, .owner = owner};
    *ret = (JValue){.type = J_UNDEFINED, .undefined = undefined};
    return true;
}

bool jinja_make_pair(JinjaRun *run, JValue first, JValue second, JValue *ret)
{
    if (!jinja_make_list(run, J_TUPLE, 2, ret)) return false;
    ret->list->items[0] = first;
    ret->list->items[1] = second;
    ret->list->n = 2;
    return true;
}

/* ---- dictionaries ---- */

enum { SMALL_DICT = 8 };

static uint64_t hash_bytes(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 1099511628211u;
    return h ^ (h >> 29);
}

/* Numbers that are equal hash alike: 1, 1.0 and true are one key. */
static bool hash_key(JinjaRun *run, const JValue *key, uint64_t *ret)
{
    double d;
    switch (key->type) {
    case J_TEXT:
        *ret = hash_bytes(key->text->data, key->text->n);
        return true;
    case J_BOOL:
    case J_INT:
    case J_FLOAT:
        d = key->type == J_FLOAT ? key->real : key->type == J_INT ? (double)key->integer : key->boolean;
        if (d == 0) d = 0;
        *ret = hash_bytes(&d, sizeof d);
        return true;
    case J_TUPLE:
        *ret = key->list->n; /* tuples are rare as keys; equality tells them apart */
        return true;
    case J_NONE:
    case J_UNDEFINED:
        *ret = (uint64_t)key->type;
        return true;
    default:
        return jinja_fail(run, "unhashable type: '%s'", jinja_type_name(key));
    }
}

static bool same_key(JinjaRun *run, const JValue *a, const JValue *b, bool *ret)
{
    if (a->type == J_TEXT && b->type == J_TEXT) {
        *ret = jinja_text_equal(*a->text, *b->text);
        return true;
    }
    return jinja_equal(run, a, b, ret);
}

/* The slot that holds the key, or the free one where it belongs. Every probe costs a step: colliding keys from a client
 * run into the step limit instead of taking quadratic time. */
static bool find_slot(JinjaRun *run, const JDict *dict, const JValue *key, size_t *ret_slot)
{
    uint64_t h;
    if (!hash_key(run, key, &h)) return false;
    for (size_t i = h & (dict->n_slots - 1);; i = (i + 1) & (dict->n_slots - 1)) {
        bool same = false;
        if (dict->slots[i] && !same_key(run, &dict->entries[dict->slots[i] - 1].key, key, &same)) return false;
        if (!dict->slots[i] || same) {
            *ret_slot = i;
            return true;
        }
        if (!jinja_spend(run, 1)) return false;
    }
}

bool jinja_dict_find(JinjaRun *run, const JDict *dict, const JValue *key, JEntry **ret_entry)
{
    if (dict->slots) {
        size_t slot;
        if (!find_slot(run, dict, key, &slot)) return false;
        *ret_entry = dict->slots[slot] ? &dict->entries[dict->slots[slot] - 1] : NULL;
        return true;
    }
    uint64_t h;
    if (!hash_key(run, key, &h)) return false;
    for (size_t i = 0; i < dict->n; i++) {
        bool same;
        if (!same_key(run, &dict->entries[i].key, key, &same)) return false;
        if (!same) continue;
        *ret_entry = &dict->entries[i];
        return true;
    }
    *ret_entry = NULL;
    return true;
}

static bool index_dict(JinjaRun *run, JDict *dict)
{
    size_t n_slots = 32;
    while (n_slots < dict->capacity * 2) n_slots *= 2;
    dict->slots = jinja_alloc(run, n_slots, sizeof *dict->slots);
    if (!dict->slots) return false;
    dict->n_slots = n_slots;
    for (size_t i = 0; i < dict->n; i++) {
        size_t slot;
        if (!find_slot(run, dict, &dict->entries[i].key, &slot)) return false;
        dict->slots[slot] = (uint32_t)i + 1;
    }
    return true;
}

static bool grow_dict(JinjaRun *run, JDict *dict)
{
    size_t capacity = dict->capacity ? dict->capacity * 2 : SMALL_DICT / 2;
    if (capacity > UINT32_MAX / 4) return jinja_fail(run, "a dictionary has too many keys");
    JEntry *entries = jinja_alloc(run, capacity, sizeof *entries);
    if (!entries) return false;
    if (dict->n) memcpy(entries, dict->entries, dict->n * sizeof *entries);
    dict->entries = entries;
    dict->capacity = capacity;
    return capacity <= SMALL_DICT || index_dict(run, dict);
}

bool jinja_dict_set(JinjaRun *run, JDict *dict, const JValue *key, JValue value)
{
    JEntry *entry;
    if (!jinja_dict_find(run, dict, key, &entry)) return false;
    if (entry) {
        entry->value = value;
        return true;
    }
    if (dict->n == dict->capacity && !grow_dict(run, dict)) return false;
    if (dict->slots) {
        size_t slot;
        if (!find_slot(run, dict, key, &slot)) return false;
        dict->slots[slot] = (uint32_t)dict->n + 1;
    }
    dict->entries[dict->n++] = (JEntry){.key = *key, .value = value};
    return true;
}

bool jinja_dict_set_text(JinjaRun *run, JDict *dict, JText key, JValue value)
{
    JValue k;
    return jinja_make_text(run, key, &k) && jinja_dict_set(run, dict, &k, value);
}

bool jinja_dict_remove(JinjaRun *run, JDict *dict, const JValue *key)
{
    JEntry *entry;
    if (!jinja_dict_find(run, dict, key, &entry)) return false;
    if (!entry) return true;
    size_t at = (size_t)(entry - dict->entries);
    memmove(entry, entry + 1, (dict->n - at - 1) * sizeof *entry);
    dict->n--;
    if (!dict->slots) return true;
    if (!jinja_spend(run, dict->n)) return false;
    return index_dict(run, dict);
}

/* ---- from JSON ---- */

/* Strings of the input share one array of marks. A grown array leaves the old one to the strings that use it. */
static const uint8_t *input_marks(JinjaRun *run, size_t n)
{
    if (n > run->n_input_marks) {
        size_t want = run->n_input_marks * 2 > n ? run->n_input_marks * 2 : n + 256;
        uint8_t *marks = jinja_alloc(run, want, 1);
        if (!marks) return NULL;
        memset(marks, JINJA_MARK_INPUT, want);
        run->input_marks = marks;
        run->n_input_marks = want;
    }
    return run->input_marks;
}

bool jinja_input_text(JinjaRun *run, const char *data, size_t n, JValue *ret)
{
    const uint8_t *marks = n ? input_marks(run, n) : NULL;
    return (marks || n == 0) && jinja_make_text(run, (JText){.data = data, .marks = marks, .n = n}, ret);
}

/* A string of the JSON, copied when the JSON will be gone. */
static bool json_string(JinjaRun *run, const char *string, JValue *ret)
{
    size_t n = strlen(string);
    if (run->copies_json) {
        char *copy = jinja_alloc(run, n + 1, 1);
        if (!copy) return false;
        string = memcpy(copy, string, n + 1);
    }
    return jinja_input_text(run, string, n, ret);
}

static JValue from_number(double d)
{
    /* cJSON keeps doubles only: a whole number is taken for an integer, as nearly all are. */
    if (d == floor(d) && fabs(d) < 9007199254740992.0) return jinja_int((int64_t)d);
    return jinja_float(d);
}

static bool from_object(JinjaRun *run, const cJSON *json, JValue *ret)
{
    if (!jinja_make_dict(run, J_DICT, ret)) return false;
    for (const cJSON *child = json->child; child; child = child->next) {
        JValue key, value;
        if (!json_string(run, child->string, &key)) return false;
        if (!jinja_from_json(run, child, &value)) return false;
        if (!jinja_dict_set(run, ret->dict, &key, value)) return false;
    }
    return true;
}

static bool from_array(JinjaRun *run, const cJSON *json, JValue *ret)
{
    if (!jinja_make_list(run, J_LIST, 0, ret)) return false;
    for (const cJSON *child = json->child; child; child = child->next) {
        JValue value;
        if (!jinja_from_json(run, child, &value)) return false;
        if (!jinja_list_push(run, ret->list, value)) return false;
    }
    return true;
}

bool jinja_from_json(JinjaRun *run, const cJSON *json, JValue *ret)
{
    if (cJSON_IsString(json)) return json_string(run, json->valuestring, ret);
    if (cJSON_IsNumber(json)) {
        *ret = from_number(json->valuedouble);
        return true;
    }
    if (!cJSON_IsObject(json) && !cJSON_IsArray(json)) {
        *ret = cJSON_IsBool(json) ? jinja_bool(cJSON_IsTrue(json)) : jinja_none();
        return true;
    }
    if (run->value_depth >= JINJA_MAX_VALUE_DEPTH) return jinja_fail(run, "the input is nested too deeply");
    run->value_depth++;
    bool ok = cJSON_IsObject(json) ? from_object(run, json, ret) : from_array(run, json, ret);
    run->value_depth--;
    return ok;
}

bool jinja_parse_json(JinjaRun *run, const char *text, cJSON **ret_json)
{
    errno = 0; /* cJSON does not tell a broken text from a failed allocation, which sets this */
    cJSON *json = cJSON_ParseWithOpts(text, NULL, true);
    if (!json && errno == ENOMEM) return error_set(run->error, ERR_NO_MEMORY, "no memory for a template's JSON");
    *ret_json = json;
    return true;
}

bool jinja_copy_json(JinjaRun *run, const cJSON *json, JValue *ret)
{
    run->copies_json = true;
    bool ok = jinja_from_json(run, json, ret);
    run->copies_json = false;
    return ok;
}

/* ---- looking at values ---- */

const char *jinja_type_name(const JValue *value)
{
    static const char *const names[J_TYPE_COUNT] = {
        [J_MISSING] = "missing", [J_UNDEFINED] = "Undefined", [J_NONE] = "NoneType",     [J_BOOL] = "bool",
        [J_INT] = "int",         [J_FLOAT] = "float",         [J_TEXT] = "str",          [J_LIST] = "list",
        [J_TUPLE] = "tuple",     [J_RANGE] = "range",         [J_VIEW] = "dict_view",    [J_ITER] = "generator",
        [J_DICT] = "dict",       [J_NAMESPACE] = "Namespace", [J_LOOP] = "LoopContext",  [J_CYCLER] = "Cycler",
        [J_JOINER] = "Joiner",   [J_MACRO] = "Macro",         [J_FUNCTION] = "function", [J_METHOD] = "method",
    };
    if (value->type == J_VIEW) return value->list->label;
    return names[value->type];
}

bool jinja_truth(const JValue *value)
{
    switch (value->type) {
    case J_MISSING:
    case J_UNDEFINED:
    case J_NONE:
        return false;
    case J_BOOL:
        return value->boolean;
    case J_INT:
        return value->integer != 0;
    case J_FLOAT:
        return value->real != 0;
    case J_TEXT:
        return value->text->n != 0;
    case J_LIST:
    case J_TUPLE:
    case J_RANGE:
    case J_VIEW:
        return value->list->n != 0;
    case J_DICT:
        return value->dict->n != 0;
    default:
        return true;
    }
}

bool jinja_text_equal(JText a, JText b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.data, b.data, a.n) == 0);
}

static double as_double(const JValue *value)
{
    return value->type == J_FLOAT ? value->real : value->type == J_INT ? (double)value->integer : value->boolean;
}

static int64_t as_integer(const JValue *value)
{
    return value->type == J_INT ? value->integer : value->boolean;
}

static int compare_numbers(const JValue *a, const JValue *b)
{
    if (a->type != J_FLOAT && b->type != J_FLOAT) {
        int64_t x = as_integer(a), y = as_integer(b);
        return x < y ? -1 : x > y;
    }
    double x = as_double(a), y = as_double(b);
    return x < y ? -1 : x == y ? 0 : 1;
}

static bool equal_lists(JinjaRun *run, const JList *a, const JList *b, bool *ret)
{
    *ret = a->n == b->n;
    for (size_t i = 0; *ret && i < a->n; i++)
        if (!jinja_equal(run, &a->items[i], &b->items[i], ret)) return false;
    return true;
}

static bool equal_dicts(JinjaRun *run, const JDict *a, const JDict *b, bool *ret)
{
    *ret = a->n == b->n;
    for (size_t i = 0; *ret && i < a->n; i++) {
        JEntry *other;
        if (!jinja_dict_find(run, b, &a->entries[i].key, &other)) return false;
        *ret = other != NULL;
        if (other && !jinja_equal(run, &a->entries[i].value, &other->value, ret)) return false;
    }
    return true;
}

bool jinja_equal(JinjaRun *run, const JValue *a, const JValue *b, bool *ret)
{
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *ret = compare_numbers(a, b) == 0;
        return true;
    }
    if (a->type != b->type) {
        *ret = false;
        return true;
    }
    if (!jinja_spend(run, 1)) return false;
    if (a->type == J_TEXT) {
        *ret = jinja_text_equal(*a->text, *b->text);
        return true;
    }
    if (a->type == J_NONE || a->type == J_UNDEFINED) {
        *ret = true;
        return true;
    }
    if (!jinja_has_items(a) && a->type != J_DICT) {
        *ret = a->type == J_METHOD ? false : a->list == b->list;
        return true;
    }
    if (run->value_depth >= JINJA_MAX_VALUE_DEPTH) return jinja_fail(run, "values are nested too deeply to compare");
    run->value_depth++;
    bool ok = a->type == J_DICT ? equal_dicts(run, a->dict, b->dict, ret) : equal_lists(run, a->list, b->list, ret);
    run->value_depth--;
    return ok;
}

static int compare_texts(JText a, JText b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n ? memcmp(a.data, b.data, n) : 0; /* UTF-8 sorts as its code points do */
    return order ? (order < 0 ? -1 : 1) : a.n < b.n ? -1 : a.n > b.n;
}

static bool compare_lists(JinjaRun *run, const JList *a, const JList *b, int *ret)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool same;
        if (!jinja_equal(run, &a->items[i], &b->items[i], &same)) return false;
        if (!same) return jinja_compare(run, &a->items[i], &b->items[i], ret);
    }
    *ret = a->n < b->n ? -1 : a->n > b->n;
    return true;
}

bool jinja_compare(JinjaRun *run, const JValue *a, const JValue *b, int *ret)
{
    if (a->type == J_UNDEFINED || b->type == J_UNDEFINED)
        return jinja_fail_undefined(run, a->type == J_UNDEFINED ? a : b);
    if (!jinja_spend(run, 1)) return false;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *ret = compare_numbers(a, b);
        return true;
    }
    if (a->type == J_TEXT && b->type == J_TEXT) {
        *ret = compare_texts(*a->text, *b->text);
        return true;
    }
    if (a->type != b->type || (a->type != J_LIST && a->type != J_TUPLE))
        return jinja_fail(run, "'<' not supported between instances of '%s' and '%s'", jinja_type_name(a),
                          jinja_type_name(b));
    if (run->value_depth >= JINJA_MAX_VALUE_DEPTH) return jinja_fail(run, "values are nested too deeply to compare");
    run->value_depth++;
    bool ok = compare_lists(run, a->list, b->list, ret);
    run->value_depth--;
    return ok;
}

static bool text_items(JinjaRun *run, JText text, JList *ret)
{
    *ret = (JList){0};
    for (size_t at = 0; at < text.n;) {
        size_t n = jinja_char_bytes(text, at);
        JValue item;
        if (!jinja_make_text(run, jinja_text_part(text, at, at + n), &item)) return false;
        if (!jinja_list_push(run, ret, item)) return false;
        at += n;
    }
    return true;
}

bool jinja_items(JinjaRun *run, const JValue *value, JList *ret)
{
    if (jinja_has_items(value)) {
        *ret = *value->list;
        if (value->type == J_ITER) value->list->n = 0;
        return jinja_spend(run, ret->n / 8);
    }
    if (value->type == J_TEXT) return jinja_spend(run, value->text->n) && text_items(run, *value->text, ret);
    *ret = (JList){0};
    if (value->type == J_UNDEFINED) return true;
    if (value->type != J_DICT) return jinja_fail(run, "'%s' object is not iterable", jinja_type_name(value));
    for (size_t i = 0; i < value->dict->n; i++)
        if (!jinja_list_push(run, ret, value->dict->entries[i].key)) return false;
    return jinja_spend(run, ret->n / 8);
}

bool jinja_length(JinjaRun *run, const JValue *value, int64_t *ret)
{
    switch (value->type) {
    case J_TEXT:
        *ret = (int64_t)jinja_char_count(*value->text);
        return jinja_spend(run, value->text->n / 64);
    case J_LIST:
    case J_TUPLE:
    case J_RANGE:
    case J_VIEW:
        *ret = (int64_t)value->list->n;
        return true;
    case J_DICT:
        *ret = (int64_t)value->dict->n;
        return true;
    case J_LOOP:
        *ret = (int64_t)value->loop->items.n;
        return true;
    case J_UNDEFINED:
        *ret = 0;
        return true;
    default:
        return jinja_fail(run, "object of type '%s' has no len()", jinja_type_name(value));
    }
}
