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

/* Sequences of their own: nothing is shared between them. Those that are open are counted also after an error. */
static bool fill_sequences(const BatchBench *bench, SeqId *seqs, uint32_t *ret_n_open, Error *error)
{
    for (*ret_n_open = 0; *ret_n_open < bench->n_sequences;) {
        SeqId *seq = &seqs[*ret_n_open];
        if (!engine_seq_new(bench->engine, 0, seq, error)) return false;
        ++*ret_n_open;
        if (!engine_seq_fill(bench->engine, *seq, bench->depth, FILL_SEED, error)) return false;
    }
    return true;
}

static bool time_decoding(const BatchBench *bench, const SeqId *seqs, BatchSpan *spans, const DigestAsk *asks,
                          double *ret_usec, Error *error)
{
    uint64_t begin_usec = clock_now_usec();
    for (uint32_t step = 0; step < bench->n_steps; step++) {
        float *logits;
        for (uint32_t i = 0; i < bench->n_sequences; i++)
            spans[i] = (BatchSpan){seqs[i], i, 1, bench->depth + step, LOGITS_LAST, ROWS_DECODE};
        const Batch batch = {bench->tokens + step, bench->n_sequences, spans, bench->n_sequences, asks};
        if (!engine_forward(bench->engine, &batch, &logits, error)) return false;
    }
    *ret_usec = (double)(clock_now_usec() - begin_usec) + 1e-3;
    return true;
}

/* One run, in new sequences. */
static bool run_once(const BatchBench *bench, SeqId *seqs, BatchSpan *spans, const DigestAsk *asks, double *ret_rate,
                     Error *error)
{
    uint32_t n_open = 0;
    double usec = 0;
    bool ok = fill_sequences(bench, seqs, &n_open, error) && time_decoding(bench, seqs, spans, asks, &usec, error);
    for (uint32_t i = 0; i < n_open; i++) engine_seq_close(bench->engine, seqs[i]);
    *ret_rate = 1e6 * bench->n_sequences * bench->n_steps / (usec > 0 ? usec : 1);
    return ok;
}

bool bench_batch(const BatchBench *bench, BenchSpread *ret_rates, Error *error)
{
    SeqId *seqs = calloc(bench->n_sequences, sizeof *seqs);
    BatchSpan *spans = calloc(bench->n_sequences, sizeof *spans);
    DigestAsk *asks = calloc(bench->n_sequences, sizeof *asks);
    double *rates = calloc(bench->n_repetitions, sizeof *rates), unused;
    bool ok = seqs && spans && asks && rates;
    for (uint32_t i = 0; asks && i < bench->n_sequences; i++) asks[i].is_wanted = true;
    if (!ok) error_set(error, ERR_NO_MEMORY, "no memory for %u sequences", bench->n_sequences);
    ok = ok && run_once(bench, seqs, spans, asks, &unused, error);
    for (uint32_t i = 0; ok && i < bench->n_repetitions; i++) ok = run_once(bench, seqs, spans, asks, &rates[i], error);
    if (ok) *ret_rates = bench_spread(rates, bench->n_repetitions);
    free(rates);
    free(asks);
    free(spans);
    free(seqs);
    return ok;
}
