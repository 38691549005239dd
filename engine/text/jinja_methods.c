/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of dictionaries, lists and the small objects, and the lookup of all methods. */
#include "engine/text/jinja_methods.h"

#include <string.h>

/* ---- dictionaries ---- */

static bool make_view(JinjaRun *run, const char *label, JValue *ret)
{
    if (!jinja_make_list(run, J_VIEW, 0, ret)) return false;
    ret->list->label = label;
    return true;
}

static bool dict_items(JinjaRun *run, const JCall *call, JValue *ret)
{
    if (!make_view(run, "dict_items", ret)) return false;
    const JDict *dict = call->self.dict;
    for (size_t i = 0; i < dict->n; i++) {
        JValue pair;
        if (!jinja_make_pair(run, dict->entries[i].key, dict->entries[i].value, &pair)) return false;
        if (!jinja_list_push(run, ret->list, pair)) return false;
    }
    return true;
}

static bool dict_keys(JinjaRun *run, const JCall *call, JValue *ret)
{
    if (!make_view(run, "dict_keys", ret)) return false;
    for (size_t i = 0; i < call->self.dict->n; i++)
        if (!jinja_list_push(run, ret->list, call->self.dict->entries[i].key)) return false;
    return true;
}

static bool dict_values(JinjaRun *run, const JCall *call, JValue *ret)
{
    if (!make_view(run, "dict_values", ret)) return false;
    for (size_t i = 0; i < call->self.dict->n; i++)
        if (!jinja_list_push(run, ret->list, call->self.dict->entries[i].value)) return false;
    return true;
}

/* key default */
static bool dict_get(JinjaRun *run, const JCall *call, JValue *ret)
{
    JEntry *entry;
    if (!jinja_dict_find(run, call->self.dict, &call->bound[0], &entry)) return false;
    *ret = entry ? entry->value : jinja_is_missing(&call->bound[1]) ? jinja_none() : call->bound[1];
    return true;
}

/* key default */
static bool dict_pop(JinjaRun *run, const JCall *call, JValue *ret)
{
    JEntry *entry;
    if (!jinja_dict_find(run, call->self.dict, &call->bound[0], &entry)) return false;
    if (!entry && jinja_is_missing(&call->bound[1])) return jinja_fail(run, "pop: the dictionary has no such key");
    *ret = entry ? entry->value : call->bound[1];
    return !entry || jinja_dict_remove(run, call->self.dict, &call->bound[0]);
}

/* key default */
static bool dict_setdefault(JinjaRun *run, const JCall *call, JValue *ret)
{
    JEntry *entry;
    if (!jinja_dict_find(run, call->self.dict, &call->bound[0], &entry)) return false;
    *ret = entry ? entry->value : jinja_is_missing(&call->bound[1]) ? jinja_none() : call->bound[1];
    return entry || jinja_dict_set(run, call->self.dict, &call->bound[0], *ret);
}

bool jinja_dict_merge(JinjaRun *run, JDict *dict, const JCall *call)
{
    if (call->n_args > 1) return jinja_fail(run, "a dictionary is made from one mapping at most");
    if (call->n_args && call->args[0].type == J_DICT) {
        const JDict *from = call->args[0].dict;
        size_t n = from->n; /* it may be the same dictionary */
        for (size_t i = 0; i < n; i++)
            if (!jinja_dict_set(run, dict, &from->entries[i].key, from->entries[i].value)) return false;
    } else if (call->n_args) {
        JList pairs, pair;
        if (!jinja_items(run, &call->args[0], &pairs)) return false;
        for (size_t i = 0; i < pairs.n; i++) {
            if (!jinja_items(run, &pairs.items[i], &pair)) return false;
            if (pair.n != 2) return jinja_fail(run, "a dictionary is made from pairs of key and value");
            if (!jinja_dict_set(run, dict, &pair.items[0], pair.items[1])) return false;
        }
    }
    for (size_t i = 0; i < call->n_keywords; i++)
        if (!jinja_dict_set_text(run, dict, call->keywords[i].name, call->keywords[i].value)) return false;
    return true;
}

