/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "engine/eval/recall.h"
#include "engine/eval/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The rows behind one position, and the sequences that have read the text so far, one for each way to read it. */
typedef struct Walk {
    const EvalRun *run;
    uint32_t n_vocab, position, n_rows;
    uint32_t *reader;             /* [n_policies] whose sequence a policy's rows go on from */
    SeqId *seqs;                  /* [n_policies] of readers */
    uint32_t n_open;              /* policies whose readers are open */
    float *dense;                 /* [n_rows, n_vocab] logits */
    double *kl, *nll, *dense_nll; /* [n_rows] */
    bool *same_top;               /* [n_rows] */
    double seconds, done;         /* share of the positions that is behind */
    uint64_t select_bytes;        /* of the rows that were fed last */
} Walk;

static void compare_row(Walk *walk, uint32_t row, const float *logits)
{
    const float *dense = walk->dense + (size_t)row * walk->n_vocab;
    uint32_t next = walk->run->text[walk->position + row + 1], best, dense_best;
    double log_sum = ask_log_sum(logits, walk->n_vocab, &best);
    double dense_sum = ask_log_sum(dense, walk->n_vocab, &dense_best), kl = 0;
    for (uint32_t i = 0; i < walk->n_vocab; i++) {
        double log_p = dense[i] - dense_sum;
        kl += exp(log_p) * (log_p - (logits[i] - log_sum));
    }
    walk->kl[row] = kl;
    walk->nll[row] = log_sum - logits[next];
    walk->dense_nll[row] = dense_sum - dense[next];
    walk->same_top[row] = best == dense_best;
}

/* The rows under a policy, in pieces that the engine has room for the logits of. is_dense: they are kept. */
static bool feed(Walk *walk, SeqId seq, RowKind kind, bool is_dense, Error *error)
{
    Engine *engine = walk->run->engine;
    uint32_t piece = engine_max_logit_rows(engine), rows;
    if (piece > engine_max_batch_rows(engine)) piece = engine_max_batch_rows(engine);
    for (uint32_t done = 0; done < walk->n_rows; done += rows) {
        float *logits;
        rows = walk->n_rows - done < piece ? walk->n_rows - done : piece;
        const BatchSpan span = {seq, 0, rows, walk->position + done, LOGITS_ALL, kind};
        const Batch batch = {walk->run->text + walk->position + done, rows, &span, 1};
        uint64_t begin_usec = clock_now_usec();
        if (!engine_forward(engine, &batch, &logits, error)) return false;
        walk->seconds += (double)(clock_now_usec() - begin_usec) / 1e6;
        if (is_dense)
            memcpy(walk->dense + (size_t)done * walk->n_vocab, logits, (size_t)rows * walk->n_vocab * sizeof *logits);
        else
            for (uint32_t r = 0; r < rows; r++) compare_row(walk, done + r, logits + (size_t)r * walk->n_vocab);
    }
    return true;
}

static bool feed_fork(Walk *walk, uint32_t policy, RowKind kind, bool is_dense, Error *error)
{
    SeqId fork;
    Engine *engine = walk->run->engine;
    const EvalPolicy *policies = walk->run->policies;
    uint32_t reader = walk->reader[policy];
    if (!ask_fork(engine, walk->seqs[reader], policies[reader].id, policies[policy].id, &fork, error)) return false;
    walk->seconds = 0;
    uint64_t before = engine_seq_attention(engine, fork, kind).select_bytes;
    bool ok = feed(walk, fork, kind, is_dense, error);
    walk->select_bytes = engine_seq_attention(engine, fork, kind).select_bytes - before;
    engine_seq_close(engine, fork);
    return ok;
}

static bool measure_kind(Walk *walk, uint32_t policy, RowKind kind, Error *error)
{
    const EvalRun *run = walk->run;
    RowsCell cell = {.key = {run->policies[policy].name, kind == ROWS_DECODE ? "decode" : "prefill", walk->position},
                     .n = walk->n_rows};
    if (results_rows(run->results, &cell.key)) return true;
    CountTrace counting = {.shape = engine_shape(run->engine)};
    engine_set_trace(run->engine, counts_look, &counting);
    bool ok = feed_fork(walk, policy, kind, false, error);
    engine_set_trace(run->engine, NULL, NULL);
    if (!ok) return false;
    cell.kl = walk->kl;
    cell.nll = walk->nll;
    cell.dense_nll = walk->dense_nll;
    cell.same_top = walk->same_top;
    cell.seconds = walk->seconds;
    cell.counts = counting.counts;
    cell.counts.select_bytes = walk->select_bytes;
    return results_add_rows(run->results, &cell, error);
}

