/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "engine/eval/calibrate_impl.h"
#include "engine/eval/summary.h"

#include <stdlib.h>
#include <stdio.h>
#include <string.h>

enum { ARENA_BLOCK = 65536, N_STEPS = 15, STEP_TOKEN = 1, FILL_SEED = 3 };

/* Prompts that ranked no head, and others than those of the crossover. */
static const uint64_t CHECK_SEED = 0x5bd1e995, CROSSOVER_SEED = 0x1b873593;

/* Dense and other policies on the same prompts. */
typedef struct Comparison {
    Calibrate *calibrate;
    const EvalPolicy *policies; /* [n_policies]; the first is dense */
    uint32_t n_policies, length;
    uint64_t seed;
    double work; /* that the whole is */
    double done; /* share of it */
} Comparison;

static bool moved(void *arg, double fraction, Error *error)
{
    Comparison *comparison = arg;
    double work = comparison->work * (fraction - comparison->done);
    comparison->done = fraction;
    return calibrate_step(comparison->calibrate, work, error);
}

static bool ask_all(Comparison *comparison, Arena *arena, Results *results, Summary *ret_summary, Error *error)
{
    const Calibrate *calibrate = comparison->calibrate;
    const CalibrateParams *p = &calibrate->params;
    const EvalRun run = {.engine = calibrate->engine,
                         .results = results,
                         .policies = comparison->policies,
                         .n_policies = comparison->n_policies,
                         .frame = &calibrate->frame,
                         .tasks = calibrate->tasks,
                         .n_tasks = calibrate->n_tasks,
                         .lengths = &comparison->length,
                         .n_lengths = 1,
                         .n_questions = p->n_prompts * p->per_haystack,
                         .per_haystack = p->per_haystack,
                         .max_open = p->max_open,
                         .question_rows = ROWS_DECODE,
                         .seed = p->seed ^ comparison->seed,
                         .saved = moved,
                         .saved_arg = comparison};
    const SummaryRules rules = {.n_depths = 1};
    return eval_run_answers(&run, error) && summary_make(results, "dense", &rules, arena, ret_summary, error);
}

/* use(arg, ...) sees each task under each policy but dense. */
static bool compare(Comparison *comparison, bool (*use)(void *arg, const TaskSummary *task, Error *error), void *arg,
                    Error *error)
{
    Results results;
    Summary summary;
    Arena arena;
    arena_init(&arena, ARENA_BLOCK, SIZE_MAX);
    bool ok = results_new(comparison->calibrate->found.method, &results, error);
    if (ok) {
        ok = ask_all(comparison, &arena, &results, &summary, error);
        for (uint32_t i = 0; ok && i < summary.n_tasks; i++)
            if (strcmp(summary.tasks[i].policy, "dense") != 0) ok = use(arg, &summary.tasks[i], error);
        results_done(&results);
    }
    arena_done(&arena);
    return ok;
}

/* ---- the found roles ---- */

static bool keep_checked(void *arg, const TaskSummary *task, Error *error)
{
    Calibration *found = arg;
    (void)error;
    CheckedTask *checked = &found->checked[found->n_checked++];
    *checked = (CheckedTask){.questions = task->n,
                             .dense_right = task->dense_right,
                             .right = task->right,
                             .loss = -task->log_prob_change.value};
    snprintf(checked->task, sizeof checked->task, "%s", task->task);
    return true;
}

bool calibrate_check(Calibrate *calibrate, Error *error)
{
    const EvalPolicy policies[] = {{"dense", 0}, {CALIBRATE_ROLES, 1}};
    Comparison comparison = {.calibrate = calibrate,
                             .policies = policies,
                             .n_policies = 2,
                             .length = calibrate->params.length,
                             .seed = CHECK_SEED,
                             .work = (double)PROMPT_WORK * 2 * calibrate->found.n_prompts};
    if (calibrate->found.n_checked == calibrate->n_tasks) return true;
    calibrate->found.n_checked = 0;
    return compare(&comparison, keep_checked, &calibrate->found, error);
}

/* ---- crossover ---- */