static bool dict_update(JinjaRun *run, const JCall *call, JValue *ret)
{
    *ret = jinja_none();
    return jinja_dict_merge(run, call->self.dict, call);
}

static bool dict_copy(JinjaRun *run, const JCall *call, JValue *ret)
{
    JCall copy = {.args = &call->self, .n_args = 1};
    return jinja_make_dict(run, J_DICT, ret) && jinja_dict_merge(run, ret->dict, &copy);
}

/* ---- lists ---- */

static bool list_append(JinjaRun *run, const JCall *call, JValue *ret)
{
    *ret = jinja_none();
    return jinja_list_push(run, call->self.list, call->bound[0]);
}

static bool list_extend(JinjaRun *run, const JCall *call, JValue *ret)
{
    JList items;
    if (!jinja_items(run, &call->bound[0], &items)) return false;
    for (size_t i = 0; i < items.n; i++)
        if (!jinja_list_push(run, call->self.list, items.items[i])) return false;
    *ret = jinja_none();
    return true;
}

/* index, counted from the end when negative; beyond an end: that end */
static size_t clamp_index(int64_t index, size_t n)
{
    if (index < 0) index += (int64_t)n;
    return index < 0 ? 0 : (size_t)index > n ? n : (size_t)index;
}

/* index object */
static bool list_insert(JinjaRun *run, const JCall *call, JValue *ret)
{
    JList *list = call->self.list;
    if (call->bound[0].type != J_INT) return jinja_fail(run, "insert needs an index");
    if (!jinja_list_push(run, list, call->bound[1]) || !jinja_spend(run, list->n / 64)) return false;
    size_t at = clamp_index(call->bound[0].integer, list->n - 1);
    memmove(&list->items[at + 1], &list->items[at], (list->n - 1 - at) * sizeof *list->items);
    list->items[at] = call->bound[1];
    *ret = jinja_none();
    return true;
}

static bool remove_at(JinjaRun *run, JList *list, size_t at)
{
    memmove(&list->items[at], &list->items[at + 1], (list->n - at - 1) * sizeof *list->items);
    list->n--;
    return jinja_spend(run, list->n / 64);
}

/* index */
static bool list_pop(JinjaRun *run, const JCall *call, JValue *ret)
{
    JList *list = call->self.list;
    int64_t index = jinja_is_missing(&call->bound[0]) ? -1
                    : call->bound[0].type == J_INT    ? call->bound[0].integer
                                                      : INT64_MAX;
    if (index < 0) index += (int64_t)list->n;
    if (index < 0 || (uint64_t)index >= list->n) return jinja_fail(run, "pop index out of range");
    *ret = list->items[index];
    return remove_at(run, list, (size_t)index);
}

static bool find_item(JinjaRun *run, const JList *list, const JValue *item, size_t *ret)
{
    bool same = false;
    for (*ret = 0; *ret < list->n; ++*ret) {
        if (!jinja_equal(run, &list->items[*ret], item, &same)) return false;
        if (same) return true;
    }
    *ret = SIZE_MAX;
    return true;
}

static bool list_index(JinjaRun *run, const JCall *call, JValue *ret)
{
    size_t at;
    if (!find_item(run, call->self.list, &call->bound[0], &at)) return false;
    if (at == SIZE_MAX) return jinja_fail(run, "index: the value is not in the list");
    *ret = jinja_int((int64_t)at);
    return true;
}

static bool list_remove(JinjaRun *run, const JCall *call, JValue *ret)
{
    size_t at;
    if (!find_item(run, call->self.list, &call->bound[0], &at)) return false;
    if (at == SIZE_MAX) return jinja_fail(run, "remove: the value is not in the list");
    *ret = jinja_none();
    return remove_at(run, call->self.list, at);
}

static bool list_count(JinjaRun *run, const JCall *call, JValue *ret)
{
    int64_t n = 0;
    for (size_t i = 0; i < call->self.list->n; i++) {
        bool same;
        if (!jinja_equal(run, &call->self.list->items[i], &call->bound[0], &same)) return false;
        n += same;
    }
    *ret = jinja_int(n);
    return true;
}

