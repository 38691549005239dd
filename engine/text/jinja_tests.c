/* SPDX-License-Identifier: Apache-2.0 */
/* What stands after 'is', and what select and its kin name. */
#include "engine/text/jinja_run.h"
#include "engine/text/jinja_utf8.h"

#include <utf8proc.h>

/* Tests that look at the type alone are a set of types each. */
enum {
    NUMBERS = 1u << J_INT | 1u << J_FLOAT | 1u << J_BOOL,
    SEQUENCES = 1u << J_TEXT | 1u << J_LIST | 1u << J_TUPLE | 1u << J_RANGE | 1u << J_DICT | 1u << J_UNDEFINED,
    ITERABLES = SEQUENCES | 1u << J_VIEW | 1u << J_ITER | 1u << J_LOOP,
    CALLABLES = 1u << J_MACRO | 1u << J_FUNCTION | 1u << J_METHOD | 1u << J_LOOP | 1u << J_JOINER | 1u << J_UNDEFINED,
};

static bool has_type(const JCall *call, unsigned types, JValue *ret)
{
    *ret = jinja_bool((types >> call->self.type) & 1);
    return true;
}

static bool test_defined(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    return has_type(call, ~(1u << J_UNDEFINED), ret);
}

static bool test_undefined(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    return has_type(call, 1u << J_UNDEFINED, ret);
}

static bool test_none(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    return has_type(call, 1u << J_NONE, ret);
}

static bool test_boolean(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    return has_type(call, 1u << J_BOOL, ret);
}

static bool test_string(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    return has_type(call, 1u << J_TEXT, ret);
}

static bool test_number(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    return has_type(call, NUMBERS, ret);
}

static bool test_integer(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    return has_type(call, 1u << J_INT, ret);
}

static bool test_float(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    return has_type(call, 1u << J_FLOAT, ret);
}

static bool test_mapping(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    return has_type(call, 1u << J_DICT, ret);
}

static bool test_sequence(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    return has_type(call, SEQUENCES, ret);
}

static bool test_iterable(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    return has_type(call, ITERABLES, ret);
}

static bool test_callable(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    return has_type(call, CALLABLES, ret);
}

static bool test_true(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    *ret = jinja_bool(call->self.type == J_BOOL && call->self.boolean);
    return true;
}

static bool test_false(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    *ret = jinja_bool(call->self.type == J_BOOL && !call->self.boolean);
    return true;
}

static bool compare(JinjaRun *run, const JCall *call, JOp op, JValue *ret)
{
    bool holds;
    if (!jinja_compare_op(run, op, &call->self, &call->bound[0], &holds)) return false;
    *ret = jinja_bool(holds);
    return true;
}

static bool test_eq(JinjaRun *run, const JCall *call, JValue *ret)
{
    return compare(run, call, OP_EQ, ret);
}

static bool test_ne(JinjaRun *run, const JCall *call, JValue *ret)
{
    return compare(run, call, OP_NE, ret);
}

static bool test_lt(JinjaRun *run, const JCall *call, JValue *ret)
{
    return compare(run, call, OP_LT, ret);
}

static bool test_le(JinjaRun *run, const JCall *call, JValue *ret)
{
    return compare(run, call, OP_LE, ret);
}

static bool test_gt(JinjaRun *run, const JCall *call, JValue *ret)
{
    return compare(run, call, OP_GT, ret);
}

static bool test_ge(JinjaRun *run, const JCall *call, JValue *ret)
{
    return compare(run, call, OP_GE, ret);
}

static bool test_in(JinjaRun *run, const JCall *call, JValue *ret)
{
    return compare(run, call, OP_IN, ret);
}

/* Identity: the same object, or equal values of the few types of which there is one object each. */
static bool test_sameas(JinjaRun *run, const JCall *call, JValue *ret)
{
    const JValue *a = &call->self, *b = &call->bound[0];
    bool same = a->type == b->type;
    if (same && a->type >= J_TEXT)
        same = a->list == b->list;
    else if (same && !jinja_equal(run, a, b, &same))
        return false;
    *ret = jinja_bool(same);
    return true;
}

