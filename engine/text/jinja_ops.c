/* SPDX-License-Identifier: Apache-2.0 */
/* Operators, with Python's meaning for each pair of types. Integers have 64 bits: a result beyond them is an error. */
#include "engine/text/jinja_run.h"
#include "engine/text/jinja_utf8.h"

#include <math.h>
#include <string.h>

static const char *const op_names[] = {
    [OP_ADD] = "+",  [OP_SUB] = "-",   [OP_MUL] = "*", [OP_DIV] = "/",         [OP_FLOORDIV] = "//", [OP_MOD] = "%",
    [OP_POW] = "**", [OP_NOT] = "not", [OP_EQ] = "==", [OP_NE] = "!=",         [OP_LT] = "<",        [OP_LE] = "<=",
    [OP_GT] = ">",   [OP_GE] = ">=",   [OP_IN] = "in", [OP_NOT_IN] = "not in",
};

static int64_t integer_of(const JValue *value)
{
    return value->type == J_INT ? value->integer : value->boolean;
}

static double real_of(const JValue *value)
{
    return value->type == J_FLOAT ? value->real : (double)integer_of(value);
}

static bool too_large(JinjaRun *run)
{
    return jinja_fail(run, "an integer does not fit 64 bits");
}

/* Square and multiply; exponent >= 0. */
static bool power(JinjaRun *run, int64_t base, int64_t exponent, int64_t *ret)
{
    int64_t result = 1;
    while (exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) return too_large(run);
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base)) return too_large(run);
    }
    *ret = result;
    return true;
}

/* Rounds down, as Python does; b is not 0. */
static bool floor_divide(JinjaRun *run, int64_t a, int64_t b, int64_t *quotient, int64_t *rest)
{
    if (a == INT64_MIN && b == -1) return too_large(run);
    *quotient = a / b;
    *rest = a % b;
    if (*rest != 0 && (*rest < 0) != (b < 0)) {
        *quotient -= 1;
        *rest += b;
    }
    return true;
}

static bool integer_op(JinjaRun *run, JOp op, int64_t a, int64_t b, JValue *ret)
{
    int64_t r = 0, rest = 0;
    bool fits = true;
    switch (op) {
    case OP_ADD:
        fits = !__builtin_add_overflow(a, b, &r);
        break;
    case OP_SUB:
        fits = !__builtin_sub_overflow(a, b, &r);
        break;
    case OP_MUL:
        fits = !__builtin_mul_overflow(a, b, &r);
        break;
    case OP_POW:
        if (!power(run, a, b, &r)) return false;
        break;
    default:
        if (!floor_divide(run, a, b, &r, &rest)) return false;
        if (op == OP_MOD) r = rest;
    }
    if (!fits) return too_large(run);
    *ret = jinja_int(r);
    return true;
}

static double real_op(JOp op, double a, double b)
{
    double r;
    switch (op) {
    case OP_ADD:
        return a + b;
    case OP_SUB:
        return a - b;
    case OP_MUL:
        return a * b;
    case OP_DIV:
        return a / b;
    case OP_FLOORDIV:
        return floor(a / b);
    case OP_POW:
        return pow(a, b);
    default:
        r = fmod(a, b);
        return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    }
}

static bool number_op(JinjaRun *run, JOp op, const JValue *a, const JValue *b, JValue *ret)
{
    bool divides = op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD;
    if (divides && real_of(b) == 0) return jinja_fail(run, "division by zero");
    bool real = a->type == J_FLOAT || b->type == J_FLOAT || op == OP_DIV || (op == OP_POW && integer_of(b) < 0);
    if (!real) return integer_op(run, op, integer_of(a), integer_of(b), ret);
    double r = real_op(op, real_of(a), real_of(b));
    if (op == OP_POW && !isfinite(r)) return jinja_fail(run, "the result of ** is out of range");
    *ret = jinja_float(r);
    return true;
}

static bool repeat_text(JinjaRun *run, JText text, int64_t times, JValue *ret)
{
    JBuild build = {0};
    if (text.n == 0) times = 0;
    for (int64_t i = 0; i < times; i++)
        if (!jinja_spend(run, 1) || !jinja_build_text(run, &build, text)) return false;
    return jinja_make_text(run, jinja_build_done(&build), ret);
}

static bool append_items(JinjaRun *run, JList *to, const JList *from)
{
    for (size_t i = 0; i < from->n; i++)
        if (!jinja_list_push(run, to, from->items[i])) return false;
    return jinja_spend(run, from->n / 4 + 1);
}

static bool repeat_list(JinjaRun *run, const JValue *list, int64_t times, JValue *ret)
{
    JValue result; /* ret may be an operand */
    if (!jinja_make_list(run, list->type, 0, &result)) return false;
    if (list->list->n == 0) times = 0;
    for (int64_t i = 0; i < times; i++)
        if (!append_items(run, result.list, list->list)) return false;
    *ret = result;
    return true;
}

static bool repeat(JinjaRun *run, const JValue *a, const JValue *b, JValue *ret, bool *ret_done)
{
    const JValue *count = a->type == J_INT || a->type == J_BOOL ? a : b, *what = count == a ? b : a;
    *ret_done = count->type == J_INT || count->type == J_BOOL;
    if (*ret_done && what->type == J_TEXT) return repeat_text(run, *what->text, integer_of(count), ret);
    if (*ret_done && (what->type == J_LIST || what->type == J_TUPLE))
        return repeat_list(run, what, integer_of(count), ret);
    *ret_done = false;
    return true;
}

