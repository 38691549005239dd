/* SPDX-License-Identifier: Apache-2.0 */
/* Filters on sequences and dictionaries, and the table of all filters. */
#include "engine/text/jinja_filters.h"
#include "engine/text/jinja_utf8.h"

#include <string.h>

static bool flag(const JValue *argument)
{
    return !jinja_is_missing(argument) && jinja_truth(argument);
}

/* ---- attributes by path, as map, sort and others take them: "a.b.0" or a number ---- */

static bool path_step(JinjaRun *run, const JValue *object, JText part, JValue *ret)
{
    int64_t index = 0;
    bool digits = part.n > 0 && part.n < 18;
    for (size_t i = 0; i < part.n && digits; i++) {
        digits = part.data[i] >= '0' && part.data[i] <= '9';
        index = index * 10 + (part.data[i] - '0');
    }
    JValue key = digits ? jinja_int(index) : (JValue){.type = J_TEXT, .text = &part};
    return jinja_subscript(run, object, &key, ret);
}

bool jinja_path(JinjaRun *run, const JValue *object, const JValue *path, const JValue *fallback, JValue *ret)
{
    if (path->type != J_TEXT) return jinja_subscript(run, object, path, ret);
    JText text = *path->text;
    JValue value = *object;
    for (size_t at = 0; at <= text.n;) {
        size_t dot = jinja_text_find(text, JTEXT("."), at);
        if (dot == SIZE_MAX) dot = text.n;
        if (!path_step(run, &value, jinja_text_part(text, at, dot), &value)) return false;
        if (value.type == J_UNDEFINED && fallback && !jinja_is_missing(fallback)) value = *fallback;
        at = dot + 1;
    }
    *ret = value;
    return true;
}

/* What an item is sorted or compared by: an attribute, in lower case unless asked otherwise. */
static bool sort_key(JinjaRun *run, const JValue *item, const JValue *attribute, bool case_sensitive, JValue *ret)
{
    *ret = *item;
    if (!jinja_is_missing(attribute) && attribute->type != J_NONE && !jinja_path(run, item, attribute, NULL, ret))
        return false;
    if (case_sensitive || ret->type != J_TEXT) return true;
    JText lower;
    return jinja_text_case(run, *ret->text, J_CASE_LOWER, &lower) && jinja_make_text(run, lower, ret);
}

/* ---- sorting ---- */

static bool merge(JinjaRun *run, const JValue *from, JValue *to, size_t start, size_t middle, size_t end, bool reverse)
{
    size_t a = start, b = middle;
    for (size_t i = start; i < end; i++) {
        int order = 0;
        bool take_b = a == middle;
        if (!take_b && b < end) {
            bool same; /* equal keys need no order: two None sort, one None and a number do not */
            const JValue *key_a = &from[a].list->items[0], *key_b = &from[b].list->items[0];
            if (!jinja_equal(run, key_a, key_b, &same) || (!same && !jinja_compare(run, key_a, key_b, &order)))
                return false;
            take_b = reverse ? order < 0 : order > 0;
        }
        to[i] = take_b ? from[b++] : from[a++];
    }
    return true;
}

bool jinja_sort_pairs(JinjaRun *run, JList *list, bool reverse)
{
    JValue *from = list->items, *to = jinja_alloc(run, list->n, sizeof *to);
    if (!to) return false;
    for (size_t width = 1; width < list->n; width *= 2) {
        for (size_t start = 0; start < list->n; start += 2 * width) {
            size_t middle = start + width < list->n ? start + width : list->n;
            size_t end = start + 2 * width < list->n ? start + 2 * width : list->n;
            if (!merge(run, from, to, start, middle, end, reverse)) return false;
        }
        JValue *swap = from;
        from = to;
        to = swap;
    }
    list->items = from;
    return true;
}

/* (key, item) for each item, sorted. */
static bool sorted_pairs(JinjaRun *run, const JList *items, const JValue *attribute, bool case_sensitive, bool reverse,
                         JList *ret)
{
    *ret = (JList){0};
    for (size_t i = 0; i < items->n; i++) {
        JValue key, pair;
        if (!sort_key(run, &items->items[i], attribute, case_sensitive, &key)) return false;
        if (!jinja_make_pair(run, key, items->items[i], &pair) || !jinja_list_push(run, ret, pair)) return false;
    }
    return jinja_sort_pairs(run, ret, reverse);
}

