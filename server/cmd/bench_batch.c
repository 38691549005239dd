/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cmd/bench_batch.h"
#include "base/clock.h"

#include <stdlib.h>

enum { FILL_SEED = 3 };

/* Something to multiply with; not zeros. */
static bool fill_x(const EmbedParams *params, Stream stream)
{
    (void)stream;
    for (size_t i = 0; i < (size_t)params->n_tokens * params->n; i++) params->y[i] = (float)(i % 7) - 3;
    return true;
}

#define NOTHING(name, Params)                                                                                          \
    static bool no_##name(const Params *params, Stream stream)                                                         \
    {                                                                                                                  \
        (void)params;                                                                                                  \
        (void)stream;                                                                                                  \
        return true;                                                                                                   \
    }

NOTHING(rmsnorm, RmsNormParams)
NOTHING(rope_table, RopeTableParams)
NOTHING(rope, RopeParams)
NOTHING(kv_store, KvStoreParams)
NOTHING(attend, AttendParams)
NOTHING(glu, GluParams)
NOTHING(softcap, SoftcapParams)
NOTHING(vector_add, VectorAddParams)

KernelTable bench_products_alone(const KernelTable *row)
{
    return (KernelTable){.name = row->name,
                         .embed = fill_x,
                         .rmsnorm = no_rmsnorm,
                         .matmul = row->matmul,
                         .rope_table = no_rope_table,
                         .rope = no_rope,
                         .kv_store = no_kv_store,
                         .attend = no_attend,
                         .glu = no_glu,
                         .softcap = no_softcap,
                         .vector_add = no_vector_add};
}

/* Those that are open are counted also after an error. */
typedef struct Sequences {
    Engine *engine;
    SeqId *at;
    uint32_t n_open;
} Sequences;

static bool sequences_init(Engine *engine, uint32_t n, Sequences *ret_seqs, Error *error)
{
    *ret_seqs = (Sequences){.engine = engine, .at = calloc(n, sizeof(SeqId))};
    return ret_seqs->at || error_set(error, ERR_NO_MEMORY, "no memory for %u sequences", n);
}

static void sequences_done(Sequences *seqs)
{
    for (uint32_t i = 0; i < seqs->n_open; i++) engine_seq_close(seqs->engine, seqs->at[i]);
    free(seqs->at);
}

/* Sequences of their own: nothing is shared between them. */
static bool fill_sequences(const BatchBench *bench, Sequences *seqs, Error *error)
{
    while (seqs->n_open < bench->n_sequences) {
        SeqId *seq = &seqs->at[seqs->n_open];
        if (!engine_seq_new(bench->engine, bench->policy, seq, error)) return false;
        seqs->n_open++;
        if (!engine_seq_fill(bench->engine, *seq, bench->depth, FILL_SEED + seqs->n_open, error)) return false;
    }
    return true;
}

static bool fork_sequences(const SeqId *bases, uint32_t n, Sequences *seqs, Error *error)
{
    for (; seqs->n_open < n; seqs->n_open++)
        if (!engine_seq_fork(seqs->engine, bases[seqs->n_open], &seqs->at[seqs->n_open], error)) return false;
    return true;
}

static bool decode(Engine *engine, const SeqId *seqs, uint32_t n, const uint32_t *tokens, uint32_t n_steps,
                   Samples *steps, Error *error)
{
    BatchSpan *spans = calloc(n, sizeof *spans);
    DigestAsk *asks = calloc(n, sizeof *asks);
    bool ok = (spans && asks) || error_set(error, ERR_NO_MEMORY, "no memory for %u sequences", n);
    for (uint32_t i = 0; ok && i < n; i++) asks[i].is_wanted = true;
    for (uint32_t step = 0; ok && step < n_steps; step++) {
        float *logits;
        uint64_t begin_usec = clock_now_usec();
        for (uint32_t i = 0; i < n; i++)
            spans[i] = (BatchSpan){seqs[i], i, 1, engine_seq_tokens(engine, seqs[i]), LOGITS_LAST, ROWS_DECODE};
        ok = engine_forward(engine, &(Batch){tokens + step, n, spans, n, asks}, &logits, error) &&
             bench_add_step(steps, begin_usec, error);
    }
    free(asks);
    free(spans);
    return ok;
}

static bool look_again(const BenchAgain *run, ListCheck *check, const Sequences *again, const uint32_t *tokens,
                       uint32_t n_steps, Error *error)
{
    engine_set_trace(run->engine, list_check_look, check);
    bool ok = decode(run->engine, again->at, run->n, tokens, n_steps, NULL, error);
    engine_set_trace(run->engine, NULL, NULL);
    return ok;
}

bool bench_check_lists(const BenchAgain *run, const uint32_t *tokens, uint32_t n_steps, ListCounts *counts,
                       Error *error)
{
    Sequences again;
    ListCheck *check = NULL;
    bool ok = sequences_init(run->engine, run->n, &again, error) && fork_sequences(run->bases, run->n, &again, error) &&
              list_check_new(run->engine, again.at, run->n, &check, error) &&
              look_again(run, check, &again, tokens, n_steps, error) && list_check_end(check, run->seqs, counts, error);
    list_check_free(check);
    sequences_done(&again);
    return ok;
}

/* One run, in forks of the filled sequences. */
static bool run_once(const BatchBench *bench, const SeqId *bases, bool check, double *ret_rate, Error *error)
{
    Sequences seqs;
    const uint32_t n = bench->n_sequences;
    bool ok = sequences_init(bench->engine, n, &seqs, error) && fork_sequences(bases, n, &seqs, error);
    uint64_t begin_usec = clock_now_usec();
    ok = ok && decode(bench->engine, seqs.at, n, bench->tokens, bench->n_steps, bench->steps, error);
    double usec = (double)(clock_now_usec() - begin_usec) + 1e-3;
    const BenchAgain again = {bench->engine, bases, seqs.at, n};
    ok = ok && (!check || bench_check_lists(&again, bench->tokens, bench->n_steps, bench->lists, error));
    sequences_done(&seqs);
    *ret_rate = 1e6 * n * bench->n_steps / usec;
    return ok;
}

bool bench_batch(const BatchBench *bench, BenchSpread *ret_rates, Error *error)
{
    const uint32_t n = bench->n_repetitions;
    Sequences bases;
    double *rates = calloc(n, sizeof *rates), unused;
    bool ok = sequences_init(bench->engine, bench->n_sequences, &bases, error) &&
              (rates || error_set(error, ERR_NO_MEMORY, "no memory for %u figures", n)) &&
              fill_sequences(bench, &bases, error) && run_once(bench, bases.at, false, &unused, error);
    if (bench->steps) samples_clear(bench->steps);
    for (uint32_t i = 0; ok && i < n; i++) ok = run_once(bench, bases.at, bench->lists && i == n - 1, &rates[i], error);
    if (ok) *ret_rates = bench_spread(rates, n);
    free(rates);
    sequences_done(&bases);
    return ok;
}
