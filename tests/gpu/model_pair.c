/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/model_pair.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Error error;
static const double LEAST_LARGEST = 0.25, RATIO = 30; /* of the largest difference to the mean's limit */

static void must(bool good, const char *what)
{
    if (good) return;
    device_report(false, "%s: %s", what, error.text);
    exit(device_finish());
}

/* Every worker takes some of the rows of each matrix. */
static void exact_part(void *arg, uint32_t worker, uint32_t n_workers)
{
    MatmulParams params = *(const MatmulParams *)arg;
    for (uint32_t i = 0; i < params.n_out; i++) {
        MatmulOut *out = &params.out[i];
        uint32_t first = (uint32_t)((uint64_t)out->n_rows * worker / n_workers);
        uint32_t end = (uint32_t)((uint64_t)out->n_rows * (worker + 1) / n_workers);
        out->w = (const char *)out->w + first * dtype_row_bytes(out->type, params.n_cols);
        out->y += first;
        if (out->bias) out->bias += first;
        out->n_rows = end - first;
    }
    (void)matmul_exact_ref(&params);
}

static bool exact_matmul(const MatmulParams *params, Stream stream)
{
    threads_run(stream.pool, exact_part, (void *)(uintptr_t)params);
    return true;
}

Pair pair_open(Device *device, const PairParams *params, bool cpu)
{
    static KernelTable exact;
    exact = *kernels_cpu();
    exact.matmul = exact_matmul;
    Pair pair = {0};
    EngineParams p = {.model_path = params->path,
                      .context = params->context,
                      .max_sequences = params->max_sequences,
                      .max_batch_rows = params->max_rows,
                      .max_logit_rows = params->max_rows,
                      .max_passes = 2,
                      .kv_types = kv_types_all(params->kv_type),
                      .is_deterministic = params->is_deterministic,
                      .policies = params->policies,
                      .n_policies = params->n_policies,
                      .world = 1,
                      .kernels = params->is_fast ? NULL : &exact};
    if (cpu) must(engine_open(&p, &pair.cpu, &error), "opening on the CPU");
    p.device = device;
    p.kernels = NULL;
    must(engine_open(&p, &pair.gpu, &error), "opening on the device");
    return pair;
}

void pair_close(Pair *pair)
{
    engine_close(pair->cpu);
    engine_close(pair->gpu);
}

SeqId model_seq_of(Engine *engine, PolicyId policy)
{
    SeqId seq = 0;
    must(engine_seq_new(engine, policy, &seq, &error), "a sequence");
    return seq;
}

SeqId model_seq(Engine *engine)
{
    return model_seq_of(engine, 0);
}

void model_feed(Engine *engine, SeqId seq, RowKind kind, const uint32_t *tokens, uint32_t n, uint32_t chunk,
                float *logits)
{
    size_t n_vocab = engine_shape(engine)->n_vocab;
    for (uint32_t done = 0, rows; done < n; done += rows) {
        rows = chunk && chunk < n - done ? chunk : n - done;
        BatchSpan span = {seq, 0, rows, engine_seq_tokens(engine, seq), logits ? LOGITS_ALL : LOGITS_LAST, kind};
        float *found;
        must(engine_forward(engine, &(Batch){tokens + done, rows, &span, 1}, &found, &error), "a pass");
        if (logits) memcpy(logits + done * n_vocab, found, rows * n_vocab * sizeof *logits);
    }
}

void model_step(Engine *engine, const SeqId *seqs, const uint32_t *tokens, uint32_t n, float *logits)
{
    BatchSpan *spans = calloc(n, sizeof *spans);
    float *found;
    if (!spans) exit(1);
    for (uint32_t i = 0; i < n; i++)
        spans[i] = (BatchSpan){seqs[i], i, 1, engine_seq_tokens(engine, seqs[i]), LOGITS_LAST, ROWS_DECODE};
    must(engine_forward(engine, &(Batch){tokens, n, spans, n}, &found, &error), "a step");
    memcpy(logits, found, (size_t)n * engine_shape(engine)->n_vocab * sizeof *logits);
    free(spans);
}

float *model_logits(const Engine *engine, uint32_t n_rows)
{
    float *logits = calloc((size_t)n_rows * engine_shape(engine)->n_vocab, sizeof *logits);
    if (!logits) exit(1);
    return logits;
}

void model_text(const Engine *engine, uint32_t seed, uint32_t *tokens, uint32_t n)
{
    uint32_t n_vocab = engine_shape(engine)->n_vocab;
    for (uint32_t i = 0; i < n; i++) tokens[i] = (seed * 7919 + i * i * 31 + i * 7) % n_vocab;
}

static double log_sum(const float *logits, uint32_t n)
{
    double most = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++) most = fmax(most, (double)logits[i]);
    for (uint32_t i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    return most + log(sum);
}

Distance model_distance(const float *a, const float *b, uint32_t n_rows, uint32_t n_vocab)
{
    Distance distance = {0};
    for (uint32_t row = 0; row < n_rows; row++, a += n_vocab, b += n_vocab) {
        double sum_a = log_sum(a, n_vocab), sum_b = log_sum(b, n_vocab), of_best = 0;
        uint32_t best = 0;
        for (uint32_t i = 0; i < n_vocab; i++) {
            double x = (double)a[i] - sum_a, y = (double)b[i] - sum_b, apart = fabs(x - y);
            if (a[i] > a[best]) best = i;
            if (best == i) of_best = apart;
            if (!(apart <= 1e30)) apart = INFINITY;
            if (!(fmax(x, y) < -9.2)) distance.largest = fmax(distance.largest, apart);
        }
        distance.mean += of_best / n_rows;
    }
    return distance;
}

void model_compare(const char *what, const float *want, const float *got, uint32_t n_rows, uint32_t n_vocab,
                   double limit)
{
    Distance distance = model_distance(want, got, n_rows, n_vocab);
    printf("%-52s largest %.5f, mean of the likeliest %.6f\n", what, distance.largest, distance.mean);
    device_report(distance.mean <= limit && distance.largest <= fmax(LEAST_LARGEST, RATIO * limit),
                  "%s: log-probabilities are %g apart, %g in the mean, at most %g", what, distance.largest,
                  distance.mean, limit);
}
