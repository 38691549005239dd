/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/report.h"

#include <stdio.h>
#include <string.h>

static double share(const KvCounts *counts)
{
    return counts->dense_bytes ? (double)(counts->kv_bytes + counts->select_bytes) / (double)counts->dense_bytes : 0;
}

static bool task_line(const TaskSummary *task, Buffer *out, Error *error)
{
    if (!buffer_printf(out, error, "%7u  %-32s %-40s %5.1f %% [%5.1f, %5.1f] of %4u", task->length, task->task,
                       task->policy, 100 * task->share.value, 100 * task->share.low, 100 * task->share.high, task->n))
        return false;
    if (task->has_dense &&
        !buffer_printf(out, error, "  %+6.1f [%+6.1f, %+6.1f]  %+8.4f [%+8.4f, %+8.4f]", 100 * task->change.value,
                       100 * task->change.low, 100 * task->change.high, task->log_prob_change.value,
                       task->log_prob_change.low, task->log_prob_change.high))
        return false;
    return buffer_printf(out, error, "  %5.1f %%  %6.1f s\n", 100 * share(&task->counts), task->seconds);
}

static bool tasks_text(const Report *report, Buffer *out, Error *error)
{
    const Summary *summary = report->summary;
    if (!summary->n_tasks) return true;
    if (!buffer_append_text(out,
                            "Right answers, and how they differ from dense on the same questions: points of a hundred, "
                            "nats an answer;\nbytes of keys and values read against dense, selection counted; time of "
                            "the questions about one prompt\n",
                            error))
        return false;
    for (uint32_t i = 0; i < summary->n_tasks; i++)
        if (!task_line(&summary->tasks[i], out, error)) return false;
    return true;
}

static bool policies_text(const Report *report, Buffer *out, Error *error)
{
    const Summary *summary = report->summary;
    if (!summary->n_policies) return true;
    if (!buffer_printf(out, error, "\nOver the tasks that count (dense right in at least %.0f %%)\n",
                       100 * report->rules->least_dense))
        return false;
    for (uint32_t i = 0; i < summary->n_policies; i++) {
        const PolicySummary *p = &summary->policies[i];
        if (!buffer_printf(out, error,
                           "%7u  %-40s mean %+6.2f [%+6.2f, %+6.2f]  worst %+6.2f  of %u tasks  reads %5.1f %%%s\n",
                           p->length, p->policy, 100 * p->mean_change, 100 * p->change.low, 100 * p->change.high,
                           100 * p->worst_change, p->n_counted, 100 * share(&p->counts),
                           summary_passes(p, report->rules) ? "  passes" : ""))
            return false;
    }
    return true;
}

static bool rows_text(const Report *report, Buffer *out, Error *error)
{
    const Summary *summary = report->summary;
    if (!summary->n_rows) return true;
    if (!buffer_append_text(out, "\nRows of a text against the model's own dense run\n", error)) return false;
    for (uint32_t i = 0; i < summary->n_rows; i++) {
        const RowsSummary *rows = &summary->rows[i];
        char at[16] = "all";
        if (rows->position != SUMMARY_ALL) snprintf(at, sizeof at, "%u", rows->position);
        if (!buffer_printf(out, error,
                           "%7s  %-40s %-8s KL %.5f [%.5f, %.5f]  top-1 %5.1f %%  perplexity %.3f, dense %.3f  reads "
                           "%5.1f %%\n",
                           at, rows->policy, rows->kind, rows->kl.value, rows->kl.low, rows->kl.high,
                           100 * rows->top.value, rows->perplexity, rows->dense_perplexity, 100 * share(&rows->counts)))
            return false;
    }
    return true;
}

static bool recall_text(const Report *report, Buffer *out, Error *error)
{
    const Summary *summary = report->summary;
    if (!summary->n_recalls) return true;
    if (!buffer_append_text(out,
                            "\nLists of decoded rows: recall of the true top k, attention mass seen, of sink, recent "
                            "range and the true top k, of sink and recent range\n",
                            error))
        return false;
    for (uint32_t i = 0; i < summary->n_recalls; i++) {
        const RecallSummary *r = &summary->recalls[i];
        if (!buffer_printf(out, error, "%7u  %-40s %5.1f %%  %6.2f %%  %6.2f %%  %6.2f %%\n", r->position, r->policy,
                           100 * r->recall, 100 * r->mass, 100 * r->best_mass, 100 * r->range_mass))
            return false;
    }
    return true;
}

static bool estimates_text(const Report *report, Buffer *out, Error *error)
{
    const Summary *summary = report->summary;
    if (!summary->n_estimates) return true;
    if (!buffer_append_text(out, "\nEstimates of the attention mass left out: within a factor of 2, mean, truth\n",
                            error))
        return false;
    for (uint32_t i = 0; i < summary->n_estimates; i++) {
        const EstimateSummary *e = &summary->estimates[i];
        if (!buffer_printf(out, error, "         %-40s %5.1f %% [%5.1f, %5.1f] of %4u  %6.2f %%  %6.2f %%\n", e->policy,
                           100 * e->within.value, 100 * e->within.low, 100 * e->within.high, e->n, 100 * e->estimated,
                           100 * e->missing))
            return false;
    }
    return true;
}

bool report_text(const Report *report, Buffer *out, Error *error)
{
    return tasks_text(report, out, error) && policies_text(report, out, error) && rows_text(report, out, error) &&
           recall_text(report, out, error) && estimates_text(report, out, error);
}