/* reverse case_sensitive attribute */
static bool filter_sort(JinjaRun *run, const JCall *call, JValue *ret)
{
    JList items, pairs;
    if (!jinja_items(run, &call->self, &items)) return false;
    if (!sorted_pairs(run, &items, &call->bound[2], flag(&call->bound[1]), flag(&call->bound[0]), &pairs)) return false;
    if (!jinja_make_list(run, J_LIST, pairs.n, ret)) return false;
    for (size_t i = 0; i < pairs.n; i++)
        if (!jinja_list_push(run, ret->list, pairs.items[i].list->items[1])) return false;
    return true;
}

static bool dict_pairs(JinjaRun *run, const JDict *dict, JList *list)
{
    for (size_t i = 0; i < dict->n; i++) {
        JValue pair;
        if (!jinja_make_pair(run, dict->entries[i].key, dict->entries[i].value, &pair)) return false;
        if (!jinja_list_push(run, list, pair)) return false;
    }
    return true;
}

/* case_sensitive by reverse */
static bool filter_dictsort(JinjaRun *run, const JCall *call, JValue *ret)
{
    if (call->self.type != J_DICT) return jinja_fail(run, "dictsort needs a dictionary");
    bool by_value = false;
    if (call->bound[1].type == J_TEXT) {
        by_value = jinja_text_equal(*call->bound[1].text, JTEXT("value"));
        if (!by_value && !jinja_text_equal(*call->bound[1].text, JTEXT("key")))
            return jinja_fail(run, "dictsort sorts by \"key\" or \"value\"");
    }
    JList items = {0}, sorted;
    JValue which = jinja_int(by_value);
    if (!dict_pairs(run, call->self.dict, &items)) return false;
    if (!sorted_pairs(run, &items, &which, flag(&call->bound[0]), flag(&call->bound[2]), &sorted)) return false;
    if (!jinja_make_list(run, J_LIST, sorted.n, ret)) return false;
    for (size_t i = 0; i < sorted.n; i++)
        if (!jinja_list_push(run, ret->list, sorted.items[i].list->items[1])) return false;
    return true;
}

static bool filter_items(JinjaRun *run, const JCall *call, JValue *ret)
{
    if (!jinja_make_list(run, J_ITER, 0, ret)) return false;
    if (call->self.type == J_UNDEFINED) return true;
    if (call->self.type != J_DICT) return jinja_fail(run, "Can only get item pairs from a mapping.");
    return dict_pairs(run, call->self.dict, ret->list);
}

/* ---- order and size ---- */

static bool filter_length(JinjaRun *run, const JCall *call, JValue *ret)
{
    int64_t n;
    if (!jinja_length(run, &call->self, &n)) return false;
    *ret = jinja_int(n);
    return true;
}

static bool filter_first(JinjaRun *run, const JCall *call, JValue *ret)
{
    JList items;
    if (!jinja_items(run, &call->self, &items)) return false;
    if (items.n == 0) return jinja_make_undefined(run, JTEXT("first item of an empty sequence"), NULL, ret);
    *ret = items.items[0];
    return true;
}

static bool filter_last(JinjaRun *run, const JCall *call, JValue *ret)
{
    JList items;
    if (!jinja_items(run, &call->self, &items)) return false;
    if (items.n == 0) return jinja_make_undefined(run, JTEXT("last item of an empty sequence"), NULL, ret);
    *ret = items.items[items.n - 1];
    return true;
}

static bool copy_items(JinjaRun *run, const JList *items, JType type, bool reverse, JValue *ret)
{
    if (!jinja_make_list(run, type, items->n, ret)) return false;
    for (size_t i = 0; i < items->n; i++)
        if (!jinja_list_push(run, ret->list, items->items[reverse ? items->n - 1 - i : i])) return false;
    return true;
}

static bool filter_list(JinjaRun *run, const JCall *call, JValue *ret)
{
    JList items;
    return jinja_items(run, &call->self, &items) && copy_items(run, &items, J_LIST, false, ret);
}

