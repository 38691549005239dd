/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/jinja_run.h"
#include "engine/text/jinja.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool jinja_fail(JinjaRun *run, const char *fmt, ...)
{
    char what[sizeof run->error->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (!run->line) return error_set(run->error, ERR_TEMPLATE, "%s", what);
    return error_set(run->error, ERR_TEMPLATE, "line %u: %s", run->line, what);
}

bool jinja_fail_undefined(JinjaRun *run, const JValue *value)
{
    const JUndefined *undefined = value->undefined;
    int n = (int)(undefined->name.n < 100 ? undefined->name.n : 100);
    if (!undefined->owner) return jinja_fail(run, "'%.*s' is undefined", n, undefined->name.data);
    return jinja_fail(run, "'%s object' has no attribute '%.*s'", undefined->owner, n, undefined->name.data);
}

bool jinja_spend(JinjaRun *run, size_t n)
{
    if (run->steps_left >= n) {
        run->steps_left -= n;
        return true;
    }
    run->steps_left = 0;
    return jinja_fail(run, "the template takes too many steps");
}

enum { VARIABLES_PER_STEP = 16 };

bool jinja_scope_set(JinjaRun *run, JScope *scope, JText name, JValue value)
{
    if (!jinja_spend(run, scope->n / VARIABLES_PER_STEP)) return false;
    for (size_t i = 0; i < scope->n; i++) {
        if (!jinja_text_equal(scope->variables[i].name, name)) continue;
        scope->variables[i].value = value;
        return true;
    }
    JVariable *variables = jinja_room(run, scope->variables, scope->n, sizeof *variables, &scope->capacity);
    if (!variables) return false;
    scope->variables = variables;
    scope->variables[scope->n++] = (JVariable){.name = name, .value = value};
    return true;
}

bool jinja_scope_find(JinjaRun *run, JText name, const JValue **ret_value)
{
    size_t n_seen = 0;
    *ret_value = NULL;
    for (const JScope *scope = run->scope; scope && !*ret_value; scope = scope->parent) {
        for (size_t i = 0; i < scope->n && !*ret_value; i++)
            if (jinja_text_equal(scope->variables[i].name, name)) *ret_value = &scope->variables[i].value;
        n_seen += scope->n;
    }
    return jinja_spend(run, n_seen / VARIABLES_PER_STEP);
}

bool jinja_run_new(const JinjaLimits *limits, int64_t now_unix, JinjaRun **ret_run, Error *error)
{
    JinjaRun *run = calloc(1, sizeof *run);
    if (!run) return error_set(error, ERR_NO_MEMORY, "no memory to render a template");
    arena_init(&run->arena, 64 << 10, limits->max_memory_bytes);
    run->error = error;
    run->steps_left = limits->max_steps;
    run->max_text_bytes = limits->max_text_bytes;
    run->now_unix = now_unix;
    run->scope = jinja_alloc(run, 1, sizeof *run->scope);
    if (!run->scope) {
        jinja_run_free(run);
        return false;
    }
    *ret_run = run;
    return true;
}

void jinja_run_free(JinjaRun *run)
{
    if (!run) return;
    arena_done(&run->arena);
    free(run);
}

bool jinja_run_set(JinjaRun *run, const char *name, JValue value)
{
    return jinja_scope_set(run, run->scope, (JText){.data = name, .n = strlen(name)}, value);
}

bool jinja_render(JinjaRun *run, const JinjaProgram *program, JText *ret_text)
{
    JBuild out = {0};
    JFlow flow;
    JScope top = {.parent = run->scope}; /* what the template sets stays apart from the inputs */
    run->out = &out;
    run->scope = &top;
    bool ok = jinja_exec(run, program->body, &flow);
    run->out = NULL;
    run->scope = top.parent;
    if (ok) *ret_text = jinja_build_done(&out);
    return ok;
}
