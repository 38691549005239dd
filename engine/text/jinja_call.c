/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: arguments to parameters, macros, the loop object. */
#include "engine/text/jinja_run.h"

#include <string.h>

static bool spread_list(JinjaRun *run, const JValue *value, JList *args)
{
    JList items;
    if (!jinja_items(run, value, &items)) return false;
    for (size_t i = 0; i < items.n; i++)
        if (!jinja_list_push(run, args, items.items[i])) return false;
    return true;
}

/* An argument may change a dictionary that another one spreads: there is no count of them before all are evaluated. */
typedef struct KeywordList {
    JKeyword *items; /* [n] */
    size_t n, capacity;
} KeywordList;

static bool push_keyword(JinjaRun *run, KeywordList *list, JText name, JValue value)
{
    JKeyword *items = jinja_room(run, list->items, list->n, sizeof *items, &list->capacity);
    if (!items) return false;
    list->items = items;
    list->items[list->n++] = (JKeyword){.name = name, .value = value};
    return true;
}

static bool spread_dict(JinjaRun *run, const JValue *value, KeywordList *keywords)
{
    if (value->type != J_DICT) return jinja_fail(run, "the argument after ** must be a dictionary");
    for (size_t i = 0; i < value->dict->n; i++) {
        const JEntry *entry = &value->dict->entries[i];
        if (entry->key.type != J_TEXT) return jinja_fail(run, "keywords must be strings");
        if (!push_keyword(run, keywords, *entry->key.text, entry->value)) return false;
    }
    return jinja_spend(run, value->dict->n / 8);
}

bool jinja_call_args(JinjaRun *run, const JNode *args, JCall *call)
{
    JList list = {0};
    KeywordList keywords = {0};
    for (const JNode *arg = args; arg; arg = arg->next) {
        JValue value;
        bool is_star = arg->type == N_STAR, is_keyword = arg->type == N_KEYWORD, ok;
        if (!jinja_eval(run, is_star || is_keyword ? arg->a : arg, &value)) return false;
        if (is_star && arg->op == OP_POW)
            ok = spread_dict(run, &value, &keywords);
        else if (is_star)
            ok = spread_list(run, &value, &list);
        else if (is_keyword)
            ok = push_keyword(run, &keywords, arg->text, value);
        else
            ok = jinja_list_push(run, &list, value);
        if (!ok) return false;
    }
    call->args = list.items;
    call->n_args = list.n;
    call->keywords = keywords.items;
    call->n_keywords = keywords.n;
    return true;
}

/* The index of a name in a space-separated list; n: how many there are. */
static int param_index(const char *params, JText name, int *ret_n)
{
    int found = -1, n = 0;
    for (const char *p = params; *p; n++) {
        size_t len = strcspn(p, " ");
        if (found < 0 && jinja_text_equal((JText){.data = p, .n = len}, name)) found = n;
        p += len + (p[len] == ' ');
    }
    *ret_n = n;
    return found;
}

static bool bind(JinjaRun *run, const JCallRow *row, JCall *call)
{
    int n_params;
    (void)param_index(row->params, JTEXT(""), &n_params);
    if (call->n_args > (size_t)n_params)
        return jinja_fail(run, "%s() takes at most %d arguments, got %zu", row->name, n_params, call->n_args);
    for (size_t i = 0; i < call->n_args; i++) call->bound[i] = call->args[i];
    for (size_t i = 0; i < call->n_keywords; i++) {
        JText name = call->keywords[i].name;
        int at = param_index(row->params, name, &n_params);
        if (at < 0)
            return jinja_fail(run, "%s() has no parameter '%.*s'", row->name, (int)(name.n < 64 ? name.n : 64),
                              name.data);
        if (!jinja_is_missing(&call->bound[at]))
            return jinja_fail(run, "%s() got two values for '%.*s'", row->name, (int)name.n, name.data);
        call->bound[at] = call->keywords[i].value;
    }
    for (int i = 0; i < row->required; i++)
        if (jinja_is_missing(&call->bound[i])) return jinja_fail(run, "%s() lacks an argument", row->name);
    return true;
}

