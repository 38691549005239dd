/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/job.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void job_init(Job *job, Request *request, int64_t priority, uint64_t order)
{
    *job = (Job){.state = JOB_WAITING, .id = request->id, .request = request, .priority = priority, .order = order};
    job->first = (Sequence){.job = job, .state = SEQUENCE_NEW};
}

static bool check_request(const Request *request, const SequenceTools *tools, Error *error)
{
    const Engine *engine = tools->engine;
    uint32_t context = engine_context(engine);
    if (request->n_prompt == 0) return error_set_param(error, ERR_INVALID, "prompt", "the prompt has no tokens");
    if (request->n_choices == 0) return error_set_param(error, ERR_INVALID, "n", "n is 0");
    const AttnPolicy *policy = engine_policy(engine, request->policy);
    uint32_t reach = policy_reach(policy, engine_shape(engine)->train_context);
    if (reach < context) context = reach;
    if ((uint64_t)request->n_prompt + request->max_tokens > context)
        return error_set_param(error, ERR_CONTEXT_LENGTH, "max_tokens",
                               "%u prompt tokens and up to %u generated ones do not fit the context of %u tokens",
                               request->n_prompt, request->max_tokens, context);
    uint32_t least = request->want_prompt_logprobs ? engine_max_logit_rows(engine) : engine_max_batch_rows(engine);
    if (policy_selects_blocks(policy) && least < KV_PAGE_TOKENS)
        return error_set_param(error, ERR_UNSUPPORTED, "longwave.attention",
                               "'%s' takes prompts in blocks of %d rows; this engine computes %u at once", policy->name,
                               KV_PAGE_TOKENS, least);
    uint32_t n_tokens = request->n_prompt + request->max_tokens;
    uint64_t need = engine_need_bytes(engine, request->policy, n_tokens), total = engine_kv_usage(engine).total_bytes;
    if (need > total)
        return error_set_param(error, ERR_CONTEXT_LENGTH, "max_tokens",
                               "%u prompt tokens and up to %u generated ones take %llu bytes of KV memory, all in all "
                               "there are %llu",
                               request->n_prompt, request->max_tokens, (unsigned long long)need,
                               (unsigned long long)total);
    return true;
}

/*
 * Closed pages of a quantised class cannot be taken in part: who repeats the prompt, but for its last row, has to find
 * the windows as they were at the page boundary before it.
 */
static bool ends_at_boundary(const Request *request, const Engine *engine)
{
    uint32_t n;
    const KvClassInfo *classes = engine_policy_classes(engine, request->policy, &n);
    return kv_classes_have_windows(classes, n) && kv_classes_are_quantised(classes, n);
}

static bool find_checkpoints(Job *job, const SequenceTools *tools, Error *error)
{
    const Request *request = job->request;
    bool at_end = ends_at_boundary(request, tools->engine);
    uint32_t n = 0;
    for (uint32_t i = 0; i < request->n_prompt; i++) n += tok_is_end(tools->tokenizer, request->prompt[i]);
    job->checkpoints = calloc((size_t)n + 2, sizeof *job->checkpoints);
    if (!job->checkpoints) return error_set(error, ERR_NO_MEMORY, "no memory for %u checkpoints", n);
    for (uint32_t i = 0; i < request->n_prompt; i++) {
        if (at_end && i + 1 == request->n_prompt) job->checkpoints[job->n_checkpoints++] = i;
        if (tok_is_end(tools->tokenizer, request->prompt[i])) job->checkpoints[job->n_checkpoints++] = i + 1;
    }
    return true;
}

/* The engine has the policy that the request asks for, for as long as it lives. */
static bool take_policy(Job *job, const SequenceTools *tools, Error *error)
{
    Request *request = job->request;
    AttnPolicy policy;
    const AttnPolicy *base = engine_policy(tools->engine, request->policy);
    if (!base)
        return error_set_param(error, ERR_INVALID, "longwave.attention", "no attention policy %u", request->policy);
    if (job->has_own_policy || wish_is_plain(&request->attention)) return true;
    if (!wish_apply(&request->attention, base, &policy, error) ||
        !engine_policy_intern(tools->engine, &policy, &request->policy, error))
        return false;
    job->has_own_policy = true;
    return true;
}

bool job_open(Job *job, const SequenceTools *tools, Error *error)
{
    return take_policy(job, tools, error) && check_request(job->request, tools, error) &&
           sequence_open(&job->first, job, 0, tools, error) && find_checkpoints(job, tools, error);
}

