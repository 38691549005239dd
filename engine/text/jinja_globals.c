/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that every template has. */
#include "engine/text/jinja_methods.h"

#include <string.h>
#include <time.h>

static bool make_range(JinjaRun *run, int64_t start, int64_t stop, int64_t step, JValue *ret)
{
    if (step == 0) return jinja_fail(run, "range() arg 3 must not be zero");
    uint64_t span = step > 0 ? (stop > start ? (uint64_t)stop - (uint64_t)start : 0)
                             : (start > stop ? (uint64_t)start - (uint64_t)stop : 0);
    uint64_t pace = step > 0 ? (uint64_t)step : 0 - (uint64_t)step, n = span / pace + (span % pace != 0);
    if (n > JINJA_MAX_RANGE) return jinja_fail(run, "a range has more than %d items", JINJA_MAX_RANGE);
    if (!jinja_make_list(run, J_RANGE, n, ret)) return false;
    JList *list = ret->list;
    list->start = start;
    list->stop = stop;
    list->step = step;
    for (; list->n < n; list->n++)
        list->items[list->n] = jinja_int((int64_t)((uint64_t)start + list->n * (uint64_t)step));
    return jinja_spend(run, list->n / 8);
}

static bool call_range(JinjaRun *run, const JCall *call, JValue *ret)
{
    int64_t n[3] = {0, 0, 1};
    size_t given = 0;
    for (; given < 3 && !jinja_is_missing(&call->bound[given]); given++) {
        if (call->bound[given].type != J_INT && call->bound[given].type != J_BOOL)
            return jinja_fail(run, "'%s' object cannot be interpreted as an integer",
                              jinja_type_name(&call->bound[given]));
        n[given] = call->bound[given].type == J_INT ? call->bound[given].integer : call->bound[given].boolean;
    }
    return given == 1 ? make_range(run, 0, n[0], 1, ret) : make_range(run, n[0], n[1], n[2], ret);
}

static bool call_dict(JinjaRun *run, const JCall *call, JValue *ret)
{
    return jinja_make_dict(run, J_DICT, ret) && jinja_dict_merge(run, ret->dict, call);
}

static bool call_namespace(JinjaRun *run, const JCall *call, JValue *ret)
{
    return jinja_make_dict(run, J_NAMESPACE, ret) && jinja_dict_merge(run, ret->dict, call);
}

/* The message stands alone: it was written for the person who sent the request. */
static bool call_raise(JinjaRun *run, const JCall *call, JValue *ret)
{
    (void)ret;
    JText text;
    if (!jinja_str(run, &call->bound[0], &text)) return false;
    int n = text.n > sizeof run->error->text ? (int)sizeof run->error->text : (int)text.n;
    return error_set(run->error, ERR_TEMPLATE, "%.*s", n, text.data ? text.data : "");
}

static bool call_strftime(JinjaRun *run, const JCall *call, JValue *ret)
{
    if (call->bound[0].type != J_TEXT || call->bound[0].text->n > 256)
        return jinja_fail(run, "strftime_now needs a format of at most 256 bytes");
    JText format = *call->bound[0].text;
    char text[1024], copy[257 + 1];
    memcpy(copy, format.data, format.n);
    memcpy(copy + format.n, "x", 2); /* so that an empty result differs from one that does not fit */
    time_t now = (time_t)run->now_unix;
    struct tm tm;
    if (!gmtime_r(&now, &tm)) return jinja_fail(run, "the time is out of range");
    size_t n = strftime(text, sizeof text, copy, &tm);
    if (n == 0) return jinja_fail(run, "strftime_now gives more than %zu bytes", sizeof text);
    JBuild build = {0};
    uint8_t mark = format.marks && format.n ? format.marks[0] : JINJA_MARK_TEMPLATE;
    return jinja_build_bytes(run, &build, text, n - 1, mark) && jinja_make_text(run, jinja_build_done(&build), ret);
}

static bool call_cycler(JinjaRun *run, const JCall *call, JValue *ret)
{
    if (call->n_args == 0) return jinja_fail(run, "cycler needs at least one item");
    if (!jinja_make_list(run, J_CYCLER, call->n_args, ret)) return false;
    for (size_t i = 0; i < call->n_args; i++)
        if (!jinja_list_push(run, ret->list, call->args[i])) return false;
    return true;
}

/* sep */
static bool call_joiner(JinjaRun *run, const JCall *call, JValue *ret)
{
    JValue separator = call->bound[0];
    if (jinja_is_missing(&separator) && !jinja_make_text(run, JTEXT(", "), &separator)) return false;
    return jinja_make_list(run, J_JOINER, 1, ret) && jinja_list_push(run, ret->list, separator);
}

static const JCallRow functions[] = {
    {"cycler", call_cycler, NULL, 0},
    {"dict", call_dict, NULL, 0},
    {"joiner", call_joiner, "sep", 0},
    {"namespace", call_namespace, NULL, 0},
    {"raise_exception", call_raise, "message", 1},
    {"range", call_range, "start stop step", 1},
    {"strftime_now", call_strftime, "format", 1},
};

const JCallRow *jinja_function_find(JText name)
{
    return jinja_row_find(functions, sizeof functions / sizeof *functions, name);
}
