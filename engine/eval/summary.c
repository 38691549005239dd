/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_RESAMPLES = 1000 };

static bool no_memory(Error *error)
{
    return error_set(error, ERR_NO_MEMORY, "no memory for the summary");
}

static const cJSON *list_of(const Results *results, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(results->root, name);
}

static void add_counts(KvCounts *to, const cJSON *item)
{
    const KvCounts more = {.kv_bytes = (uint64_t)fabs(results_number(item, "kv_bytes")),
                           .select_bytes = (uint64_t)fabs(results_number(item, "select_bytes")),
                           .dense_bytes = (uint64_t)fabs(results_number(item, "dense_bytes"))};
    kv_counts_add(to, &more);
}

/* Numbers of questions or rows that go together: of one haystack, behind one place. */
typedef struct Grouped {
    double *values; /* [n] */
    uint32_t *ends; /* [n_groups] */
    uint32_t n, n_groups;
} Grouped;

static void end_group(Grouped *grouped)
{
    bool is_empty = grouped->n == (grouped->n_groups ? grouped->ends[grouped->n_groups - 1] : 0);
    if (!is_empty) grouped->ends[grouped->n_groups++] = grouped->n;
}

static Interval widen(const Grouped *grouped, Interval interval, double least, double most)
{
    double effect = stats_design_effect(grouped->values, grouped->n, grouped->ends, grouped->n_groups);
    return stats_widen(interval, effect, least, most);
}

/* Three lists of numbers, in one piece of memory that a summary uses again and again. */
enum { N_LISTS = 3 };
typedef struct Scratch {
    double *values;
    uint32_t *ends;
    size_t n, n_groups; /* room of each list */
} Scratch;

static bool scratch_init(Scratch *scratch, size_t n, size_t n_groups)
{
    *scratch = (Scratch){malloc((N_LISTS * n + 1) * sizeof(double)),
                         malloc((N_LISTS * n_groups + 1) * sizeof(uint32_t)), n, n_groups};
    return scratch->values && scratch->ends;
}

static void scratch_done(Scratch *scratch)
{
    free(scratch->values);
    free(scratch->ends);
}

static Grouped scratch_list(const Scratch *scratch, size_t i)
{
    return (Grouped){.values = scratch->values + i * scratch->n, .ends = scratch->ends + i * scratch->n_groups};
}

/* Sums on the way to a TaskSummary. */
typedef struct Pairs {
    uint32_t only_dense, only_own;
    Grouped right;   /* 0, 1 */
    Grouped gains;   /* 1: only the policy is right, -1: only dense is */
    Grouped changes; /* of log-probabilities */
} Pairs;

static void add_pairs(const cJSON *own, const cJSON *dense, TaskSummary *task, Pairs *pairs)
{
    const char *a = results_text(dense, "right"), *b = results_text(own, "right");
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(dense, "log_probs")->child;
    const cJSON *y = cJSON_GetObjectItemCaseSensitive(own, "log_probs")->child;
    for (size_t i = 0; a[i] && b[i]; i++, x = x->next, y = y->next) {
        pairs->only_dense += a[i] == '1' && b[i] == '0';
        pairs->only_own += a[i] == '0' && b[i] == '1';
        task->dense_right += a[i] == '1';
        pairs->gains.values[pairs->gains.n++] = b[i] - a[i];
        pairs->changes.values[pairs->changes.n++] = y->valuedouble - x->valuedouble;
    }
    end_group(&pairs->gains);
    end_group(&pairs->changes);
}

static void add_depths(const cJSON *item, TaskSummary *task, Grouped *all)
{
    const char *right = results_text(item, "right");
    const cJSON *needle = cJSON_GetObjectItemCaseSensitive(item, "needles")->child;
    for (size_t i = 0; right[i]; i++, needle = needle->next) {
        double depth = needle->valuedouble * task->n_depths / task->length;
        uint32_t d = depth < task->n_depths ? (uint32_t)depth : task->n_depths - 1;
        task->depth_n[d]++;
        task->depth_right[d] += right[i] == '1';
        task->n++;
        task->right += right[i] == '1';
        all->values[all->n++] = right[i] - '0';
    }
    end_group(all);
}

static bool is_of(const cJSON *item, const TaskSummary *task)
{
    return results_number(item, "length") == task->length && !strcmp(results_text(item, "policy"), task->policy) &&
           !strcmp(results_text(item, "task"), task->task);
}