static bool escape(JinjaRun *run, JText *text)
{
    JBuild build = {0};
    if (text->safe) return true;
    if (!jinja_build_escaped(run, &build, *text)) return false;
    *text = jinja_build_done(&build);
    return true;
}

static bool add_texts(JinjaRun *run, JText a, JText b, JValue *ret)
{
    bool safe = a.safe || b.safe;
    if (safe && (!escape(run, &a) || !escape(run, &b))) return false;
    JText sum;
    if (!jinja_concat(run, a, b, &sum)) return false;
    sum.safe = safe;
    return jinja_make_text(run, sum, ret);
}

static bool add(JinjaRun *run, const JValue *a, const JValue *b, JValue *ret, bool *ret_done)
{
    *ret_done = a->type == b->type && (a->type == J_TEXT || a->type == J_LIST || a->type == J_TUPLE);
    if (!*ret_done) return true;
    if (a->type == J_TEXT) return add_texts(run, *a->text, *b->text, ret);
    JValue result;
    if (!jinja_make_list(run, a->type, a->list->n + b->list->n, &result) || !append_items(run, result.list, a->list) ||
        !append_items(run, result.list, b->list))
        return false;
    *ret = result;
    return true;
}

/* '%s and %s' % (a, b) */
static bool percent(JinjaRun *run, const JValue *format, const JValue *values, JValue *ret)
{
    JCall call = {.args = values, .n_args = 1};
    if (values->type == J_TUPLE) {
        call.args = values->list->items;
        call.n_args = values->list->n;
    }
    return jinja_format_percent(run, *format->text, &call, ret);
}

bool jinja_binary(JinjaRun *run, JOp op, const JValue *a, const JValue *b, JValue *ret)
{
    if (a->type == J_UNDEFINED) return jinja_fail_undefined(run, a);
    if (op == OP_MOD && a->type == J_TEXT) return percent(run, a, b, ret);
    if (b->type == J_UNDEFINED) return jinja_fail_undefined(run, b);
    if (jinja_is_number(a) && jinja_is_number(b)) return number_op(run, op, a, b, ret);
    bool done = false;
    if (op == OP_ADD && !add(run, a, b, ret, &done)) return false;
    if (op == OP_MUL && !repeat(run, a, b, ret, &done)) return false;
    if (done) return true;
    if (op == OP_ADD && a->type == J_TEXT)
        return jinja_fail(run, "can only concatenate str (not \"%s\") to str", jinja_type_name(b));
    return jinja_fail(run, "unsupported operand type(s) for %s: '%s' and '%s'", op_names[op], jinja_type_name(a),
                      jinja_type_name(b));
}

bool jinja_unary(JinjaRun *run, JOp op, const JValue *a, JValue *ret)
{
    if (op == OP_NOT) {
        *ret = jinja_bool(!jinja_truth(a));
        return true;
    }
    if (a->type == J_UNDEFINED) return jinja_fail_undefined(run, a);
    if (!jinja_is_number(a))
        return jinja_fail(run, "bad operand type for unary %s: '%s'", op_names[op], jinja_type_name(a));
    if (a->type == J_FLOAT) {
        *ret = jinja_float(op == OP_SUB ? -a->real : a->real);
        return true;
    }
    if (op == OP_ADD) {
        *ret = jinja_int(integer_of(a));
        return true;
    }
    return integer_op(run, OP_SUB, 0, integer_of(a), ret);
}

bool jinja_contains(JinjaRun *run, const JValue *container, const JValue *item, bool *ret)
{
    if (container->type == J_TEXT) {
        if (item->type != J_TEXT)
            return jinja_fail(run, "'in <string>' requires string as left operand, not %s", jinja_type_name(item));
        *ret = jinja_text_find(*container->text, *item->text, 0) != SIZE_MAX;
        return jinja_spend(run, container->text->n / 64);
    }
    if (container->type == J_DICT) {
        JEntry *entry;
        if (!jinja_dict_find(run, container->dict, item, &entry)) return false;
        *ret = entry != NULL;
        return true;
    }
    JList items;
    if (!jinja_has_items(container) && container->type != J_UNDEFINED)
        return jinja_fail(run, "argument of type '%s' is not iterable", jinja_type_name(container));
    if (!jinja_items(run, container, &items)) return false;
    *ret = false;
    for (size_t i = 0; !*ret && i < items.n; i++)
        if (!jinja_equal(run, &items.items[i], item, ret)) return false;
    return true;
}

/* NaN is in no order with anything. */
static bool has_nan(const JValue *a, const JValue *b)
{
    return (a->type == J_FLOAT && isnan(a->real)) || (b->type == J_FLOAT && isnan(b->real));
}

bool jinja_compare_op(JinjaRun *run, JOp op, const JValue *a, const JValue *b, bool *ret)
{
    int order;
    switch (op) {
    case OP_EQ:
        return jinja_equal(run, a, b, ret);
    case OP_NE:
        if (!jinja_equal(run, a, b, ret)) return false;
        *ret = !*ret;
        return true;
    case OP_IN:
        return jinja_contains(run, b, a, ret);
    case OP_NOT_IN:
        if (!jinja_contains(run, b, a, ret)) return false;
        *ret = !*ret;
        return true;
    default:
        if (!jinja_compare(run, a, b, &order)) return false;
        *ret = !has_nan(a, b) && (op == OP_LT   ? order < 0
                                  : op == OP_LE ? order <= 0
                                  : op == OP_GT ? order > 0
                                                : order >= 0);
        return true;
    }
}
