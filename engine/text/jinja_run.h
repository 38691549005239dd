/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of one rendering and what filters, tests, methods and functions share with the evaluator. Private to the
 * jinja_*.c files. One thread.
 */
#pragma once
#include "engine/text/jinja_ast.h"

enum {
    JINJA_MAX_DEPTH = 1200,      /* nested evaluations: statements, expressions and macros together */
    JINJA_MAX_VALUE_DEPTH = 400, /* lists in lists, while printing or comparing */
    JINJA_MAX_PARAMS = 6,
    JINJA_MAX_RANGE = 100000,
};

typedef struct JVariable {
    JText name;
    JValue value;
} JVariable;

/* Names of one block; macros keep a pointer to the scope they were defined in. */
typedef struct JScope {
    struct JScope *parent;
    JVariable *variables; /* [n] */
    size_t n, capacity;
} JScope;

struct JinjaRun {
    Arena arena;
    Error *error;
    uint64_t steps_left;
    size_t max_text_bytes; /* of any text under construction, the output included */
    int64_t now_unix;
    uint32_t depth, value_depth;
    uint32_t line; /* of the statement or call being evaluated */
    JScope *scope;
    JBuild *out;
    JValue hole;          /* what N_HOLE stands for */
    uint8_t *input_marks; /* [n_input_marks], all JINJA_MARK_INPUT: shared by the input's strings */
    size_t n_input_marks;
    bool copies_json; /* while reading JSON that does not outlive the run */
};

struct JMacro {
    const JNode *node; /* a macro, or the call block whose body is 'caller' */
    JScope *scope;
};

struct JLoop {
    JList items;
    size_t index; /* 0-based */
    uint32_t depth;
    JValue changed;         /* what loop.changed saw last; J_MISSING before */
    const JNode *recursive; /* the for statement when it is recursive, else NULL */
    JScope *scope;          /* where the statement stands */
};

typedef struct JKeyword {
    JText name;
    JValue value;
} JKeyword;

typedef struct JCall {
    JValue self; /* the piped value, the tested value, the object of a method */
    const JValue *args;
    size_t n_args;
    const JKeyword *keywords;
    size_t n_keywords;
    JValue bound[JINJA_MAX_PARAMS]; /* by the row's params; J_MISSING where not given */
} JCall;

typedef bool (*JCallFn)(JinjaRun *run, const JCall *call, JValue *ret);

/* One filter, test, method or function. */
struct JCallRow {
    const char *name;
    JCallFn fn;
    const char *params; /* names, space-separated; NULL: the function reads args and keywords itself */
    uint8_t required;   /* how many of them must be given */
};

struct JMethod {
    const JCallRow *row;
    JValue self;
};

/* NULL when there is none of that name. */
const JCallRow *jinja_filter_find(JText name);
const JCallRow *jinja_test_find(JText name);
const JCallRow *jinja_method_find(const JValue *object, JText name);
const JCallRow *jinja_row_find(const JCallRow *rows, size_t n, JText name);
const JCallRow *jinja_function_find(JText name);

/* Sorts a list of (key, value) tuples by key; stable, in reverse too. */
LW_CHECK bool jinja_sort_pairs(JinjaRun *run, JList *list, bool reverse);

/* Sets ERR_TEMPLATE with the current line; returns false. */
bool jinja_fail(JinjaRun *run, const char *fmt, ...) LW_PRINTF(2, 3);
/* "'x' is undefined" and its kin. */
bool jinja_fail_undefined(JinjaRun *run, const JValue *value);
/* Takes n steps from the budget. */
LW_CHECK bool jinja_spend(JinjaRun *run, size_t n);

LW_CHECK bool jinja_call_row(JinjaRun *run, const JCallRow *row, JCall *call, JValue *ret);
LW_CHECK bool jinja_call_value(JinjaRun *run, const JValue *callee, JCall *call, JValue *ret);
LW_CHECK bool jinja_call_macro(JinjaRun *run, const JMacro *macro, const JCall *call, JValue *ret);
LW_CHECK bool jinja_call_loop(JinjaRun *run, const JLoop *loop, const JCall *call, JValue *ret);

/* object.name (attribute first) and object[key] (item first). */
LW_CHECK bool jinja_attribute(JinjaRun *run, const JValue *object, JText name, JValue *ret);
LW_CHECK bool jinja_subscript(JinjaRun *run, const JValue *object, const JValue *key, JValue *ret);
LW_CHECK bool jinja_slice(JinjaRun *run, const JValue *object, const JValue bounds[3], JValue *ret);
LW_CHECK bool jinja_loop_attribute(JinjaRun *run, const JLoop *loop, JText name, JValue *ret, bool *ret_found);

LW_CHECK bool jinja_binary(JinjaRun *run, JOp op, const JValue *a, const JValue *b, JValue *ret);
LW_CHECK bool jinja_unary(JinjaRun *run, JOp op, const JValue *a, JValue *ret);
LW_CHECK bool jinja_compare_op(JinjaRun *run, JOp op, const JValue *a, const JValue *b, bool *ret);
LW_CHECK bool jinja_contains(JinjaRun *run, const JValue *container, const JValue *item, bool *ret);

/* Who sends a request may choose how many variables there are: looking through many of them takes steps. */
LW_CHECK bool jinja_scope_set(JinjaRun *run, JScope *scope, JText name, JValue value);
/* In the run's scope and those around it; *ret_value NULL: there is none. */
LW_CHECK bool jinja_scope_find(JinjaRun *run, JText name, const JValue **ret_value);
LW_CHECK bool jinja_eval(JinjaRun *run, const JNode *node, JValue *ret);
/* Runs statements; *ret_flow tells of break and continue. */
typedef enum JFlow { J_FLOW_ON, J_FLOW_BREAK, J_FLOW_CONTINUE } JFlow;
LW_CHECK bool jinja_exec(JinjaRun *run, const JNode *list, JFlow *ret_flow);
/* The same into a text of its own. */
LW_CHECK bool jinja_capture(JinjaRun *run, const JNode *list, JValue *ret);
/* depth: of this loop inside a recursive one, from 0. *ret_iterated: false when there was no item. */
LW_CHECK bool jinja_exec_for(JinjaRun *run, const JNode *node, const JValue *iterable, uint32_t depth,
                             bool *ret_iterated);
LW_CHECK bool jinja_assign(JinjaRun *run, const JNode *target, JValue value);
LW_CHECK bool jinja_call_args(JinjaRun *run, const JNode *args, JCall *call);

/* Python's printf-like formatting ('%s' % x) and str.format. */
LW_CHECK bool jinja_format_percent(JinjaRun *run, JText format, const JCall *call, JValue *ret);
LW_CHECK bool jinja_format_braces(JinjaRun *run, JText format, const JCall *call, JValue *ret);