static uint32_t count_questions(const Results *results)
{
    size_t n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list_of(results, "answers")) n += strlen(results_text(item, "right"));
    return (uint32_t)n;
}

static void fill_task(const Results *results, const char *dense, const Scratch *scratch, TaskSummary *task)
{
    const cJSON *item;
    Pairs pairs = {
        .right = scratch_list(scratch, 0), .gains = scratch_list(scratch, 1), .changes = scratch_list(scratch, 2)};
    uint32_t n_haystacks = 0;
    cJSON_ArrayForEach(item, list_of(results, "answers"))
    {
        if (!is_of(item, task)) continue;
        const AnswersKey key = {dense, task->task, task->length, (uint32_t)results_number(item, "haystack")};
        const cJSON *pair = results_answers(results, &key);
        add_depths(item, task, &pairs.right);
        add_counts(&task->counts, item);
        task->seconds += results_number(item, "seconds");
        task->prefill_seconds += results_number(item, "prefill_seconds");
        n_haystacks++;
        if (pair) add_pairs(item, pair, task, &pairs);
    }
    task->seconds /= n_haystacks;
    task->prefill_seconds /= n_haystacks;
    uint32_t n = pairs.gains.n;
    task->share = widen(&pairs.right, stats_share(task->right, task->n), 0, 1);
    task->has_dense = n > 0;
    task->change = widen(&pairs.gains, stats_paired_share(pairs.only_dense, pairs.only_own, n), -1, 1);
    task->log_prob_change = widen(&pairs.changes, stats_mean(pairs.changes.values, n), -INFINITY, INFINITY);
}

const TaskSummary *summary_task(const Summary *summary, const char *policy, const char *task, uint32_t length)
{
    for (uint32_t i = 0; i < summary->n_tasks; i++) {
        const TaskSummary *one = &summary->tasks[i];
        if (one->length == length && !strcmp(one->policy, policy) && !strcmp(one->task, task)) return one;
    }
    return NULL;
}

static bool make_tasks(const Results *results, const char *dense, const SummaryRules *rules, Arena *arena,
                       Summary *summary, Error *error)
{
    const cJSON *answers = list_of(results, "answers"), *item;
    size_t n_items = (size_t)cJSON_GetArraySize(answers);
    Scratch scratch;
    bool has_room = scratch_init(&scratch, count_questions(results), n_items);
    summary->tasks = arena_array(arena, n_items + 1, sizeof *summary->tasks);
    if (!has_room || !summary->tasks) {
        scratch_done(&scratch);
        return no_memory(error);
    }
    cJSON_ArrayForEach(item, answers)
    {
        TaskSummary task = {.policy = results_text(item, "policy"),
                            .task = results_text(item, "task"),
                            .length = (uint32_t)results_number(item, "length"),
                            .n_depths = rules->n_depths};
        if (!task.length || summary_task(summary, task.policy, task.task, task.length)) continue;
        fill_task(results, dense, &scratch, &task);
        summary->tasks[summary->n_tasks++] = task;
    }
    scratch_done(&scratch);
    return true;
}

static PolicySummary *find_policy(const Summary *summary, const char *policy, uint32_t length)
{
    for (uint32_t i = 0; i < summary->n_policies; i++)
        if (summary->policies[i].length == length && !strcmp(summary->policies[i].policy, policy))
            return &summary->policies[i];
    return NULL;
}

/* The interval of the mean of means: variances of the tasks add up. */
static void add_task(PolicySummary *policy, const TaskSummary *task, const SummaryRules *rules)
{
    policy->n_tasks++;
    kv_counts_add(&policy->counts, &task->counts);
    /* Where the question tells the whole answer, no decoded row was asked for anything. */
    if (!task->has_dense || task->dense_right < rules->least_dense * task->n || !task->counts.dense_bytes) return;
    double half = (task->change.high - task->change.low) / 2, n = ++policy->n_counted;
    policy->mean_change += (task->change.value - policy->mean_change) / n;
    if (n == 1 || task->change.value < policy->worst_change) policy->worst_change = task->change.value;
    if (n == 1 || task->n < policy->n_questions) policy->n_questions = task->n;
    double sum = policy->change.high * (n - 1); /* holds the root of the sum of squares until the end */
    policy->change = (Interval){.high = sqrt(sum * sum + half * half) / n};
}