static int by_size(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static bool time_step(Engine *engine, SeqId seq, double *ret_usec, Error *error)
{
    const uint32_t token = STEP_TOKEN;
    const BatchSpan span = {seq, 0, 1, engine_seq_tokens(engine, seq), LOGITS_LAST, ROWS_DECODE};
    float *logits;
    uint64_t begin_usec = clock_now_usec();
    if (!engine_forward(engine, &(Batch){&token, 1, &span, 1}, &logits, error)) return false;
    *ret_usec = (double)(clock_now_usec() - begin_usec);
    return true;
}

/* Steps behind random keys and values, in turns, so that what else the machine does falls on both. */
static bool time_both(Engine *engine, const SeqId seqs[2], CrossoverCell *cell, Error *error)
{
    double usec[2][N_STEPS], unused;
    for (int i = 0; i < 2; i++)
        if (!engine_seq_fill(engine, seqs[i], cell->length - N_STEPS - 1, FILL_SEED, error) ||
            !time_step(engine, seqs[i], &unused, error))
            return false;
    for (int step = 0; step < N_STEPS; step++)
        for (int i = 0; i < 2; i++)
            if (!time_step(engine, seqs[i], &usec[i][step], error)) return false;
    for (int i = 0; i < 2; i++) qsort(usec[i], N_STEPS, sizeof usec[i][0], by_size);
    cell->dense_usec = usec[0][N_STEPS / 2];
    cell->usec = usec[1][N_STEPS / 2];
    return true;
}

static bool time_policy(Engine *engine, PolicyId policy, CrossoverCell *cell, Error *error)
{
    SeqId seqs[2];
    if (!engine_seq_new(engine, 0, &seqs[0], error)) return false;
    bool ok = engine_seq_new(engine, policy, &seqs[1], error);
    if (ok) {
        ok = time_both(engine, seqs, cell, error);
        engine_seq_close(engine, seqs[1]);
    }
    engine_seq_close(engine, seqs[0]);
    return ok;
}

/* The cells of one length, in the order of the policies. */
typedef struct Column {
    CrossoverCell cells[CALIBRATE_MAX_POLICIES];
    uint32_t n;
} Column;

static bool keep_answers(void *arg, const TaskSummary *task, Error *error)
{
    Column *column = arg;
    (void)error;
    for (uint32_t i = 0; i < column->n; i++) {
        CrossoverCell *cell = &column->cells[i];
        if (strcmp(cell->policy, task->policy) != 0) continue;
        cell->questions += task->n;
        cell->dense_right += task->dense_right;
        cell->right += task->right;
    }
    return true;
}

static bool intern(Calibrate *calibrate, PolicySpec *spec, EvalPolicy *ret_policy, Error *error)
{
    PolicySpec own = *spec;
    own.policy.name = spec->text;
    ret_policy->name = spec->text;
    return policy_spec_take_roles(&own, engine_policy(calibrate->engine, 1), 1, error) &&
           (engine_policy_intern(calibrate->engine, &own.policy, &ret_policy->id, error) ||
            error_prefix(error, "policy '%s'", spec->text));
}

static bool measure_column(Calibrate *calibrate, const EvalPolicy *policies, Column *column, uint32_t length,
                           Error *error)
{
    Comparison comparison = {.calibrate = calibrate,
                             .policies = policies,
                             .n_policies = column->n + 1,
                             .length = length,
                             .seed = CROSSOVER_SEED,
                             .work = (double)PROMPT_WORK * calibrate->found.n_prompts * column->n};
    for (uint32_t i = 0; i < column->n; i++)
        if (!time_policy(calibrate->engine, policies[i + 1].id, &column->cells[i], error)) return false;
    if (!compare(&comparison, keep_answers, column, error)) return false;
    Calibration *found = &calibrate->found;
    for (uint32_t i = 0; i < column->n; i++) found->cells[found->n_cells++] = column->cells[i];
    return true;
}

/* The policies whose cell at the length is not there yet. */
static bool run_length(Calibrate *calibrate, uint32_t length, Error *error)
{
    EvalPolicy policies[CALIBRATE_MAX_POLICIES + 1] = {{"dense", 0}};
    Column column = {0};
    bool ok = true;
    for (uint32_t i = 0; ok && i < calibrate->n_specs; i++) {
        PolicySpec *spec = &calibrate->specs[i];
        if (calibration_cell(&calibrate->found, spec->text, length)) continue;
        ok = intern(calibrate, spec, &policies[column.n + 1], error);
        if (!ok) break;
        CrossoverCell *cell = &column.cells[column.n++];
        *cell = (CrossoverCell){.length = length};
        snprintf(cell->policy, sizeof cell->policy, "%s", spec->text);
    }
    if (ok && calibrate->found.n_cells + column.n > CALIBRATION_MAX_CELLS)
        ok = error_set(error, ERR_TOO_LARGE, "the file has more than %d crossover figures", CALIBRATION_MAX_CELLS);
    ok = ok && (!column.n || measure_column(calibrate, policies, &column, length, error));
    for (uint32_t i = 0; i < column.n; i++) engine_policy_release(calibrate->engine, policies[i + 1].id);
    return ok;
}

bool calibrate_crossover(Calibrate *calibrate, Error *error)
{
    const CalibrateParams *p = &calibrate->params;
    for (uint32_t l = 0; calibrate->n_specs && l < p->n_lengths; l++)
        if (!run_length(calibrate, p->lengths[l], error)) return false;
    return true;
}