static bool remainder_is(JinjaRun *run, const JCall *call, JValue divisor, int64_t wanted, JValue *ret)
{
    JValue rest, want = jinja_int(wanted);
    bool same;
    if (!jinja_binary(run, OP_MOD, &call->self, &divisor, &rest) || !jinja_equal(run, &rest, &want, &same))
        return false;
    *ret = jinja_bool(same);
    return true;
}

static bool test_odd(JinjaRun *run, const JCall *call, JValue *ret)
{
    return remainder_is(run, call, jinja_int(2), 1, ret);
}

static bool test_even(JinjaRun *run, const JCall *call, JValue *ret)
{
    return remainder_is(run, call, jinja_int(2), 0, ret);
}

static bool test_divisibleby(JinjaRun *run, const JCall *call, JValue *ret)
{
    return remainder_is(run, call, call->bound[0], 0, ret);
}

/* At least one letter with case, and all of those of the wanted one. */
static bool has_case(JinjaRun *run, const JCall *call, utf8proc_category_t wanted, JValue *ret)
{
    JText text;
    if (!jinja_str(run, &call->self, &text) || !jinja_spend(run, text.n / 16)) return false;
    bool any = false, all = true;
    for (size_t at = 0; at < text.n; at += jinja_char_bytes(text, at)) {
        utf8proc_category_t category = utf8proc_category(jinja_char_at(text, at));
        bool cased =
            category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
        any |= cased;
        all &= !cased || category == wanted;
    }
    *ret = jinja_bool(any && all);
    return true;
}

static bool test_upper(JinjaRun *run, const JCall *call, JValue *ret)
{
    return has_case(run, call, UTF8PROC_CATEGORY_LU, ret);
}

static bool test_lower(JinjaRun *run, const JCall *call, JValue *ret)
{
    return has_case(run, call, UTF8PROC_CATEGORY_LL, ret);
}

static bool test_filter(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    *ret = jinja_bool(call->self.type == J_TEXT && jinja_filter_find(*call->self.text));
    return true;
}

static bool test_test(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)run;
    *ret = jinja_bool(call->self.type == J_TEXT && jinja_test_find(*call->self.text));
    return true;
}

static const JCallRow tests[] = {
    {"boolean", test_boolean, "", 0},
    {"callable", test_callable, "", 0},
    {"defined", test_defined, "", 0},
    {"divisibleby", test_divisibleby, "num", 1},
    {"eq", test_eq, "other", 1},
    {"equalto", test_eq, "other", 1},
    {"even", test_even, "", 0},
    {"false", test_false, "", 0},
    {"filter", test_filter, "", 0},
    {"float", test_float, "", 0},
    {"ge", test_ge, "other", 1},
    {"greaterthan", test_gt, "other", 1},
    {"gt", test_gt, "other", 1},
    {"in", test_in, "seq", 1},
    {"integer", test_integer, "", 0},
    {"iterable", test_iterable, "", 0},
    {"le", test_le, "other", 1},
    {"lessthan", test_lt, "other", 1},
    {"lower", test_lower, "", 0},
    {"lt", test_lt, "other", 1},
    {"mapping", test_mapping, "", 0},
    {"ne", test_ne, "other", 1},
    {"none", test_none, "", 0},
    {"number", test_number, "", 0},
    {"odd", test_odd, "", 0},
    {"sameas", test_sameas, "other", 1},
    {"sequence", test_sequence, "", 0},
    {"string", test_string, "", 0},
    {"test", test_test, "", 0},
    {"true", test_true, "", 0},
    {"undefined", test_undefined, "", 0},
    {"upper", test_upper, "", 0},
    {"==", test_eq, "other", 1},
    {"!=", test_ne, "other", 1},
    {"<", test_lt, "other", 1},
    {"<=", test_le, "other", 1},
    {">", test_gt, "other", 1},
    {">=", test_ge, "other", 1},
};

const JCallRow *jinja_test_find(JText name)
{
    return jinja_row_find(tests, sizeof tests / sizeof *tests, name);
}