static bool filter_reverse(JinjaRun *run, const JCall *call, JValue *ret)
{
    JList items;
    if (!jinja_items(run, &call->self, &items)) return false;
    if (call->self.type != J_TEXT)
        return copy_items(run, &items, call->self.type == J_ITER ? J_LIST : J_ITER, true, ret);
    JBuild build = {0};
    for (size_t i = items.n; i-- > 0;)
        if (!jinja_build_text(run, &build, *items.items[i].text)) return false;
    return jinja_make_text(run, jinja_build_done(&build), ret);
}

/* case_sensitive attribute */
static bool filter_unique(JinjaRun *run, const JCall *call, JValue *ret)
{
    JList items;
    JValue seen;
    if (!jinja_items(run, &call->self, &items) || !jinja_make_dict(run, J_DICT, &seen)) return false;
    if (!jinja_make_list(run, J_ITER, 0, ret)) return false;
    for (size_t i = 0; i < items.n; i++) {
        JValue key;
        JEntry *entry;
        if (!sort_key(run, &items.items[i], &call->bound[1], flag(&call->bound[0]), &key)) return false;
        if (!jinja_dict_find(run, seen.dict, &key, &entry)) return false;
        if (entry) continue;
        if (!jinja_dict_set(run, seen.dict, &key, jinja_none())) return false;
        if (!jinja_list_push(run, ret->list, items.items[i])) return false;
    }
    return true;
}

/* case_sensitive attribute */
static bool extreme(JinjaRun *run, const JCall *call, int wanted, JValue *ret)
{
    JList items;
    if (!jinja_items(run, &call->self, &items)) return false;
    if (items.n == 0) return jinja_make_undefined(run, JTEXT("item of an empty sequence"), NULL, ret);
    JValue best;
    if (!sort_key(run, &items.items[0], &call->bound[1], flag(&call->bound[0]), &best)) return false;
    *ret = items.items[0];
    for (size_t i = 1; i < items.n; i++) {
        JValue key;
        int order;
        if (!sort_key(run, &items.items[i], &call->bound[1], flag(&call->bound[0]), &key)) return false;
        if (!jinja_compare(run, &key, &best, &order)) return false;
        if (order != wanted) continue;
        best = key;
        *ret = items.items[i];
    }
    return true;
}

static bool filter_min(JinjaRun *run, const JCall *call, JValue *ret)
{
    return extreme(run, call, -1, ret);
}

static bool filter_max(JinjaRun *run, const JCall *call, JValue *ret)
{
    return extreme(run, call, 1, ret);
}

/* attribute start */
static bool filter_sum(JinjaRun *run, const JCall *call, JValue *ret)
{
    JList items;
    if (!jinja_items(run, &call->self, &items)) return false;
    JValue total = jinja_is_missing(&call->bound[1]) ? jinja_int(0) : call->bound[1];
    for (size_t i = 0; i < items.n; i++) {
        JValue value;
        if (!sort_key(run, &items.items[i], &call->bound[0], true, &value)) return false;
        if (!jinja_binary(run, OP_ADD, &total, &value, &total)) return false;
    }
    *ret = total;
    return true;
}

/* linecount fill_with */
static bool filter_batch(JinjaRun *run, const JCall *call, JValue *ret)
{
    JList items;
    if (call->bound[0].type != J_INT || call->bound[0].integer < 1)
        return jinja_fail(run, "batch needs a positive size");
    if (!jinja_items(run, &call->self, &items) || !jinja_make_list(run, J_ITER, 0, ret)) return false;
    size_t size = (size_t)call->bound[0].integer;
    JValue row = {0};
    for (size_t i = 0; i < items.n; i++) {
        if (i % size == 0 && (!jinja_make_list(run, J_LIST, 0, &row) || !jinja_list_push(run, ret->list, row)))
            return false;
        if (!jinja_list_push(run, row.list, items.items[i])) return false;
    }
    if (items.n == 0 || jinja_is_missing(&call->bound[1]) || call->bound[1].type == J_NONE) return true;
    while (row.list->n < size)
        if (!jinja_spend(run, 1) || !jinja_list_push(run, row.list, call->bound[1])) return false;
    return true;
}