static bool list_clear(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    call->self.list->n = 0;
    *ret = jinja_none();
    return true;
}

static bool list_copy(JinjaRun *run, const JCall *call, JValue *ret)
{
    if (!jinja_make_list(run, J_LIST, call->self.list->n, ret)) return false;
    for (size_t i = 0; i < call->self.list->n; i++)
        if (!jinja_list_push(run, ret->list, call->self.list->items[i])) return false;
    return true;
}

static bool list_reverse(JinjaRun *run, const JCall *call, JValue *ret)
{
    JList *list = call->self.list;
    for (size_t i = 0; i < list->n / 2; i++) {
        JValue other = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = list->items[i];
        list->items[i] = other;
    }
    *ret = jinja_none();
    return jinja_spend(run, list->n / 64);
}

/* ---- loop, cycler ---- */

static bool loop_cycle(JinjaRun *run, const JCall *call, JValue *ret)
{
    if (call->n_args == 0) return jinja_fail(run, "cycle needs something to cycle through");
    *ret = call->args[call->self.loop->index % call->n_args];
    return true;
}

static bool loop_changed(JinjaRun *run, const JCall *call, JValue *ret)
{
    JLoop *loop = call->self.loop;
    JValue now;
    bool same = false;
    if (!jinja_make_list(run, J_TUPLE, call->n_args, &now)) return false;
    for (size_t i = 0; i < call->n_args; i++)
        if (!jinja_list_push(run, now.list, call->args[i])) return false;
    if (!jinja_equal(run, &now, &loop->changed, &same)) return false;
    loop->changed = now;
    *ret = jinja_bool(!same);
    return true;
}

static bool cycler_next(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    JList *list = call->self.list;
    *ret = list->items[list->stop];
    list->stop = (list->stop + 1) % (int64_t)list->n;
    return true;
}

static bool cycler_reset(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    call->self.list->stop = 0;
    *ret = jinja_none();
    return true;
}

static const JCallRow dict_methods[] = {
    {"copy", dict_copy, "", 0},          {"get", dict_get, "key default", 1},
    {"items", dict_items, "", 0},        {"keys", dict_keys, "", 0},
    {"pop", dict_pop, "key default", 1}, {"setdefault", dict_setdefault, "key default", 1},
    {"update", dict_update, NULL, 0},    {"values", dict_values, "", 0},
};
static const JCallRow list_methods[] = {
    {"append", list_append, "object", 1},
    {"clear", list_clear, "", 0},
    {"copy", list_copy, "", 0},
    {"count", list_count, "value", 1},
    {"extend", list_extend, "iterable", 1},
    {"index", list_index, "value", 1},
    {"insert", list_insert, "index object", 2},
    {"pop", list_pop, "index", 0},
    {"remove", list_remove, "value", 1},
    {"reverse", list_reverse, "", 0},
};
static const JCallRow tuple_methods[] = {{"count", list_count, "value", 1}, {"index", list_index, "value", 1}};
static const JCallRow loop_methods[] = {{"changed", loop_changed, NULL, 0}, {"cycle", loop_cycle, NULL, 0}};
static const JCallRow cycler_methods[] = {{"next", cycler_next, "", 0}, {"reset", cycler_reset, "", 0}};

#define ROWS(rows, name) jinja_row_find(rows, sizeof(rows) / sizeof *(rows), name)

const JCallRow *jinja_method_find(const JValue *object, JText name)
{
    switch (object->type) {
    case J_DICT:
        return ROWS(dict_methods, name);
    case J_LIST:
        return ROWS(list_methods, name);
    case J_TUPLE:
        return ROWS(tuple_methods, name);
    case J_LOOP:
        return ROWS(loop_methods, name);
    case J_CYCLER:
        return ROWS(cycler_methods, name);
    case J_TEXT:
        return jinja_text_method_find(name);
    default:
        return NULL;
    }
}