bool jinja_call_row(JinjaRun *run, const JCallRow *row, JCall *call, JValue *ret)
{
    if (!jinja_spend(run, 1)) return false;
    if (row->params && !bind(run, row, call)) return false;
    return row->fn(run, call, ret);
}

bool jinja_call_value(JinjaRun *run, const JValue *callee, JCall *call, JValue *ret)
{
    switch (callee->type) {
    case J_MACRO:
        return jinja_call_macro(run, callee->macro, call, ret);
    case J_FUNCTION:
        return jinja_call_row(run, callee->function, call, ret);
    case J_METHOD:
        call->self = callee->method->self;
        return jinja_call_row(run, callee->method->row, call, ret);
    case J_LOOP:
        return jinja_call_loop(run, callee->loop, call, ret);
    case J_JOINER:
        if (callee->list->stop++ == 0) return jinja_make_text(run, JTEXT(""), ret);
        *ret = callee->list->items[0];
        return true;
    case J_UNDEFINED:
        return jinja_fail_undefined(run, callee);
    default:
        return jinja_fail(run, "'%s' object is not callable", jinja_type_name(callee));
    }
}

/* ---- macros ---- */

static const JKeyword *find_keyword(const JCall *call, JText name)
{
    for (size_t i = 0; i < call->n_keywords; i++)
        if (jinja_text_equal(call->keywords[i].name, name)) return &call->keywords[i];
    return NULL;
}

static bool has_param(const JNode *macro, JText name)
{
    for (const JNode *param = macro->params; param; param = param->next)
        if (jinja_text_equal(param->text, name)) return true;
    return false;
}

static bool bind_params(JinjaRun *run, const JNode *macro, const JCall *call)
{
    size_t i = 0;
    for (const JNode *param = macro->params; param; param = param->next, i++) {
        const JKeyword *keyword = i < call->n_args ? NULL : find_keyword(call, param->text);
        JValue value;
        if (i < call->n_args)
            value = call->args[i];
        else if (keyword)
            value = keyword->value;
        else if (param->a ? !jinja_eval(run, param->a, &value) : !jinja_make_undefined(run, param->text, NULL, &value))
            return false;
        if (!jinja_scope_set(run, run->scope, param->text, value)) return false;
    }
    return true;
}

/* What the parameters did not take: 'varargs', 'kwargs' and 'caller', where the macro mentions them. */
static bool bind_rest(JinjaRun *run, const JNode *macro, const JCall *call)
{
    size_t n_params = 0;
    for (const JNode *param = macro->params; param; param = param->next) n_params++;
    if (call->n_args > n_params && !(macro->uses & J_USES_VARARGS))
        return jinja_fail(run, "macro '%.*s' takes not more than %zu arguments", (int)macro->text.n, macro->text.data,
                          n_params);
    JValue varargs, kwargs;
    if (!jinja_make_list(run, J_TUPLE, 0, &varargs) || !jinja_make_dict(run, J_DICT, &kwargs)) return false;
    for (size_t i = n_params; i < call->n_args; i++)
        if (!jinja_list_push(run, varargs.list, call->args[i])) return false;
    for (size_t i = 0; i < call->n_keywords; i++) {
        const JKeyword *keyword = &call->keywords[i];
        if (has_param(macro, keyword->name)) continue;
        bool caller = jinja_text_equal(keyword->name, JTEXT("caller"));
        if (!(macro->uses & (caller ? J_USES_CALLER : J_USES_KWARGS)))
            return jinja_fail(run, "macro '%.*s' takes no keyword argument '%.*s'", (int)macro->text.n,
                              macro->text.data, (int)keyword->name.n, keyword->name.data);
        if (caller ? !jinja_scope_set(run, run->scope, keyword->name, keyword->value)
                   : !jinja_dict_set_text(run, kwargs.dict, keyword->name, keyword->value))
            return false;
    }
    if ((macro->uses & J_USES_VARARGS) && !jinja_scope_set(run, run->scope, JTEXT("varargs"), varargs)) return false;
    return !(macro->uses & J_USES_KWARGS) || jinja_scope_set(run, run->scope, JTEXT("kwargs"), kwargs);
}

