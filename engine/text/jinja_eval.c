/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions. */
#include "engine/text/jinja_run.h"
#include "engine/text/jinja_utf8.h"

typedef bool (*EvalFn)(JinjaRun *run, const JNode *node, JValue *ret);

static bool eval_const(JinjaRun *run, const JNode *node, JValue *ret)
{
    (void)run;
    *ret = node->constant;
    return true;
}

static bool eval_name(JinjaRun *run, const JNode *node, JValue *ret)
{
    const JValue *value;
    if (!jinja_scope_find(run, node->text, &value)) return false;
    if (value) {
        *ret = *value;
        return true;
    }
    const JCallRow *function = jinja_function_find(node->text);
    if (!function) return jinja_make_undefined(run, node->text, NULL, ret);
    *ret = (JValue){.type = J_FUNCTION, .function = function};
    return true;
}

static bool eval_list(JinjaRun *run, const JNode *node, JValue *ret)
{
    JValue list;
    if (!jinja_make_list(run, node->type == N_LIST ? J_LIST : J_TUPLE, 0, &list)) return false;
    for (const JNode *item = node->list; item; item = item->next) {
        JValue value;
        if (!jinja_eval(run, item, &value) || !jinja_list_push(run, list.list, value)) return false;
    }
    *ret = list;
    return true;
}

static bool eval_dict(JinjaRun *run, const JNode *node, JValue *ret)
{
    JValue dict;
    if (!jinja_make_dict(run, J_DICT, &dict)) return false;
    for (const JNode *item = node->list; item; item = item->next->next) {
        JValue key, value;
        if (!jinja_eval(run, item, &key) || !jinja_eval(run, item->next, &value)) return false;
        if (!jinja_dict_set(run, dict.dict, &key, value)) return false;
    }
    *ret = dict;
    return true;
}

static bool eval_attribute(JinjaRun *run, const JNode *node, JValue *ret)
{
    JValue object;
    if (!jinja_eval(run, node->a, &object)) return false;
    run->line = node->line;
    return jinja_attribute(run, &object, node->text, ret);
}

static bool eval_subscript(JinjaRun *run, const JNode *node, JValue *ret)
{
    JValue object, key;
    if (!jinja_eval(run, node->a, &object) || !jinja_eval(run, node->b, &key)) return false;
    run->line = node->line;
    return jinja_subscript(run, &object, &key, ret);
}

static bool eval_slice(JinjaRun *run, const JNode *node, JValue *ret)
{
    JValue object, bounds[3];
    if (!jinja_eval(run, node->a, &object)) return false;
    const JNode *bound = node->list;
    for (int i = 0; i < 3; i++, bound = bound->next)
        if (!jinja_eval(run, bound, &bounds[i])) return false;
    run->line = node->line;
    return jinja_slice(run, &object, bounds, ret);
}

static bool eval_call(JinjaRun *run, const JNode *node, JValue *ret)
{
    JValue callee;
    JCall call = {0};
    if (!jinja_eval(run, node->a, &callee) || !jinja_call_args(run, node->list, &call)) return false;
    run->line = node->line;
    return jinja_call_value(run, &callee, &call, ret);
}

static bool call_named(JinjaRun *run, const JNode *node, const char *kind, JValue *ret)
{
    JCall call = {0};
    if (!jinja_eval(run, node->a, &call.self) || !jinja_call_args(run, node->list, &call)) return false;
    run->line = node->line;
    if (!node->row) return jinja_fail(run, "no %s named '%.*s'", kind, (int)node->text.n, node->text.data);
    return jinja_call_row(run, node->row, &call, ret);
}

static bool eval_filter(JinjaRun *run, const JNode *node, JValue *ret)
{
    return call_named(run, node, "filter", ret);
}

static bool eval_test(JinjaRun *run, const JNode *node, JValue *ret)
{
    JValue result;
    if (!call_named(run, node, "test", &result)) return false;
    *ret = jinja_bool(jinja_truth(&result) != (node->op == OP_NOT));
    return true;
}

static bool eval_unary(JinjaRun *run, const JNode *node, JValue *ret)
{
    JValue operand;
    if (!jinja_eval(run, node->a, &operand)) return false;
    run->line = node->line;
    return jinja_unary(run, node->op, &operand, ret);
}

static bool eval_binary(JinjaRun *run, const JNode *node, JValue *ret)
{
    JValue a, b;
    if (!jinja_eval(run, node->a, &a) || !jinja_eval(run, node->b, &b)) return false;
    run->line = node->line;
    return jinja_binary(run, node->op, &a, &b, ret);
}

static bool eval_concat(JinjaRun *run, const JNode *node, JValue *ret)
{
    JText all = {.data = ""}, text;
    for (const JNode *item = node->list; item; item = item->next) {
        JValue value;
        if (!jinja_eval(run, item, &value) || !jinja_str(run, &value, &text)) return false;
        if (item == node->list)
            all = text;
        else if (!jinja_concat(run, all, text, &all))
            return false;
    }
    all.safe = false;
    return jinja_make_text(run, all, ret);
}