static bool make_policies(const SummaryRules *rules, Arena *arena, Summary *summary, Error *error)
{
    summary->policies = arena_array(arena, summary->n_tasks + 1, sizeof *summary->policies);
    if (!summary->policies) return no_memory(error);
    for (uint32_t i = 0; i < summary->n_tasks; i++) {
        const TaskSummary *task = &summary->tasks[i];
        PolicySummary *policy = find_policy(summary, task->policy, task->length);
        if (!policy) {
            policy = &summary->policies[summary->n_policies++];
            *policy = (PolicySummary){.policy = task->policy, .length = task->length};
        }
        add_task(policy, task, rules);
    }
    for (uint32_t i = 0; i < summary->n_policies; i++) {
        PolicySummary *policy = &summary->policies[i];
        double half = policy->change.high;
        policy->change = (Interval){policy->mean_change, policy->mean_change - half, policy->mean_change + half};
    }
    return true;
}

bool summary_passes(const PolicySummary *policy, const SummaryRules *rules)
{
    return policy->n_counted >= 3 && policy->mean_change >= -rules->max_mean &&
           policy->worst_change >= -rules->max_worst;
}

/* Values of one kind of rows, position after position. */
typedef struct RowValues {
    Grouped kl, change, same;
    uint32_t n_same;
    double nll, dense_nll;
} RowValues;

static void add_values(const cJSON *item, RowsSummary *rows, RowValues *values)
{
    const char *same = results_text(item, "same_top");
    const cJSON *kl = cJSON_GetObjectItemCaseSensitive(item, "kl")->child;
    const cJSON *own = cJSON_GetObjectItemCaseSensitive(item, "nll")->child;
    const cJSON *dense = cJSON_GetObjectItemCaseSensitive(item, "dense_nll")->child;
    for (size_t i = 0; same[i]; i++, kl = kl->next, own = own->next, dense = dense->next) {
        values->kl.values[values->kl.n++] = kl->valuedouble;
        values->change.values[values->change.n++] = own->valuedouble - dense->valuedouble;
        values->same.values[values->same.n++] = same[i] - '0';
        values->n_same += same[i] == '1';
        values->nll += own->valuedouble;
        values->dense_nll += dense->valuedouble;
    }
    end_group(&values->kl);
    end_group(&values->change);
    end_group(&values->same);
    add_counts(&rows->counts, item);
}

static void fill_rows(const Results *results, const Scratch *scratch, RowsSummary *rows)
{
    const cJSON *item;
    RowValues values = {
        .kl = scratch_list(scratch, 0), .change = scratch_list(scratch, 1), .same = scratch_list(scratch, 2)};
    cJSON_ArrayForEach(item, list_of(results, "rows"))
    {
        bool at = rows->position == SUMMARY_ALL || results_number(item, "position") == rows->position;
        if (at && !strcmp(results_text(item, "policy"), rows->policy) &&
            !strcmp(results_text(item, "kind"), rows->kind))
            add_values(item, rows, &values);
    }
    uint32_t n = rows->n = values.kl.n;
    rows->kl = widen(&values.kl, stats_bootstrap(values.kl.values, n, N_RESAMPLES, 1), 0, INFINITY);
    rows->nll_change =
        widen(&values.change, stats_bootstrap(values.change.values, n, N_RESAMPLES, 2), -INFINITY, INFINITY);
    rows->top = widen(&values.same, stats_share(values.n_same, n), 0, 1);
    rows->perplexity = n ? exp(values.nll / n) : 0;
    rows->dense_perplexity = n ? exp(values.dense_nll / n) : 0;
}

static bool has_rows(const Summary *summary, const RowsSummary *rows)
{
    for (uint32_t i = 0; i < summary->n_rows; i++)
        if (summary->rows[i].position == rows->position && !strcmp(summary->rows[i].policy, rows->policy) &&
            !strcmp(summary->rows[i].kind, rows->kind))
            return true;
    return false;
}