/* attribute default case_sensitive */
static bool filter_groupby(JinjaRun *run, const JCall *call, JValue *ret)
{
    JList items, pairs;
    if (!jinja_items(run, &call->self, &items) || !jinja_make_list(run, J_LIST, 0, ret)) return false;
    if (!sorted_pairs(run, &items, &call->bound[0], flag(&call->bound[2]), false, &pairs)) return false;
    JValue group = {0};
    for (size_t i = 0; i < pairs.n; i++) {
        JValue *pair = pairs.items[i].list->items;
        bool same = false;
        if (i && !jinja_equal(run, &pair[0], &pairs.items[i - 1].list->items[0], &same)) return false;
        if (!same) {
            JValue name, entry;
            if (!jinja_path(run, &pair[1], &call->bound[0], &call->bound[1], &name)) return false;
            if (!jinja_make_list(run, J_LIST, 0, &group) || !jinja_make_pair(run, name, group, &entry)) return false;
            if (!jinja_list_push(run, ret->list, entry)) return false;
        }
        if (!jinja_list_push(run, group.list, pair[1])) return false;
    }
    return true;
}

/* ---- map, select and their kin ---- */

static bool find_row(JinjaRun *run, const JValue *name, bool filter, const JCallRow **ret)
{
    if (name->type != J_TEXT) return jinja_fail(run, "the name of a %s must be a string", filter ? "filter" : "test");
    *ret = filter ? jinja_filter_find(*name->text) : jinja_test_find(*name->text);
    if (*ret) return true;
    return jinja_fail(run, "no %s named '%.*s'", filter ? "filter" : "test", (int)name->text->n, name->text->data);
}

/* The call of the inner filter or test: its arguments are those after the first 'skip'. */
static JCall inner_call(const JCall *call, size_t skip, JValue self)
{
    return (JCall){.self = self,
                   .args = skip ? call->args + skip : call->args,
                   .n_args = call->n_args - skip,
                   .keywords = call->keywords,
                   .n_keywords = call->n_keywords};
}

static bool map_attribute(JinjaRun *run, const JCall *call, const JList *items, JList *to)
{
    const JValue *attribute = NULL, *fallback = NULL;
    for (size_t i = 0; i < call->n_keywords; i++) {
        if (jinja_text_equal(call->keywords[i].name, JTEXT("attribute"))) attribute = &call->keywords[i].value;
        if (jinja_text_equal(call->keywords[i].name, JTEXT("default"))) fallback = &call->keywords[i].value;
    }
    if (!attribute) return jinja_fail(run, "map needs a filter or an attribute");
    for (size_t i = 0; i < items->n; i++) {
        JValue value;
        if (!jinja_path(run, &items->items[i], attribute, fallback, &value)) return false;
        if (!jinja_list_push(run, to, value)) return false;
    }
    return true;
}

/* The items to go through; none for anything false, None and 0 included. */
static bool items_or_none(JinjaRun *run, const JValue *value, JList *ret)
{
    *ret = (JList){0};
    return !jinja_truth(value) || jinja_items(run, value, ret);
}

static bool filter_map(JinjaRun *run, const JCall *call, JValue *ret)
{
    JList items;
    if (!items_or_none(run, &call->self, &items) || !jinja_make_list(run, J_ITER, 0, ret)) return false;
    if (call->n_args == 0) return map_attribute(run, call, &items, ret->list);
    const JCallRow *row;
    if (!find_row(run, &call->args[0], true, &row)) return false;
    for (size_t i = 0; i < items.n; i++) {
        JCall inner = inner_call(call, 1, items.items[i]);
        JValue value;
        if (!jinja_call_row(run, row, &inner, &value) || !jinja_list_push(run, ret->list, value)) return false;
    }
    return true;
}

/* Keeps the items, or an attribute of theirs, for which a test (or plain truth) gives 'wanted'. */
static bool select_items(JinjaRun *run, const JCall *call, bool by_attribute, bool wanted, JValue *ret)
{
    JList items;
    const JCallRow *row = NULL;
    size_t skip = by_attribute;
    if (!items_or_none(run, &call->self, &items) || !jinja_make_list(run, J_ITER, 0, ret)) return false;
    if (call->n_args < skip) return jinja_fail(run, "selectattr and rejectattr need an attribute");
    if (call->n_args > skip && !find_row(run, &call->args[skip++], false, &row)) return false;
    for (size_t i = 0; i < items.n; i++) {
        JValue value = items.items[i];
        if (by_attribute && !jinja_path(run, &items.items[i], &call->args[0], NULL, &value)) return false;
        JCall inner = inner_call(call, skip, value);
        if (row && !jinja_call_row(run, row, &inner, &value)) return false;
        if (jinja_truth(&value) == wanted && !jinja_list_push(run, ret->list, items.items[i])) return false;
    }
    return true;
}

