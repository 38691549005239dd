/* SPDX-License-Identifier: Apache-2.0 */
/* Statements. */
#include "engine/text/jinja_run.h"

typedef bool (*ExecFn)(JinjaRun *run, const JNode *node, JFlow *flow);

static bool exec_text(JinjaRun *run, const JNode *node, JFlow *flow)
{
    (void)flow;
    return jinja_build_text(run, run->out, node->text);
}

static bool exec_output(JinjaRun *run, const JNode *node, JFlow *flow)
{
    (void)flow;
    JValue value;
    return jinja_eval(run, node->a, &value) && jinja_build_str(run, run->out, &value);
}

static bool exec_if(JinjaRun *run, const JNode *node, JFlow *flow)
{
    for (const JNode *branch = node->list; branch; branch = branch->next) {
        JValue condition;
        if (!jinja_eval(run, branch->a, &condition)) return false;
        if (jinja_truth(&condition)) return jinja_exec(run, branch->body, flow);
    }
    return jinja_exec(run, node->orelse, flow);
}

static bool assign_tuple(JinjaRun *run, const JNode *target, const JValue *value)
{
    JList items;
    if (!jinja_items(run, value, &items)) return false;
    size_t n = 0;
    for (const JNode *t = target->list; t; t = t->next) n++;
    if (n != items.n)
        return jinja_fail(run, "%s values to unpack (expected %zu, got %zu)", items.n > n ? "too many" : "not enough",
                          n, items.n);
    n = 0;
    for (const JNode *t = target->list; t; t = t->next)
        if (!jinja_assign(run, t, items.items[n++])) return false;
    return true;
}

bool jinja_assign(JinjaRun *run, const JNode *target, JValue value)
{
    if (target->type == N_TUPLE) return assign_tuple(run, target, &value);
    if (target->type == N_NAME) return jinja_scope_set(run, run->scope, target->text, value);
    const JValue *space;
    if (!jinja_scope_find(run, target->text, &space)) return false;
    if (!space || space->type != J_NAMESPACE)
        return jinja_fail(run, "cannot assign an attribute of '%.*s', which is no namespace", (int)target->text.n,
                          target->text.data);
    return jinja_dict_set_text(run, space->dict, target->text2, value);
}

static bool exec_set(JinjaRun *run, const JNode *node, JFlow *flow)
{
    (void)flow;
    JValue value;
    return jinja_eval(run, node->a, &value) && jinja_assign(run, node->target, value);
}

static bool exec_inner_scope(JinjaRun *run, const JNode *list, JFlow *flow)
{
    JScope *outer = run->scope, *inner = jinja_alloc(run, 1, sizeof *inner);
    if (!inner) return false;
    inner->parent = outer;
    run->scope = inner;
    bool ok = jinja_exec(run, list, flow);
    run->scope = outer;
    return ok;
}

/* A body's output as a text; its variables stay inside it. */
static bool capture(JinjaRun *run, const JNode *list, JValue *ret, JFlow *flow)
{
    JBuild build = {0}, *outer = run->out;
    run->out = &build;
    bool ok = exec_inner_scope(run, list, flow);
    run->out = outer;
    return ok && jinja_make_text(run, jinja_build_done(&build), ret);
}

bool jinja_capture(JinjaRun *run, const JNode *list, JValue *ret)
{
    JFlow flow;
    return capture(run, list, ret, &flow);
}

/* Runs the body and sends what it wrote through the filters, whose innermost input is N_HOLE. */
static bool filter_body(JinjaRun *run, const JNode *node, JValue *ret, JFlow *flow)
{
    JValue text, outer = run->hole;
    if (!capture(run, node->body, &text, flow)) return false;
    run->hole = text;
    bool ok = jinja_eval(run, node->a, ret);
    run->hole = outer;
    return ok;
}

static bool exec_set_body(JinjaRun *run, const JNode *node, JFlow *flow)
{
    JValue value;
    if (!filter_body(run, node, &value, flow)) return false;
    return *flow != J_FLOW_ON || jinja_assign(run, node->target, value);
}

static bool exec_filtered(JinjaRun *run, const JNode *node, JFlow *flow)
{
    JValue value;
    if (!filter_body(run, node, &value, flow)) return false;
    return *flow != J_FLOW_ON || jinja_build_str(run, run->out, &value);
}

static bool exec_with(JinjaRun *run, const JNode *node, JFlow *flow)
{
    JScope *outer = run->scope, *inner = jinja_alloc(run, 1, sizeof *inner);
    if (!inner) return false;
    inner->parent = outer;
    for (const JNode *set = node->list; set; set = set->next) {
        JValue value; /* each sees the names outside only */
        if (!jinja_eval(run, set->a, &value)) return false;
        run->scope = inner;
        bool ok = jinja_assign(run, set->target, value);
        run->scope = outer;
        if (!ok) return false;
    }
    run->scope = inner;
    bool ok = jinja_exec(run, node->body, flow);
    run->scope = outer;
    return ok;
}

static bool exec_macro(JinjaRun *run, const JNode *node, JFlow *flow)
{
    (void)flow;
    JMacro *macro = jinja_alloc(run, 1, sizeof *macro);
    if (!macro) return false;
    *macro = (JMacro){.node = node, .scope = run->scope};
    return jinja_scope_set(run, run->scope, node->text, (JValue){.type = J_MACRO, .macro = macro});
}