void job_start(Job *job, const SequenceTools *tools, uint32_t n_cached)
{
    const Request *request = job->request;
    job->state = JOB_RUNNING;
    job->started_usec = tools->clock_usec();
    if (job->started_usec > request->arrival_usec) job->timings.queue_usec = job->started_usec - request->arrival_usec;
    job->timings.prompt_tokens = request->n_prompt;
    job->timings.cached_tokens = job->n_progress = n_cached;
    tools->stats->prompt_tokens += n_cached;
    tools->stats->prefix_queried_tokens += request->n_prompt;
    tools->stats->prefix_hit_tokens += n_cached;
    job_post_early(job, (Event){.kind = EVENT_STARTED, .progress = {.done = n_cached, .total = request->n_prompt}});
}

bool job_make_others(Job *job, Error *error)
{
    uint32_t n = job->request->n_choices - 1;
    job->others = calloc(n, sizeof *job->others);
    if (!job->others) return error_set(error, ERR_NO_MEMORY, "no memory for %u choices", n);
    job->n_others = n;
    return true;
}

Sequence *job_choice(Job *job, uint32_t choice)
{
    if (choice == 0) return &job->first;
    return choice <= job->n_others ? &job->others[choice - 1] : NULL;
}

bool job_is_to_branch(const Job *job)
{
    return job->request->n_choices > 1 && !job->others;
}

void job_post_early(Job *job, Event event)
{
    assert(job->n_early < JOB_MAX_EARLY);
    event.id = job->id;
    job->early[job->n_early++] = event;
}

static void post_last(Job *job, Event event)
{
    event.id = job->id;
    job->last = event;
    job->has_last = true;
}

/* Frees what only a job needs that is computed. */
static void close_job(Job *job, const SequenceTools *tools)
{
    Sequence *sequence;
    for (uint32_t i = 0; (sequence = job_choice(job, i)); i++) sequence_close(sequence, tools);
    if (job->has_own_policy) engine_policy_release(tools->engine, job->request->policy);
    free(job->checkpoints);
    request_free(job->request);
    job->has_own_policy = false;
    job->checkpoints = NULL;
    job->request = NULL;
    job->state = JOB_CLOSING;
}

void job_finish(Job *job, const SequenceTools *tools)
{
    uint64_t now = tools->clock_usec();
    uint64_t first = job->first_token_usec ? job->first_token_usec : now;
    job->timings.prefill_usec = first - job->started_usec;
    job->timings.decode_usec = now - first;
    post_last(job, (Event){.kind = EVENT_DONE, .timings = job->timings});
    tools->stats->finished++;
    close_job(job, tools);
}

void job_fail(Job *job, const SequenceTools *tools, const Error *error)
{
    Error *failure = job->request->failure;
    job->request->failure = NULL;
    *failure = *error;
    if (error->code == ERR_CANCELLED || error->code == ERR_DEADLINE)
        tools->stats->cancelled++;
    else if (error_is_own(error->code))
        tools->stats->failed++;
    else
        tools->stats->refused++; /* a grammar that leads nowhere, a prompt that is too long */
    if (error->code == ERR_NON_FINITE) tools->stats->non_finite++;
    post_last(job, (Event){.kind = EVENT_FAILED, .error = failure});
    close_job(job, tools);
}

bool job_has_events(const Job *job)
{
    if (job->n_early || job->has_last || job->first.n_pending) return true;
    for (uint32_t i = 0; i < job->n_others; i++)
        if (job->others[i].n_pending) return true;
    return false;
}

static bool flush(Event *events, uint32_t *n_events, EmitFn emit, void *arg)
{
    uint32_t n = 0;
    while (n < *n_events && emit(arg, &events[n])) n++;
    *n_events -= n;
    memmove(events, events + n, *n_events * sizeof *events);
    return *n_events == 0;
}

bool job_flush(Job *job, EmitFn emit, void *arg)
{
    Sequence *sequence;
    if (!flush(job->early, &job->n_early, emit, arg)) return false;
    for (uint32_t i = 0; (sequence = job_choice(job, i)); i++)
        if (!flush(sequence->pending, &sequence->n_pending, emit, arg)) return false;
    if (job->has_last && !emit(arg, &job->last)) return false;
    job->has_last = false;
    return true;
}

void job_done(Job *job, const SequenceTools *tools)
{
    if (job->state == JOB_FREE) return;
    close_job(job, tools);
    Sequence *sequence;
    for (uint32_t i = 0; i < job->n_early; i++) event_done(&job->early[i]);
    for (uint32_t i = 0; (sequence = job_choice(job, i)); i++)
        for (uint32_t j = 0; j < sequence->n_pending; j++) event_done(&sequence->pending[j]);
    if (job->has_last) event_done(&job->last);
    free(job->others);
    *job = (Job){0};
}
