/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of a running Jinja template, after Python's: text, numbers, lists, dictionaries, and the things one can call.
 * All of them live in the arena of the run that made them. One thread at a time.
 *
 * Text carries its origin: a mark for each byte says whether the template wrote it, an input did, or that part of an
 * input which is the content of an assistant's message.
 */
#pragma once
#include "base/arena.h"
#include <cjson/cJSON.h>

typedef struct JinjaRun JinjaRun;

enum { JINJA_MARK_TEMPLATE = 0, JINJA_MARK_INPUT = 1, JINJA_MARK_CUT = 2, JINJA_MARK_ANSWER = 3 };

/* Text under construction: bytes and marks side by side. */
typedef struct JBuild {
    char *data;
    uint8_t *marks;
    size_t n, capacity;
    bool any_marked;
} JBuild;

/* A view: bytes and marks belong to the arena, the program or the input, all of which outlive the run's values. */
typedef struct JText {
    const char *data;     /* [n], UTF-8, not always NUL-terminated */
    const uint8_t *marks; /* [n], or NULL when the template wrote every byte */
    size_t n;
    bool safe;     /* went through 'safe' or 'escape': '+' HTML-escapes what it is joined with, as in Python */
    JBuild *build; /* of a concatenation: while this is all of it, more is appended in place; NULL for other texts */
} JText;

typedef enum JType {
    J_MISSING, /* an argument that was not given; never visible to a template */
    J_UNDEFINED,
    J_NONE,
    J_BOOL,
    J_INT,
    J_FLOAT,
    J_TEXT,
    J_LIST,
    J_TUPLE,
    J_RANGE,
    J_VIEW, /* keys, values, items of a dictionary */
    J_ITER, /* a generator: its items are gone after one pass */
    J_DICT,
    J_NAMESPACE,
    J_LOOP,
    J_CYCLER,
    J_JOINER,
    J_MACRO,
    J_FUNCTION,
    J_METHOD,
    J_TYPE_COUNT
} JType;

typedef struct JValue JValue;
typedef struct JList {
    JValue *items; /* [n] */
    size_t n, capacity;
    const char *label;         /* J_VIEW: "dict_items", ... */
    int64_t start, stop, step; /* J_RANGE */
} JList;
typedef struct JDict JDict;
typedef struct JUndefined {
    JText name;
    const char *owner; /* type of the object that lacks the attribute, or NULL for a variable */
} JUndefined;
typedef struct JMethod JMethod;
typedef struct JMacro JMacro;
typedef struct JLoop JLoop;
typedef struct JCallRow JCallRow;

struct JValue {
    JType type;
    union {
        bool boolean;
        int64_t integer;
        double real;
        const JText *text;
        JList *list; /* J_LIST .. J_ITER, J_CYCLER (stop = position), J_JOINER (items[0] = separator) */
        JDict *dict; /* J_DICT, J_NAMESPACE */
        const JUndefined *undefined;
        const JMethod *method;
        JMacro *macro;
        JLoop *loop;
        const JCallRow *function;
    };
};

typedef struct JEntry {
    JValue key, value;
} JEntry;

/* Insertion order; a hash index over the entries once there are more than a few. */
struct JDict {
    JEntry *entries; /* [n] */
    size_t n, capacity;
    uint32_t *slots; /* [n_slots], entry number + 1 or 0; NULL while small */
    size_t n_slots;
};

#define JTEXT(literal) ((JText){.data = (literal), .n = sizeof(literal) - 1})

static inline JValue jinja_none(void)
{
    return (JValue){.type = J_NONE};
}
static inline JValue jinja_bool(bool b)
{
    return (JValue){.type = J_BOOL, .boolean = b};
}
static inline JValue jinja_int(int64_t i)
{
    return (JValue){.type = J_INT, .integer = i};
}
static inline JValue jinja_float(double d)
{
    return (JValue){.type = J_FLOAT, .real = d};
}
/* Items in a JList: list, tuple, range, view, generator. */
static inline bool jinja_has_items(const JValue *value)
{
    return value->type >= J_LIST && value->type <= J_ITER;
}
static inline bool jinja_is_missing(const JValue *value)
{
    return value->type == J_MISSING;
}
static inline bool jinja_is_number(const JValue *value)
{
    return value->type == J_INT || value->type == J_FLOAT || value->type == J_BOOL;
}