static bool eval_compare(JinjaRun *run, const JNode *node, JValue *ret)
{
    JValue left, right;
    bool holds = true;
    if (!jinja_eval(run, node->a, &left)) return false;
    for (const JNode *operand = node->list; operand && holds; operand = operand->next) {
        if (!jinja_eval(run, operand->a, &right)) return false;
        run->line = node->line;
        if (!jinja_compare_op(run, operand->op, &left, &right, &holds)) return false;
        left = right;
    }
    *ret = jinja_bool(holds);
    return true;
}

/* 'and' and 'or' give the operand that decided, as Python does. */
static bool eval_logic(JinjaRun *run, const JNode *node, JValue *ret)
{
    JValue left;
    if (!jinja_eval(run, node->a, &left)) return false;
    if (jinja_truth(&left) != (node->type == N_AND)) {
        *ret = left;
        return true;
    }
    return jinja_eval(run, node->b, ret);
}

static bool eval_ternary(JinjaRun *run, const JNode *node, JValue *ret)
{
    JValue condition;
    if (!jinja_eval(run, node->a, &condition)) return false;
    if (jinja_truth(&condition)) return jinja_eval(run, node->b, ret);
    if (node->c) return jinja_eval(run, node->c, ret);
    return jinja_make_undefined(run, JTEXT("the missing else of an inline if"), NULL, ret);
}

static bool eval_hole(JinjaRun *run, const JNode *node, JValue *ret)
{
    (void)node;
    *ret = run->hole;
    return true;
}

static const EvalFn eval_fns[] = {
    [N_CONST] = eval_const,   [N_NAME] = eval_name,     [N_LIST] = eval_list,
    [N_TUPLE] = eval_list,    [N_DICT] = eval_dict,     [N_ATTRIBUTE] = eval_attribute,
    [N_SLICE] = eval_slice,   [N_CALL] = eval_call,     [N_SUBSCRIPT] = eval_subscript,
    [N_FILTER] = eval_filter, [N_TEST] = eval_test,     [N_UNARY] = eval_unary,
    [N_BINARY] = eval_binary, [N_CONCAT] = eval_concat, [N_COMPARE] = eval_compare,
    [N_AND] = eval_logic,     [N_OR] = eval_logic,      [N_TERNARY] = eval_ternary,
    [N_HOLE] = eval_hole,
};

bool jinja_eval(JinjaRun *run, const JNode *node, JValue *ret)
{
    if (!jinja_spend(run, 1)) return false;
    if (++run->depth > JINJA_MAX_DEPTH) return jinja_fail(run, "the template recurses too deeply");
    bool ok = eval_fns[node->type](run, node, ret);
    run->depth--;
    return ok;
}

/* ---- attributes, items, slices ---- */

static bool missing(JinjaRun *run, const JValue *object, JText name, JValue *ret)
{
    return jinja_make_undefined(run, name, jinja_type_name(object), ret);
}

static bool entry_of(JinjaRun *run, const JValue *object, const JValue *key, JValue *ret, bool *ret_found)
{
    JEntry *entry;
    if (!jinja_dict_find(run, object->dict, key, &entry)) return false;
    *ret_found = entry != NULL;
    if (entry) *ret = entry->value;
    return true;
}

static bool own_attribute(JinjaRun *run, const JValue *object, JText name, JValue *ret, bool *ret_found)
{
    *ret_found = true;
    const JCallRow *row = jinja_method_find(object, name);
    if (row) {
        JMethod *method = jinja_alloc(run, 1, sizeof *method);
        if (!method) return false;
        *method = (JMethod){.row = row, .self = *object};
        *ret = (JValue){.type = J_METHOD, .method = method};
        return true;
    }
    if (object->type == J_LOOP) return jinja_loop_attribute(run, object->loop, name, ret, ret_found);
    if (object->type == J_CYCLER && jinja_text_equal(name, JTEXT("current"))) {
        *ret = object->list->items[object->list->stop];
        return true;
    }
    *ret_found = false;
    if (object->type != J_NAMESPACE) return true;
    JText copy = name;
    return entry_of(run, object, &(JValue){.type = J_TEXT, .text = &copy}, ret, ret_found);
}

bool jinja_attribute(JinjaRun *run, const JValue *object, JText name, JValue *ret)
{
    if (object->type == J_UNDEFINED) return jinja_fail_undefined(run, object);
    bool found;
    if (!own_attribute(run, object, name, ret, &found)) return false;
    if (!found && object->type == J_DICT &&
        !entry_of(run, object, &(JValue){.type = J_TEXT, .text = &name}, ret, &found))
        return false;
    return found || missing(run, object, name, ret);
}