static bool filter_select(JinjaRun *run, const JCall *call, JValue *ret)
{
    return select_items(run, call, false, true, ret);
}

static bool filter_reject(JinjaRun *run, const JCall *call, JValue *ret)
{
    return select_items(run, call, false, false, ret);
}

static bool filter_selectattr(JinjaRun *run, const JCall *call, JValue *ret)
{
    return select_items(run, call, true, true, ret);
}

static bool filter_rejectattr(JinjaRun *run, const JCall *call, JValue *ret)
{
    return select_items(run, call, true, false, ret);
}

/* d attribute */
static bool filter_join(JinjaRun *run, const JCall *call, JValue *ret)
{
    JList items;
    JText separator = {0};
    if (!jinja_items(run, &call->self, &items)) return false;
    if (!jinja_is_missing(&call->bound[0]) && !jinja_str(run, &call->bound[0], &separator)) return false;
    JBuild build = {0};
    for (size_t i = 0; i < items.n; i++) {
        JValue value;
        if (i && !jinja_build_text(run, &build, separator)) return false;
        if (!sort_key(run, &items.items[i], &call->bound[1], true, &value)) return false;
        if (!jinja_build_str(run, &build, &value)) return false;
    }
    return jinja_make_text(run, jinja_build_done(&build), ret);
}

/* default_value boolean */
static bool filter_default(JinjaRun *run, const JCall *call, JValue *ret)
{
    bool replaces = call->self.type == J_UNDEFINED || (flag(&call->bound[1]) && !jinja_truth(&call->self));
    if (replaces && jinja_is_missing(&call->bound[0])) return jinja_make_text(run, JTEXT(""), ret);
    *ret = replaces ? call->bound[0] : call->self;
    return true;
}

/* name */
static bool filter_attr(JinjaRun *run, const JCall *call, JValue *ret)
{
    if (call->bound[0].type != J_TEXT) return jinja_fail(run, "attr needs a name");
    return jinja_attribute(run, &call->self, *call->bound[0].text, ret);
}

static const JCallRow filters[] = {
    {"attr", filter_attr, "name", 1},
    {"batch", filter_batch, "linecount fill_with", 1},
    {"count", filter_length, "", 0},
    {"d", filter_default, "default_value boolean", 0},
    {"default", filter_default, "default_value boolean", 0},
    {"dictsort", filter_dictsort, "case_sensitive by reverse", 0},
    {"first", filter_first, "", 0},
    {"groupby", filter_groupby, "attribute default case_sensitive", 1},
    {"items", filter_items, "", 0},
    {"join", filter_join, "d attribute", 0},
    {"last", filter_last, "", 0},
    {"length", filter_length, "", 0},
    {"list", filter_list, "", 0},
    {"map", filter_map, NULL, 0},
    {"max", filter_max, "case_sensitive attribute", 0},
    {"min", filter_min, "case_sensitive attribute", 0},
    {"reject", filter_reject, NULL, 0},
    {"rejectattr", filter_rejectattr, NULL, 0},
    {"reverse", filter_reverse, "", 0},
    {"select", filter_select, NULL, 0},
    {"selectattr", filter_selectattr, NULL, 0},
    {"sort", filter_sort, "reverse case_sensitive attribute", 0},
    {"sum", filter_sum, "attribute start", 0},
    {"unique", filter_unique, "case_sensitive attribute", 0},
};

const JCallRow *jinja_row_find(const JCallRow *rows, size_t n, JText name)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(rows[i].name) == name.n && memcmp(rows[i].name, name.data, name.n) == 0) return &rows[i];
    return NULL;
}

const JCallRow *jinja_filter_find(JText name)
{
    const JCallRow *row = jinja_row_find(filters, sizeof filters / sizeof *filters, name);
    return row ? row : jinja_scalar_filter_find(name);
}