/* Zeroed memory of the run, or NULL with the run's error set. */
LW_CHECK void *jinja_alloc(JinjaRun *run, size_t count, size_t size);
LW_CHECK bool jinja_make_text(JinjaRun *run, JText text, JValue *ret);
/* Room for one more behind n items of size bytes: the items, or their copy in twice the room. NULL: an error is set. */
LW_CHECK void *jinja_room(JinjaRun *run, void *items, size_t n, size_t size, size_t *capacity);
LW_CHECK bool jinja_make_list(JinjaRun *run, JType type, size_t capacity, JValue *ret);
LW_CHECK bool jinja_list_push(JinjaRun *run, JList *list, JValue item);
LW_CHECK bool jinja_make_dict(JinjaRun *run, JType type, JValue *ret);
LW_CHECK bool jinja_make_undefined(JinjaRun *run, JText name, const char *owner, JValue *ret);
LW_CHECK bool jinja_make_pair(JinjaRun *run, JValue first, JValue second, JValue *ret); /* a tuple */

/* Keys must be hashable, else the run fails. ret_entry: NULL when absent. */
LW_CHECK bool jinja_dict_find(JinjaRun *run, const JDict *dict, const JValue *key, JEntry **ret_entry);
LW_CHECK bool jinja_dict_set(JinjaRun *run, JDict *dict, const JValue *key, JValue value);
LW_CHECK bool jinja_dict_set_text(JinjaRun *run, JDict *dict, JText key, JValue value);
LW_CHECK bool jinja_dict_remove(JinjaRun *run, JDict *dict, const JValue *key);

/*
 * Why the arena had no n bytes: ERR_TEMPLATE when its maximum was in the way, else ERR_NO_MEMORY; returns false. line:
 * 0 for none.
 */
bool jinja_fail_memory(const Arena *arena, size_t n, uint32_t line, Error *error);

/* Text that may be no JSON: then *ret_json is NULL. The caller ends the tree with cJSON_Delete. */
LW_CHECK bool jinja_parse_json(JinjaRun *run, const char *text, cJSON **ret_json);
/* Every string in it, keys included, is marked as input. Borrows the strings of the JSON for the run. */
LW_CHECK bool jinja_from_json(JinjaRun *run, const cJSON *json, JValue *ret);
/* The same with copies of the strings, for JSON that does not outlive the run. */
LW_CHECK bool jinja_copy_json(JinjaRun *run, const cJSON *json, JValue *ret);
/* All bytes marked as input; borrows them. */
LW_CHECK bool jinja_input_text(JinjaRun *run, const char *data, size_t n, JValue *ret);

/* "str", "int", "dict", "undefined", ...: Python's names. */
const char *jinja_type_name(const JValue *value);
bool jinja_truth(const JValue *value);
bool jinja_text_equal(JText a, JText b);
LW_CHECK bool jinja_equal(JinjaRun *run, const JValue *a, const JValue *b, bool *ret);
/* -1, 0, 1; fails for types that Python does not order. */
LW_CHECK bool jinja_compare(JinjaRun *run, const JValue *a, const JValue *b, int *ret);
/* The items of anything iterable: characters of text, keys of a dictionary; a generator is used up. */
LW_CHECK bool jinja_items(JinjaRun *run, const JValue *value, JList *ret);
/* len(); fails for what has none. */
LW_CHECK bool jinja_length(JinjaRun *run, const JValue *value, int64_t *ret);

LW_CHECK bool jinja_build_bytes(JinjaRun *run, JBuild *build, const char *data, size_t n, uint8_t mark);
LW_CHECK bool jinja_build_text(JinjaRun *run, JBuild *build, JText text);
LW_CHECK bool jinja_build_escaped(JinjaRun *run, JBuild *build, JText text); /* for HTML */
JText jinja_build_done(const JBuild *build);

/* a then b, in time of b's length when a is itself what the last concatenation gave. */
LW_CHECK bool jinja_concat(JinjaRun *run, JText a, JText b, JText *ret);

/* str(): text itself, without a copy, or the value written as Python writes it. */
LW_CHECK bool jinja_str(JinjaRun *run, const JValue *value, JText *ret);
LW_CHECK bool jinja_build_str(JinjaRun *run, JBuild *build, const JValue *value);
LW_CHECK bool jinja_build_repr(JinjaRun *run, JBuild *build, const JValue *value);

typedef struct JsonStyle {
    JText indent; /* one level; used when pretty */
    JText item_separator, key_separator;
    bool pretty, ascii, sort_keys;
} JsonStyle;
LW_CHECK bool jinja_build_json(JinjaRun *run, JBuild *build, const JsonStyle *style, const JValue *value);
