/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The places of all jobs, and those that are computed or wait by their id and by their deadline: none of it looks
 * through the others. Memory is taken once, and touched when it is needed. Engine thread.
 */
#pragma once
#include "scheduler/job.h"

typedef struct JobTable {
    Job *jobs;   /* [max_jobs] */
    Job **by_id; /* [mask + 1] chains */
    Job *free;   /* places that were used before */
    uint32_t max_jobs, n_touched, mask;
    Heap by_deadline;
} JobTable;

LW_CHECK bool job_table_init(JobTable *table, uint32_t max_jobs, Error *error);
void job_table_done(JobTable *table, const SequenceTools *tools); /* {0} is fine */

/* A place; NULL: there is none. */
Job *job_table_take(JobTable *table);
void job_table_give(JobTable *table, Job *job);
/* From job_table_add, with its request, to job_table_forget it can be found. */
void job_table_add(JobTable *table, Job *job);
void job_table_forget(JobTable *table, Job *job);
Job *job_table_find(const JobTable *table, RequestId id); /* or NULL */
/* With the earliest deadline; NULL: none has one. */
Job *job_table_most_urgent(const JobTable *table);