bool jinja_call_macro(JinjaRun *run, const JMacro *macro, const JCall *call, JValue *ret)
{
    JScope *outer = run->scope, *inner = jinja_alloc(run, 1, sizeof *inner);
    if (!inner) return false;
    uint32_t line = run->line;
    inner->parent = macro->scope;
    run->scope = inner;
    bool ok = bind_params(run, macro->node, call) && bind_rest(run, macro->node, call) &&
              jinja_capture(run, macro->node->body, ret);
    run->scope = outer;
    if (ok) run->line = line;
    return ok;
}

/* ---- the loop object ---- */

bool jinja_call_loop(JinjaRun *run, const JLoop *loop, const JCall *call, JValue *ret)
{
    if (!loop->recursive) return jinja_fail(run, "the loop is called, but it is not marked recursive");
    if (call->n_args != 1) return jinja_fail(run, "a recursive loop takes one argument");
    JScope *outer = run->scope;
    JBuild build = {0}, *outer_out = run->out;
    bool iterated;
    run->scope = loop->scope;
    run->out = &build;
    bool ok = jinja_exec_for(run, loop->recursive, &call->args[0], loop->depth + 1, &iterated);
    run->scope = outer;
    run->out = outer_out;
    return ok && jinja_make_text(run, jinja_build_done(&build), ret);
}

typedef enum LoopFact {
    LOOP_INDEX,
    LOOP_INDEX0,
    LOOP_REVINDEX,
    LOOP_REVINDEX0,
    LOOP_FIRST,
    LOOP_LAST,
    LOOP_LENGTH,
    LOOP_DEPTH,
    LOOP_DEPTH0,
    LOOP_PREVITEM,
    LOOP_NEXTITEM,
} LoopFact;

static const char *const loop_names[] = {"index",  "index0", "revindex", "revindex0", "first",   "last",
                                         "length", "depth",  "depth0",   "previtem",  "nextitem"};

static bool neighbour(JinjaRun *run, const JLoop *loop, bool there, size_t at, JText name, JValue *ret)
{
    if (!there) return jinja_make_undefined(run, name, "loop", ret);
    *ret = loop->items.items[at];
    return true;
}

static bool loop_fact(JinjaRun *run, const JLoop *loop, LoopFact fact, JValue *ret)
{
    size_t index = loop->index, n = loop->items.n;
    int64_t left = (int64_t)(n - index);
    switch (fact) {
    case LOOP_PREVITEM:
        return neighbour(run, loop, index > 0, index - 1, JTEXT("previtem"), ret);
    case LOOP_NEXTITEM:
        return neighbour(run, loop, index + 1 < n, index + 1, JTEXT("nextitem"), ret);
    case LOOP_FIRST:
    case LOOP_LAST:
        *ret = jinja_bool(fact == LOOP_FIRST ? index == 0 : left == 1);
        return true;
    default:
        break;
    }
    *ret = jinja_int(fact == LOOP_INDEX       ? (int64_t)index + 1
                     : fact == LOOP_INDEX0    ? (int64_t)index
                     : fact == LOOP_REVINDEX  ? left
                     : fact == LOOP_REVINDEX0 ? left - 1
                     : fact == LOOP_LENGTH    ? (int64_t)n
                     : fact == LOOP_DEPTH     ? (int64_t)loop->depth + 1
                                              : (int64_t)loop->depth);
    return true;
}

bool jinja_loop_attribute(JinjaRun *run, const JLoop *loop, JText name, JValue *ret, bool *ret_found)
{
    for (size_t i = 0; i < sizeof loop_names / sizeof *loop_names; i++) {
        if (!jinja_text_equal(name, (JText){.data = loop_names[i], .n = strlen(loop_names[i])})) continue;
        *ret_found = true;
        return loop_fact(run, loop, (LoopFact)i, ret);
    }
    *ret_found = false;
    return true;
}