/* The call's own arguments, and the body as the keyword 'caller'. */
static bool exec_call_body(JinjaRun *run, const JNode *node, JFlow *flow)
{
    (void)flow;
    JMacro *macro = jinja_alloc(run, 1, sizeof *macro);
    if (!macro) return false;
    *macro = (JMacro){.node = node, .scope = run->scope};
    JValue callee, value;
    JCall call = {0};
    if (!jinja_eval(run, node->a->a, &callee) || !jinja_call_args(run, node->a->list, &call)) return false;
    JKeyword *keywords = jinja_alloc(run, call.n_keywords + 1, sizeof *keywords);
    if (!keywords) return false;
    for (size_t i = 0; i < call.n_keywords; i++) keywords[i] = call.keywords[i];
    keywords[call.n_keywords++] = (JKeyword){.name = node->text, .value = {.type = J_MACRO, .macro = macro}};
    call.keywords = keywords;
    return jinja_call_value(run, &callee, &call, &value) && jinja_build_str(run, run->out, &value);
}

static bool exec_scoped(JinjaRun *run, const JNode *node, JFlow *flow)
{
    return exec_inner_scope(run, node->body, flow);
}

/* ---- for ---- */

/* The items for which the loop's own 'if' holds. */
static bool filter_items(JinjaRun *run, const JNode *node, JList *items)
{
    JScope *outer = run->scope, *inner = jinja_alloc(run, 1, sizeof *inner);
    JList kept = {0};
    if (!inner) return false;
    inner->parent = outer;
    for (size_t i = 0; i < items->n; i++) {
        JValue condition;
        run->scope = inner;
        bool ok = jinja_assign(run, node->target, items->items[i]) && jinja_eval(run, node->b, &condition);
        run->scope = outer;
        if (!ok) return false;
        if (jinja_truth(&condition) && !jinja_list_push(run, &kept, items->items[i])) return false;
    }
    *items = kept;
    return true;
}

static bool run_iterations(JinjaRun *run, const JNode *node, JLoop *loop)
{
    JScope *outer = run->scope, *inner = jinja_alloc(run, 1, sizeof *inner);
    if (!inner) return false;
    inner->parent = outer;
    JValue loop_value = {.type = J_LOOP, .loop = loop};
    JFlow flow = J_FLOW_ON;
    run->scope = inner;
    bool ok = true;
    for (; ok && flow != J_FLOW_BREAK && loop->index < loop->items.n; loop->index++) {
        inner->n = 0;
        ok = jinja_scope_set(run, inner, JTEXT("loop"), loop_value) &&
             jinja_assign(run, node->target, loop->items.items[loop->index]) && jinja_exec(run, node->body, &flow);
    }
    run->scope = outer;
    return ok;
}

bool jinja_exec_for(JinjaRun *run, const JNode *node, const JValue *iterable, uint32_t depth, bool *ret_iterated)
{
    JLoop *loop = jinja_alloc(run, 1, sizeof *loop);
    if (!loop || !jinja_items(run, iterable, &loop->items)) return false;
    if (node->b && !filter_items(run, node, &loop->items)) return false;
    loop->depth = depth;
    loop->recursive = node->flag ? node : NULL;
    loop->scope = run->scope;
    *ret_iterated = loop->items.n > 0;
    return run_iterations(run, node, loop);
}

static bool exec_for(JinjaRun *run, const JNode *node, JFlow *flow)
{
    JValue iterable;
    if (!jinja_eval(run, node->a, &iterable)) return false;
    bool iterated;
    if (!jinja_exec_for(run, node, &iterable, 0, &iterated)) return false;
    return iterated || exec_inner_scope(run, node->orelse, flow);
}

static bool exec_break(JinjaRun *run, const JNode *node, JFlow *flow)
{
    (void)run;
    *flow = node->type == N_BREAK ? J_FLOW_BREAK : J_FLOW_CONTINUE;
    return true;
}

static const ExecFn exec_fns[] = {
    [N_TEXT] = exec_text,      [N_OUTPUT] = exec_output,       [N_IF] = exec_if,         [N_FOR] = exec_for,
    [N_SET] = exec_set,        [N_SET_BODY] = exec_set_body,   [N_WITH] = exec_with,     [N_FILTERED] = exec_filtered,
    [N_MACRO] = exec_macro,    [N_CALL_BODY] = exec_call_body, [N_SCOPED] = exec_scoped, [N_BREAK] = exec_break,
    [N_CONTINUE] = exec_break,
};

bool jinja_exec(JinjaRun *run, const JNode *list, JFlow *ret_flow)
{
    *ret_flow = J_FLOW_ON;
    if (!list) return true;
    if (++run->depth > JINJA_MAX_DEPTH) return jinja_fail(run, "the template recurses too deeply");
    for (; list && *ret_flow == J_FLOW_ON; list = list->next) {
        run->line = list->line;
        if (!jinja_spend(run, 1) || !exec_fns[list->type](run, list, ret_flow)) return false;
    }
    run->depth--;
    return true;
}
