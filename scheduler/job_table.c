/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/job_table.h"

#include <stdlib.h>

static bool is_more_urgent(const HeapLink *a, const HeapLink *b)
{
    const Job *x = HEAP_CONST_OWNER(a, Job, by_deadline), *y = HEAP_CONST_OWNER(b, Job, by_deadline);
    return x->request->deadline_usec < y->request->deadline_usec;
}

bool job_table_init(JobTable *table, uint32_t max_jobs, Error *error)
{
    uint32_t n_chains = 1;
    while (n_chains < max_jobs && n_chains < UINT32_MAX / 2) n_chains *= 2;
    JobTable made = {.jobs = calloc(max_jobs, sizeof *made.jobs),
                     .by_id = calloc(n_chains, sizeof(Job *)),
                     .max_jobs = max_jobs,
                     .mask = n_chains - 1,
                     .by_deadline = {.comes_before = is_more_urgent}};
    if (!made.jobs || !made.by_id) {
        free(made.jobs);
        free(made.by_id);
        return error_set(error, ERR_NO_MEMORY, "no memory for %u requests", max_jobs);
    }
    *table = made;
    return true;
}

void job_table_done(JobTable *table, const SequenceTools *tools)
{
    for (uint32_t i = 0; i < table->n_touched; i++) job_done(&table->jobs[i], tools);
    free(table->jobs);
    free(table->by_id);
    *table = (JobTable){0};
}

Job *job_table_take(JobTable *table)
{
    Job *job = table->free;
    if (!job) return table->n_touched < table->max_jobs ? &table->jobs[table->n_touched++] : NULL;
    table->free = job->next;
    return job;
}

void job_table_give(JobTable *table, Job *job)
{
    job->next = table->free;
    table->free = job;
}

static Job **chain_of(const JobTable *table, RequestId id)
{
    return &table->by_id[(id * 0x9E3779B97F4A7C15u >> 32) & table->mask];
}

void job_table_add(JobTable *table, Job *job)
{
    Job **chain = chain_of(table, job->id);
    job->next = *chain;
    *chain = job;
    if (job->request->deadline_usec) heap_push(&table->by_deadline, &job->by_deadline);
}

void job_table_forget(JobTable *table, Job *job)
{
    Job **link = chain_of(table, job->id);
    while (*link != job) link = &(*link)->next;
    *link = job->next;
    job->next = NULL;
    (void)heap_remove(&table->by_deadline, &job->by_deadline);
}

Job *job_table_find(const JobTable *table, RequestId id)
{
    Job *job = *chain_of(table, id);
    while (job && job->id != id) job = job->next;
    return job;
}

Job *job_table_most_urgent(const JobTable *table)
{
    HeapLink *top = table->by_deadline.top;
    return top ? HEAP_OWNER(top, Job, by_deadline) : NULL;
}