static bool make_rows(const Results *results, Arena *arena, Summary *summary, Error *error)
{
    const cJSON *list = list_of(results, "rows"), *item;
    size_t n = 1;
    cJSON_ArrayForEach(item, list) n += strlen(results_text(item, "same_top"));
    size_t n_items = (size_t)cJSON_GetArraySize(list);
    Scratch scratch;
    bool has_room = scratch_init(&scratch, n, n_items);
    summary->rows = arena_array(arena, 2 * n_items + 1, sizeof *summary->rows);
    if (!has_room || !summary->rows) {
        scratch_done(&scratch);
        return no_memory(error);
    }
    cJSON_ArrayForEach(item, list)
    {
        const uint32_t positions[] = {(uint32_t)results_number(item, "position"), SUMMARY_ALL};
        for (int i = 0; i < 2; i++) {
            RowsSummary rows = {
                .policy = results_text(item, "policy"), .kind = results_text(item, "kind"), .position = positions[i]};
            if (has_rows(summary, &rows)) continue;
            fill_rows(results, &scratch, &rows);
            summary->rows[summary->n_rows++] = rows;
        }
    }
    scratch_done(&scratch);
    return true;
}

static RecallSummary *find_recall(const Summary *summary, const char *policy, uint32_t position)
{
    for (uint32_t i = 0; i < summary->n_recalls; i++)
        if (summary->recalls[i].position == position && !strcmp(summary->recalls[i].policy, policy))
            return &summary->recalls[i];
    return NULL;
}

/* Layers count by how many heads were looked at. */
static void add_recall(RecallSummary *to, const cJSON *item)
{
    uint32_t n = (uint32_t)results_number(item, "n");
    to->n += n;
    double weight = to->n ? (double)n / to->n : 0;
    to->recall += weight * (results_number(item, "recall") - to->recall);
    to->mass += weight * (results_number(item, "mass") - to->mass);
    to->best_mass += weight * (results_number(item, "best_mass") - to->best_mass);
    to->range_mass += weight * (results_number(item, "range_mass") - to->range_mass);
}

static bool make_recalls(const Results *results, Arena *arena, Summary *summary, Error *error)
{
    const cJSON *list = list_of(results, "recall"), *item;
    summary->recalls = arena_array(arena, (size_t)cJSON_GetArraySize(list) + 1, sizeof *summary->recalls);
    if (!summary->recalls) return no_memory(error);
    cJSON_ArrayForEach(item, list)
    {
        const char *policy = results_text(item, "policy");
        uint32_t position = (uint32_t)results_number(item, "position");
        RecallSummary *recall = find_recall(summary, policy, position);
        if (!recall) {
            recall = &summary->recalls[summary->n_recalls++];
            *recall = (RecallSummary){.policy = policy, .position = position};
        }
        add_recall(recall, item);
    }
    return true;
}

static EstimateSummary *find_estimate(Summary *summary, const char *policy)
{
    for (uint32_t i = 0; i < summary->n_estimates; i++)
        if (!strcmp(summary->estimates[i].policy, policy)) return &summary->estimates[i];
    EstimateSummary *estimate = &summary->estimates[summary->n_estimates++];
    *estimate = (EstimateSummary){.policy = policy};
    return estimate;
}

static bool make_estimates(const Results *results, Arena *arena, Summary *summary, Error *error)
{
    const cJSON *list = list_of(results, "estimates"), *item;
    summary->estimates = arena_array(arena, (size_t)cJSON_GetArraySize(list) + 1, sizeof *summary->estimates);
    if (!summary->estimates) return no_memory(error);
    cJSON_ArrayForEach(item, list)
    {
        EstimateSummary *to = find_estimate(summary, results_text(item, "policy"));
        const cJSON *estimated = cJSON_GetObjectItemCaseSensitive(item, "estimated")->child;
        const cJSON *missing = cJSON_GetObjectItemCaseSensitive(item, "missing")->child;
        for (; estimated; estimated = estimated->next, missing = missing->next) {
            double x = estimated->valuedouble, y = missing->valuedouble;
            to->n++;
            to->n_within += x >= y / 2 && x <= 2 * y;
            to->estimated += (x - to->estimated) / to->n;
            to->missing += (y - to->missing) / to->n;
        }
        to->within = stats_share(to->n_within, to->n);
    }
    return true;
}

bool summary_make(const Results *results, const char *dense, const SummaryRules *rules, Arena *arena,
                  Summary *ret_summary, Error *error)
{
    Summary summary = {0};
    if (!make_tasks(results, dense, rules, arena, &summary, error) || !make_policies(rules, arena, &summary, error) ||
        !make_rows(results, arena, &summary, error) || !make_recalls(results, arena, &summary, error) ||
        !make_estimates(results, arena, &summary, error))
        return false;
    *ret_summary = summary;
    return true;
}