static bool item_at(JinjaRun *run, const JValue *object, int64_t index, JValue *ret, bool *ret_found)
{
    int64_t n;
    if (!jinja_length(run, object, &n)) return false;
    if (index < 0) index += n;
    *ret_found = index >= 0 && index < n;
    if (!*ret_found) return true;
    if (object->type != J_TEXT) {
        *ret = object->list->items[index];
        return true;
    }
    JText text = *object->text;
    size_t at = jinja_char_offset(text, (size_t)index);
    return jinja_make_text(run, jinja_text_part(text, at, at + jinja_char_bytes(text, at)), ret);
}

static bool is_hashable(const JValue *key)
{
    return key->type != J_LIST && key->type != J_DICT;
}

bool jinja_subscript(JinjaRun *run, const JValue *object, const JValue *key, JValue *ret)
{
    if (object->type == J_UNDEFINED) return jinja_fail_undefined(run, object);
    bool found = false, whole = key->type == J_INT || key->type == J_BOOL;
    bool sequence =
        object->type == J_TEXT || object->type == J_LIST || object->type == J_TUPLE || object->type == J_RANGE;
    if (object->type == J_DICT && is_hashable(key) && !entry_of(run, object, key, ret, &found)) return false;
    if (sequence && whole) {
        int64_t index = key->type == J_INT ? key->integer : key->boolean;
        if (!item_at(run, object, index, ret, &found)) return false;
    }
    if (!found && key->type == J_TEXT && !own_attribute(run, object, *key->text, ret, &found)) return false;
    if (found) return true;
    JText name;
    return jinja_str(run, key, &name) && missing(run, object, name, ret);
}

/* Python's rules for where a slice begins and ends; n: length. */
typedef struct SliceRange {
    int64_t start, stop, step;
} SliceRange;

static bool slice_bound(JinjaRun *run, const JValue *bound, int64_t n, bool backward, int64_t absent, int64_t *ret)
{
    if (bound->type == J_NONE) {
        *ret = absent;
        return true;
    }
    if (bound->type != J_INT && bound->type != J_BOOL)
        return jinja_fail(run, "slice indices must be integers or None, not %s", jinja_type_name(bound));
    int64_t i = bound->type == J_INT ? bound->integer : bound->boolean;
    if (i < 0)
        i = i < -n ? -1 : i + n;
    else if (i > n)
        i = n;
    if (i < 0 && !backward) i = 0;
    if (i >= n && backward) i = n - 1;
    *ret = i;
    return true;
}

static bool slice_range(JinjaRun *run, const JValue bounds[3], int64_t n, SliceRange *ret)
{
    ret->step = 1;
    if (bounds[2].type == J_INT)
        ret->step = bounds[2].integer;
    else if (bounds[2].type != J_NONE)
        return jinja_fail(run, "slice step must be an integer");
    if (ret->step == 0) return jinja_fail(run, "slice step cannot be zero");
    bool backward = ret->step < 0;
    if (ret->step > n) ret->step = n + 1; /* one item at most; keeps the sums below from overflowing */
    if (ret->step < -n) ret->step = -n - 1;
    return slice_bound(run, &bounds[0], n, backward, backward ? n - 1 : 0, &ret->start) &&
           slice_bound(run, &bounds[1], n, backward, backward ? -1 : n, &ret->stop);
}

static bool slice_text(JinjaRun *run, JText text, SliceRange range, JValue *ret)
{
    size_t start = jinja_char_offset(text, (size_t)(range.start < 0 ? 0 : range.start));
    if (range.step == 1) {
        size_t end = range.stop <= range.start ? start
                                               : start + jinja_char_offset(jinja_text_part(text, start, text.n),
                                                                           (size_t)(range.stop - range.start));
        return jinja_make_text(run, jinja_text_part(text, start, end), ret);
    }
    JList characters;
    JBuild build = {0};
    if (!jinja_items(run, &(JValue){.type = J_TEXT, .text = &text}, &characters)) return false;
    for (int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop; i += range.step)
        if (!jinja_build_text(run, &build, *characters.items[i].text)) return false;
    return jinja_make_text(run, jinja_build_done(&build), ret);
}

bool jinja_slice(JinjaRun *run, const JValue *object, const JValue bounds[3], JValue *ret)
{
    if (object->type == J_UNDEFINED) return jinja_fail_undefined(run, object);
    if (object->type != J_TEXT && object->type != J_LIST && object->type != J_TUPLE && object->type != J_RANGE)
        return jinja_fail(run, "'%s' object cannot be sliced", jinja_type_name(object));
    int64_t n;
    SliceRange range = {0};
    if (!jinja_length(run, object, &n) || !slice_range(run, bounds, n, &range)) return false;
    if (object->type == J_TEXT) return slice_text(run, *object->text, range, ret);
    JValue list;
    if (!jinja_make_list(run, object->type == J_TUPLE ? J_TUPLE : J_LIST, 0, &list)) return false;
    for (int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop; i += range.step)
        if (!jinja_list_push(run, list.list, object->list->items[i])) return false;
    *ret = list;
    return jinja_spend(run, list.list->n / 8);
}
