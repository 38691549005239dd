/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: kv_types MODEL TEXT [TOKENS]
 * What each KV type costs: the model is given the file's text, and the distribution of every next token is compared
 * with the one that f16 keys and values give: mean Kullback-Leibler divergence in nats, and how often the likeliest
 * token is the same. f32 shows what a change in the last bits does alone, where activations are rounded to 8 bits.
 */
#include "base/buffer.h"
#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 64, DEFAULT_TOKENS = 1536, MAX_TEXT_BYTES = 1 << 20 };

typedef struct Fidelity {
    double kl_sum, kl_max, logprob_sum; /* logprob_sum: |difference| for the token that the text goes on with */
    uint32_t n, n_same;
} Fidelity;

static void die(const Error *error)
{
    fprintf(stderr, "kv_types: %s\n", error->text);
    exit(1);
}

static uint32_t best_of(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* log of the sum of exponentials */
static double log_sum(const float *logits, uint32_t n)
{
    double top = (double)logits[best_of(logits, n)], sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += exp((double)logits[i] - top);
    return top + log(sum);
}

static void compare_rows(Fidelity *fidelity, const float *wanted, const float *got, uint32_t n_vocab, uint32_t next)
{
    double wanted_log = log_sum(wanted, n_vocab), got_log = log_sum(got, n_vocab), kl = 0;
    for (uint32_t i = 0; i < n_vocab; i++) {
        double p = (double)wanted[i] - wanted_log, q = (double)got[i] - got_log;
        kl += exp(p) * (p - q);
    }
    fidelity->kl_sum += kl;
    if (kl > fidelity->kl_max) fidelity->kl_max = kl;
    fidelity->logprob_sum += fabs(((double)wanted[next] - wanted_log) - ((double)got[next] - got_log));
    fidelity->n_same += best_of(wanted, n_vocab) == best_of(got, n_vocab);
    fidelity->n++;
}

static Engine *open_engine(const char *path, KvType type, uint32_t n_tokens, SeqId *ret_seq)
{
    Error error;
    Engine *engine = NULL;
    const EngineParams params = {.model_path = path,
                                 .context = n_tokens,
                                 .max_sequences = 1,
                                 .max_batch_rows = CHUNK,
                                 .max_logit_rows = CHUNK,
                                 .kv_types = kv_types_all(type),
                                 .world = 1};
    if (!engine_open(&params, &engine, &error) || !engine_seq_new(engine, 0, ret_seq, &error)) die(&error);
    return engine;
}

static const float *run_chunk(Engine *engine, SeqId seq, const uint32_t *tokens, uint32_t first, uint32_t n)
{
    Error error;
    float *logits = NULL;
    const BatchSpan span = {seq, 0, n, first, LOGITS_ALL, ROWS_PREFILL};
    if (!engine_forward(engine, &(Batch){tokens + first, n, &span, 1}, &logits, &error)) die(&error);
    return logits;
}

static Fidelity compare_type(const char *path, KvType type, const uint32_t *tokens, uint32_t n_tokens)
{
    SeqId wanted_seq, got_seq;
    Fidelity fidelity = {0};
    Engine *wanted = open_engine(path, KV_F16, n_tokens, &wanted_seq),
           *got = open_engine(path, type, n_tokens, &got_seq);
    size_t n_vocab = engine_shape(wanted)->n_vocab;
    for (uint32_t first = 0; first < n_tokens; first += CHUNK) {
        uint32_t n = n_tokens - first < CHUNK ? n_tokens - first : CHUNK;
        const float *a = run_chunk(wanted, wanted_seq, tokens, first, n),
                    *b = run_chunk(got, got_seq, tokens, first, n);
        for (uint32_t i = 0; i < n && first + i + 1 < n_tokens; i++)
            compare_rows(&fidelity, a + i * n_vocab, b + i * n_vocab, (uint32_t)n_vocab, tokens[first + i + 1]);
    }
    engine_close(wanted);
    engine_close(got);
    return fidelity;
}

static void read_text(const char *path, Buffer *text)
{
    Error error;
    char piece[4096];
    size_t n;
    buffer_init(text, MAX_TEXT_BYTES);
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    while ((n = fread(piece, 1, sizeof piece, file)) > 0)
        if (!buffer_append(text, piece, n, &error)) die(&error);
    fclose(file);
}

/* The text's first tokens, at most n; *ret_n of them. */
static uint32_t *make_tokens(const char *model, const char *text_path, uint32_t n, uint32_t *ret_n)
{
    Error error;
    Buffer text;
    SeqId seq;
    TokenList list = {0};
    read_text(text_path, &text);
    Engine *engine = open_engine(model, KV_F16, CHUNK, &seq);
    const TokEncode in = {.text = text.data, .n = text.n, .add_special = true};
    if (!tok_encode(engine_tokenizer(engine), &in, &list, &error)) die(&error);
    engine_close(engine);
    buffer_done(&text);
    *ret_n = list.n < n ? (uint32_t)list.n : n;
    return list.ids;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4) {
        fputs("usage: kv_types MODEL TEXT [TOKENS]\n", stderr);
        return 2;
    }
    uint32_t n_tokens;
    long wanted = argc > 3 ? strtol(argv[3], NULL, 10) : DEFAULT_TOKENS;
    uint32_t *tokens = make_tokens(argv[1], argv[2], wanted > 1 ? (uint32_t)wanted : 2, &n_tokens);
    static const KvType types[] = {KV_F32, KV_BF16, KV_F8, KV_INT8, KV_INT4};
    printf("%u tokens, against f16\n%-6s %12s %12s %10s %16s\n", n_tokens, "type", "mean KL", "largest KL", "top-1",
           "|d log-prob|");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        Fidelity f = compare_type(argv[1], types[i], tokens, n_tokens);
        printf("%-6s %12.2e %12.2e %8.2f %% %16.4f\n", kv_type_info(types[i])->name, f.kl_sum / f.n, f.kl_max,
               100.0 * f.n_same / f.n, f.logprob_sum / f.n);
        fflush(stdout);
    }
    free(tokens);
    return 0;
}