static const AttnPolicy *policy_of(const EvalRun *run, uint32_t policy)
{
    return engine_policy(run->engine, run->policies[policy].id);
}

/* What is traced is looked at again: files are not kept with the results. */
static bool is_recall_due(const Walk *walk, uint32_t policy)
{
    const EvalRun *run = walk->run;
    return run->recall_stride && policy_of(run, policy)->selection.n_stages &&
           (run->trace_dir || !results_has_recall(run->results, run->policies[policy].name, walk->position));
}

/* Rows that are decoded once more, looked at. */
static bool measure_recall(Walk *walk, uint32_t policy, Error *error)
{
    const EvalRun *run = walk->run;
    Recall *recall;
    if (!is_recall_due(walk, policy)) return true;
    const RecallParams params = {.shape = engine_shape(run->engine),
                                 .policy = run->policies[policy].name,
                                 .position = walk->position,
                                 .stride = run->recall_stride,
                                 .trace_dir = run->trace_dir};
    if (!recall_new(&params, &recall, error)) return false;
    engine_set_trace(run->engine, recall_look, recall);
    bool ok = feed_fork(walk, policy, ROWS_DECODE, false, error);
    engine_set_trace(run->engine, NULL, NULL);
    bool is_known = results_has_recall(run->results, run->policies[policy].name, walk->position);
    ok = ok && recall_end(recall, is_known ? NULL : run->results, error);
    recall_free(recall);
    return ok;
}

/* A device has no probes, so that there is nothing to compare. */
static bool are_estimates_due(const Walk *walk, uint32_t policy)
{
    const EvalRun *run = walk->run;
    return policy_of(run, policy)->selection.n_probes && !engine_is_on_device(run->engine) &&
           !results_has_estimates(run->results, run->policies[policy].name, walk->position);
}

/* Row by row, so that what the engine adds up can be told apart. */
static bool audit_rows(Walk *walk, SeqId seq, EstimatesCell *cell, Error *error)
{
    Engine *engine = walk->run->engine;
    AttentionStats before = {0};
    for (uint32_t r = 0; r < walk->n_rows; r++) {
        float *logits;
        const BatchSpan span = {seq, 0, 1, walk->position + r, LOGITS_NONE, ROWS_DECODE};
        if (!engine_forward(engine, &(Batch){walk->run->text + walk->position + r, 1, &span, 1}, &logits, error))
            return false;
        AttentionStats now = engine_seq_attention(engine, seq, ROWS_DECODE);
        double n = (double)(now.n_audits - before.n_audits);
        if (n > 0) {
            walk->kl[cell->n] = (now.audited_estimate - before.audited_estimate) / n;
            walk->nll[cell->n++] = (now.audited_mass - before.audited_mass) / n;
        }
        before = now;
    }
    return true;
}

/* Rows that are decoded once more, all of them audited. */
static bool measure_estimates(Walk *walk, uint32_t policy, Error *error)
{
    const EvalRun *run = walk->run;
    AttnPolicy audited = *policy_of(run, policy);
    if (!are_estimates_due(walk, policy)) return true;
    EstimatesCell cell = {
        .policy = run->policies[policy].name, .position = walk->position, .estimated = walk->kl, .missing = walk->nll};
    SeqId fork;
    PolicyId id;
    uint32_t reader = walk->reader[policy];
    audited.selection.audit_interval = 1;
    if (!engine_policy_intern(run->engine, &audited, &id, error)) return false;
    bool ok = ask_fork(run->engine, walk->seqs[reader], run->policies[reader].id, id, &fork, error);
    if (ok) {
        ok = audit_rows(walk, fork, &cell, error) && results_add_estimates(run->results, &cell, error);
        engine_seq_close(run->engine, fork);
    }
    engine_policy_release(run->engine, id);
    return ok;
}

static bool reads_as_dense(const EvalRun *run, uint32_t policy)
{
    return ask_reads_alike(run->engine, run->policies[0].id, run->policies[policy].id, run->n_text);
}

