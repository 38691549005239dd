/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "engine/eval/run.h"

#include <stdlib.h>
#include <string.h>

/* One haystack and who has to be asked about it. */
typedef struct Cell {
    const EvalRun *run;
    const TaskSpec *task;
    uint32_t length, index;
    Haystack haystack;
    Answer *answers; /* [n_questions] */
    bool *is_due;    /* [n_policies] */
    uint32_t n_due;  /* of them */
    double done;     /* share of all cells that are behind it */
} Cell;

static double seconds_since(uint64_t usec)
{
    return (double)(clock_now_usec() - usec) / 1e6;
}

static AnswersKey key_of(const Cell *cell, uint32_t policy)
{
    return (AnswersKey){cell->run->policies[policy].name, cell->task->text, cell->length, cell->index};
}

static bool ask(Cell *cell, SeqId base, uint32_t base_policy, uint32_t policy, double prefill_seconds, Error *error)
{
    const EvalRun *run = cell->run;
    AnswersCell result = {.key = key_of(cell, policy),
                          .questions = cell->haystack.questions,
                          .answers = cell->answers,
                          .n = cell->haystack.n_questions,
                          .prefill_seconds = prefill_seconds};
    const AskParams params = {.engine = run->engine,
                              .base = base,
                              .base_policy = run->policies[base_policy].id,
                              .policy = run->policies[policy].id,
                              .rows = run->question_rows,
                              .questions = cell->haystack.questions,
                              .n_questions = cell->haystack.n_questions,
                              .max_open = run->max_open};
    uint64_t begin_usec = clock_now_usec();
    if (!ask_questions(&params, cell->answers, &result.counts, error)) return false;
    result.seconds = seconds_since(begin_usec);
    cell->n_due--;
    return results_add_answers(run->results, &result, error) &&
           (!cell->n_due || run->saved(run->saved_arg, cell->done, error));
}

/*
 * Where the prompt ends, whose last rows may be dense: behind the question where that is more of it. Questions share
 * what is read before them, so the longest one counts, and no row is dense that would not be so in a server.
 */
static uint32_t count_prompt(const Cell *cell)
{
    const Haystack *haystack = &cell->haystack;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < haystack->n_questions; i++) {
        uint32_t n_asking = haystack->questions[i].n_tokens - haystack->questions[i].n_answer;
        if (n_asking > longest) longest = n_asking;
    }
    return (uint32_t)haystack->tokens.n + (cell->run->question_rows == ROWS_PREFILL ? longest : 0);
}

/* Reads the prompt as the policy does, and asks for it and for those that would read it alike. */
static bool ask_group(Cell *cell, uint32_t first, Error *error)
{
    const EvalRun *run = cell->run;
    SeqId base;
    if (!engine_seq_new(run->engine, run->policies[first].id, &base, error)) return false;
    engine_seq_set_prompt(run->engine, base, count_prompt(cell));
    uint64_t begin_usec = clock_now_usec();
    bool ok = ask_prefill(run->engine, base, cell->haystack.tokens.ids, (uint32_t)cell->haystack.tokens.n, error);
    double prefill_seconds = seconds_since(begin_usec);
    for (uint32_t p = first; ok && p < run->n_policies; p++) {
        if (!cell->is_due[p] ||
            !ask_prefills_alike(run->engine, run->policies[first].id, run->policies[p].id, cell->length))
            continue;
        ok = ask(cell, base, first, p, prefill_seconds, error);
        cell->is_due[p] = false;
    }
    engine_seq_close(run->engine, base);
    return ok;
}

static bool ask_all(Cell *cell, Error *error)
{
    const EvalRun *run = cell->run;
    const TaskInput input = {.tokenizer = engine_tokenizer(run->engine),
                             .frame = run->frame,
                             .spec = cell->task,
                             .seed = run->seed,
                             .n_tokens = cell->length,
                             .n_questions = run->per_haystack,
                             .haystack = cell->index};
    if (!task_make(&input, &cell->haystack, error)) return false;
    bool ok = true;
    for (uint32_t p = 0; ok && p < run->n_policies; p++)
        if (cell->is_due[p]) ok = ask_group(cell, p, error);
    haystack_done(&cell->haystack);
    return ok;
}

static bool run_cell(Cell *cell, Error *error)
{
    const EvalRun *run = cell->run;
    cell->n_due = 0;
    for (uint32_t p = 0; p < run->n_policies; p++) {
        AnswersKey key = key_of(cell, p);
        cell->is_due[p] = !results_answers(run->results, &key);
        cell->n_due += cell->is_due[p];
    }
    return !cell->n_due || ask_all(cell, error);
}

static bool run_cells(const EvalRun *run, Cell *cell, Error *error)
{
    uint32_t n_haystacks = (run->n_questions + run->per_haystack - 1) / run->per_haystack, done = 0;
    double n_cells = (double)n_haystacks * run->n_lengths * run->n_tasks;
    for (uint32_t l = 0; l < run->n_lengths; l++)
        for (uint32_t h = 0; h < n_haystacks; h++)
            for (uint32_t t = 0; t < run->n_tasks; t++) {
                cell->length = run->lengths[l];
                cell->index = run->first_haystack + h;
                cell->task = &run->tasks[t];
                if (!run_cell(cell, error)) return false;
                cell->done = ++done / n_cells;
                if (!run->saved(run->saved_arg, cell->done, error)) return false;
            }
    return true;
}

bool eval_run_answers(const EvalRun *run, Error *error)
{
    Cell cell = {.run = run,
                 .answers = malloc(run->per_haystack * sizeof *cell.answers),
                 .is_due = malloc(run->n_policies * sizeof *cell.is_due)};
    bool ok = cell.answers && cell.is_due;
    if (!ok) error_set(error, ERR_NO_MEMORY, "no memory for the answers");
    ok = ok && run_cells(run, &cell, error);
    free(cell.answers);
    free(cell.is_due);
    return ok;
}
