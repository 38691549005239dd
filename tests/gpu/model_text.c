/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/model_text.h"

#include "tests/gpu/model_pair.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PROMPTS = 8, N_TEXTS = 32, N_WRITTEN = 32, MAX_PROMPT = 64 };
static const double TIE = 0.05; /* the two best that are so close may be taken either way round */

static const char *const prompts[N_PROMPTS] = {
    "The capital of France is",
    "A short story about a lighthouse keeper begins on a stormy night when",
    "To sort a list of numbers in Python, you can",
    "Water boils at 100 degrees Celsius because",
    "The three laws of motion that Newton published are",
    "Dear Anna, thank you for your letter of last week. I",
    "In the year 1969, the first people to walk on the Moon",
    "A recipe for pancakes needs flour, eggs, milk and",
};

typedef struct Text {
    uint32_t ids[MAX_PROMPT + N_WRITTEN], n_prompt, n;
    double margins[N_WRITTEN]; /* between the two best logits where each was taken */
} Text;

static void encode(const Engine *engine, const char *prompt, Text *ret)
{
    Error error;
    TokenList list = {0};
    const TokEncode in = {prompt, strlen(prompt), NULL, 0, true};
    bool good = tok_encode(engine_tokenizer(engine), &in, &list, &error) && list.n > 0 && list.n <= MAX_PROMPT;
    device_report(good, "the prompt '%s'", prompt);
    ret->n = ret->n_prompt = good ? (uint32_t)list.n : 1;
    for (uint32_t i = 0; good && i < ret->n; i++) ret->ids[i] = list.ids[i];
    token_list_done(&list);
}

static void take_best(Text *text, const float *logits, uint32_t n_vocab)
{
    uint32_t best = 0;
    double second = -INFINITY;
    for (uint32_t i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    for (uint32_t i = 0; i < n_vocab; i++)
        if (i != best) second = fmax(second, (double)logits[i]);
    text->margins[text->n - text->n_prompt] = (double)logits[best] - second;
    text->ids[text->n++] = best;
}

/* Texts [n] in one batch; end tokens count as any other. */
static void write_texts(Engine *engine, Text *texts, uint32_t n)
{
    uint32_t n_vocab = engine_shape(engine)->n_vocab, next[N_TEXTS];
    float *logits = model_logits(engine, N_TEXTS > MAX_PROMPT ? N_TEXTS : MAX_PROMPT);
    SeqId seqs[N_TEXTS];
    for (uint32_t i = 0; i < n; i++) {
        seqs[i] = model_seq(engine);
        model_feed(engine, seqs[i], ROWS_PREFILL, texts[i].ids, texts[i].n_prompt, 0, logits);
        take_best(&texts[i], logits + (size_t)(texts[i].n_prompt - 1) * n_vocab, n_vocab);
    }
    for (uint32_t step = 1; step < N_WRITTEN; step++) {
        for (uint32_t i = 0; i < n; i++) next[i] = texts[i].ids[texts[i].n - 1];
        model_step(engine, seqs, next, n, logits);
        for (uint32_t i = 0; i < n; i++) take_best(&texts[i], logits + (size_t)i * n_vocab, n_vocab);
    }
    for (uint32_t i = 0; i < n; i++) engine_seq_close(engine, seqs[i]);
    free(logits);
}

/* Equal up to a place where the CPU had two that were as good. */
static void compare_texts(const char *what, const Text *want, const Text *got)
{
    uint32_t i = 0;
    while (i < N_WRITTEN && want->ids[want->n_prompt + i] == got->ids[got->n_prompt + i]) i++;
    if (i < N_WRITTEN) printf("%s: turns at token %u, where the margin is %.4f\n", what, i, want->margins[i]);
    device_report(i == N_WRITTEN || want->margins[i] < TIE, "%s: token %u differs, %g ahead", what, i,
                  i < N_WRITTEN ? want->margins[i] : 0);
}

void try_model_text(Device *device, const char *path)
{
    const PairParams params = {path, KV_BF16, false, 256, N_TEXTS + 1, MAX_PROMPT};
    Text *texts = calloc(2 * N_PROMPTS + N_TEXTS, sizeof *texts), *alone = texts + N_PROMPTS, *all = alone + N_PROMPTS;
    if (!texts) exit(1);
    Pair pair = pair_open(device, &params, true);
    for (uint32_t i = 0; i < N_PROMPTS; i++) {
        encode(pair.cpu, prompts[i], &texts[i]);
        alone[i] = texts[i];
    }
    for (uint32_t i = 0; i < N_TEXTS; i++) all[i] = alone[i % N_PROMPTS];
    write_texts(pair.cpu, texts, N_PROMPTS);
    for (uint32_t i = 0; i < N_PROMPTS; i++) {
        write_texts(pair.gpu, &alone[i], 1);
        compare_texts("alone", &texts[i], &alone[i]);
    }
    write_texts(pair.gpu, all, N_TEXTS);
    for (uint32_t i = 0; i < N_TEXTS; i++) compare_texts("one of 32", &texts[i % N_PROMPTS], &all[i]);

    uint32_t n_vocab = engine_shape(pair.cpu)->n_vocab, n = texts[0].n < MAX_PROMPT ? texts[0].n : MAX_PROMPT;
    float *want = model_logits(pair.cpu, n), *got = model_logits(pair.cpu, n);
    model_feed(pair.cpu, model_seq(pair.cpu), ROWS_PREFILL, texts[0].ids, n, 0, want);
    model_feed(pair.gpu, model_seq(pair.gpu), ROWS_PREFILL, texts[0].ids, n, 0, got);
    model_compare("the text of the first prompt", want, got, n, n_vocab, 0.02);
    free(want);
    free(got);
    pair_close(&pair);
    free(texts);
}