static bool measure_policy(Walk *walk, uint32_t policy, Error *error)
{
    const EvalRun *run = walk->run;
    return measure_kind(walk, policy, ROWS_DECODE, error) &&
           (reads_as_dense(run, policy) || measure_kind(walk, policy, ROWS_PREFILL, error)) &&
           measure_recall(walk, policy, error) && measure_estimates(walk, policy, error) &&
           run->saved(run->saved_arg, walk->done, error);
}

static bool measure_position(Walk *walk, Error *error)
{
    const EvalRun *run = walk->run;
    for (uint32_t p = 0; p < run->n_policies; p++) {
        if (walk->reader[p] != p) continue;
        uint32_t held = engine_seq_tokens(run->engine, walk->seqs[p]);
        if (!ask_prefill(run->engine, walk->seqs[p], run->text + held, walk->position - held, error)) return false;
    }
    if (!feed_fork(walk, 0, ROWS_PREFILL, true, error)) return false;
    for (uint32_t p = 1; p < run->n_policies; p++)
        if (!measure_policy(walk, p, error)) return false;
    return true;
}

/* The first policy that reads prompts as this one does. */
static bool open_readers(Walk *walk, Error *error)
{
    const EvalRun *run = walk->run;
    for (uint32_t p = 0; p < run->n_policies; p++) {
        uint32_t reader = 0;
        while (!ask_prefills_alike(run->engine, run->policies[reader].id, run->policies[p].id, run->n_text)) reader++;
        walk->reader[p] = reader;
        if (reader == p && !engine_seq_new(run->engine, run->policies[p].id, &walk->seqs[p], error)) return false;
        walk->n_open++;
    }
    return true;
}

static bool is_policy_done(const Walk *walk, uint32_t policy)
{
    const EvalRun *run = walk->run;
    const char *name = run->policies[policy].name;
    const RowsKey decoded = {name, "decode", walk->position}, prefilled = {name, "prefill", walk->position};
    return results_rows(run->results, &decoded) &&
           (results_rows(run->results, &prefilled) || reads_as_dense(run, policy)) && !is_recall_due(walk, policy) &&
           !are_estimates_due(walk, policy);
}

static bool is_done(const Walk *walk)
{
    for (uint32_t p = 1; p < walk->run->n_policies; p++)
        if (!is_policy_done(walk, p)) return false;
    return true;
}

static bool walk_text(Walk *walk, Error *error)
{
    const EvalRun *run = walk->run;
    if (!open_readers(walk, error)) return false;
    for (uint32_t i = 1; i <= run->n_positions; i++) {
        uint32_t end = (uint32_t)((uint64_t)(run->n_text - 1) * i / run->n_positions);
        walk->position = end > walk->n_rows ? end - walk->n_rows : 0;
        if (!walk->position) continue;
        if (!is_done(walk) && !measure_position(walk, error)) return false;
        walk->done = (double)i / run->n_positions;
        if (!run->saved(run->saved_arg, walk->done, error)) return false;
    }
    return true;
}

bool eval_run_rows(const EvalRun *run, Error *error)
{
    uint32_t n = run->n_rows;
    Walk walk = {.run = run, .n_rows = n, .n_vocab = engine_shape(run->engine)->n_vocab};
    walk.reader = malloc(run->n_policies * sizeof *walk.reader);
    walk.seqs = malloc(run->n_policies * sizeof *walk.seqs);
    walk.dense = malloc((size_t)n * walk.n_vocab * sizeof *walk.dense);
    walk.kl = malloc(3 * (size_t)n * sizeof *walk.kl);
    walk.same_top = malloc(n * sizeof *walk.same_top);
    bool ok = walk.reader && walk.seqs && walk.dense && walk.kl && walk.same_top;
    if (ok) {
        walk.nll = walk.kl + n;
        walk.dense_nll = walk.nll + n;
        ok = walk_text(&walk, error);
    } else {
        error_set(error, ERR_NO_MEMORY, "no memory for the logits of %u rows", n);
    }
    for (uint32_t p = 0; p < walk.n_open; p++)
        if (walk.reader[p] == p) engine_seq_close(run->engine, walk.seqs[p]);
    free(walk.reader);
    free(walk.seqs);
    free(walk.dense);
    free(walk.kl);
    free(walk.same_top);
    return ok;
}
