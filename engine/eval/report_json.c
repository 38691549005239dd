/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/report.h"

#include <math.h>
#include <stdio.h>

/* The first failure sticks. */
typedef struct Out {
    bool failed;
} Out;

static void put(Out *out, cJSON *object, const char *name, cJSON *value)
{
    if (object && value && cJSON_AddItemToObject(object, name, value)) return;
    cJSON_Delete(value);
    out->failed = true;
}

static void put_number(Out *out, cJSON *object, const char *name, double value)
{
    put(out, object, name, isfinite(value) ? cJSON_CreateNumber(value) : cJSON_CreateNull());
}

static void put_text(Out *out, cJSON *object, const char *name, const char *text)
{
    put(out, object, name, cJSON_CreateString(text));
}

/* "change": 0.1, "change_low": ..., "change_high": ... */
static void put_interval(Out *out, cJSON *object, const char *name, const Interval *interval)
{
    const double range[] = {interval->low, interval->high};
    cJSON *pair = cJSON_CreateDoubleArray(range, 2);
    char of_range[64];
    snprintf(of_range, sizeof of_range, "%s_95", name);
    put_number(out, object, name, interval->value);
    put(out, object, of_range, pair);
}

static void put_counts(Out *out, cJSON *object, const KvCounts *counts)
{
    put_number(out, object, "kv_bytes", (double)counts->kv_bytes);
    put_number(out, object, "select_bytes", (double)counts->select_bytes);
    put_number(out, object, "dense_bytes", (double)counts->dense_bytes);
    if (counts->dense_bytes)
        put_number(out, object, "kv_share",
                   (double)(counts->kv_bytes + counts->select_bytes) / (double)counts->dense_bytes);
}

static cJSON *add_object(Out *out, cJSON *list)
{
    cJSON *object = cJSON_CreateObject();
    if (object && cJSON_AddItemToArray(list, object)) return object;
    cJSON_Delete(object);
    out->failed = true;
    return NULL;
}

static void put_depths(Out *out, cJSON *object, const TaskSummary *task)
{
    cJSON *n = cJSON_CreateArray(), *right = cJSON_CreateArray();
    for (uint32_t d = 0; d < task->n_depths; d++) {
        cJSON *a = cJSON_CreateNumber(task->depth_n[d]), *b = cJSON_CreateNumber(task->depth_right[d]);
        out->failed |= !n || !right || !a || !b || !cJSON_AddItemToArray(n, a) || !cJSON_AddItemToArray(right, b);
    }
    put(out, object, "questions_by_depth", n);
    put(out, object, "right_by_depth", right);
}

static void put_task(Out *out, cJSON *list, const TaskSummary *task)
{
    cJSON *object = add_object(out, list);
    put_text(out, object, "policy", task->policy);
    put_text(out, object, "task", task->task);
    put_number(out, object, "length", task->length);
    put_number(out, object, "questions", task->n);
    put_number(out, object, "right", task->right);
    put_interval(out, object, "share", &task->share);
    if (task->has_dense) {
        put_interval(out, object, "change", &task->change);
        put_interval(out, object, "log_prob_change", &task->log_prob_change);
    }
    put_depths(out, object, task);
    put_counts(out, object, &task->counts);
    put_number(out, object, "seconds", task->seconds);
    put_number(out, object, "prefill_seconds", task->prefill_seconds);
}

static void put_policy(Out *out, cJSON *list, const PolicySummary *policy, const SummaryRules *rules)
{
    cJSON *object = add_object(out, list);
    put_text(out, object, "policy", policy->policy);
    put_number(out, object, "length", policy->length);
    put_number(out, object, "tasks", policy->n_tasks);
    put_number(out, object, "counted_tasks", policy->n_counted);
    put_number(out, object, "questions", policy->n_questions);
    put_interval(out, object, "mean_change", &policy->change);
    put_number(out, object, "worst_change", policy->worst_change);
    put(out, object, "passes", cJSON_CreateBool(summary_passes(policy, rules)));
    put_counts(out, object, &policy->counts);
}

static void put_rows(Out *out, cJSON *list, const RowsSummary *rows)
{
    cJSON *object = add_object(out, list);
    put_text(out, object, "policy", rows->policy);
    put_text(out, object, "kind", rows->kind);
    if (rows->position != SUMMARY_ALL) put_number(out, object, "position", rows->position);
    put_number(out, object, "rows", rows->n);
    put_interval(out, object, "kl", &rows->kl);
    put_interval(out, object, "top_1", &rows->top);
    put_interval(out, object, "nll_change", &rows->nll_change);
    put_number(out, object, "perplexity", rows->perplexity);
    put_number(out, object, "dense_perplexity", rows->dense_perplexity);
    put_counts(out, object, &rows->counts);
}

static void put_recall(Out *out, cJSON *list, const RecallSummary *recall)
{
    cJSON *object = add_object(out, list);
    put_text(out, object, "policy", recall->policy);
    put_number(out, object, "position", recall->position);
    put_number(out, object, "n", recall->n);
    put_number(out, object, "recall", recall->recall);
    put_number(out, object, "mass", recall->mass);
    put_number(out, object, "best_mass", recall->best_mass);
    put_number(out, object, "range_mass", recall->range_mass);
}

static void put_estimate(Out *out, cJSON *list, const EstimateSummary *estimate)
{
    cJSON *object = add_object(out, list);
    put_text(out, object, "policy", estimate->policy);
    put_number(out, object, "n", estimate->n);
    put_interval(out, object, "within_factor_2", &estimate->within);
    put_number(out, object, "estimated", estimate->estimated);
    put_number(out, object, "missing", estimate->missing);
}

bool report_json(const Report *report, cJSON **ret_object, Error *error)
{
    enum { N_LISTS = 5 };
    static const char *const names[] = {"tasks", "policies", "rows", "recall", "estimates"};
    const Summary *s = report->summary;
    cJSON *root = cJSON_CreateObject(), *lists[N_LISTS];
    Out out = {.failed = !root};
    for (int i = 0; i < N_LISTS; i++) {
        lists[i] = root ? cJSON_AddArrayToObject(root, names[i]) : NULL;
        out.failed |= !lists[i];
    }
    for (uint32_t i = 0; !out.failed && i < s->n_tasks; i++) put_task(&out, lists[0], &s->tasks[i]);
    for (uint32_t i = 0; !out.failed && i < s->n_policies; i++)
        put_policy(&out, lists[1], &s->policies[i], report->rules);
    for (uint32_t i = 0; !out.failed && i < s->n_rows; i++) put_rows(&out, lists[2], &s->rows[i]);
    for (uint32_t i = 0; !out.failed && i < s->n_recalls; i++) put_recall(&out, lists[3], &s->recalls[i]);
    for (uint32_t i = 0; !out.failed && i < s->n_estimates; i++) put_estimate(&out, lists[4], &s->estimates[i]);
    if (!out.failed) {
        *ret_object = root;
        return true;
    }
    cJSON_Delete(root);
    return error_set(error, ERR_NO_MEMORY, "no memory for the report");
}
