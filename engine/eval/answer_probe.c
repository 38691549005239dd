/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/answer_probe.h"

#include <stdlib.h>

struct AnswerProbe {
    Engine *engine;
    PolicyId policy;
    SeqId *seqs; /* [n_questions] of the prompt and a question, up to the token before its answer's first row */
    uint32_t n_open, n_questions;
    EvalQuestion *answers; /* [n_questions] the last token of a question and its answer */
    Answer *found;         /* [n_questions] */
};

void answer_probe_free(AnswerProbe *probe)
{
    if (!probe) return;
    for (uint32_t i = 0; i < probe->n_open; i++) engine_seq_close(probe->engine, probe->seqs[i]);
    free(probe->seqs);
    free(probe->answers);
    free(probe->found);
    free(probe);
}

static bool open_question(AnswerProbe *probe, SeqId base, const EvalQuestion *question, Error *error)
{
    uint32_t i = probe->n_open, n_read = question->n_tokens - question->n_answer - 1;
    if (!engine_seq_fork(probe->engine, base, &probe->seqs[i], error)) return false;
    probe->n_open++;
    probe->answers[i] = (EvalQuestion){.tokens = question->tokens + n_read,
                                       .n_tokens = question->n_answer + 1,
                                       .n_answer = question->n_answer,
                                       .needle = question->needle};
    return ask_prefill(probe->engine, probe->seqs[i], question->tokens, n_read, error);
}

static bool read_all(AnswerProbe *probe, const Haystack *haystack, Error *error)
{
    SeqId base;
    if (!engine_seq_new(probe->engine, probe->policy, &base, error)) return false;
    bool ok = ask_prefill(probe->engine, base, haystack->tokens.ids, (uint32_t)haystack->tokens.n, error);
    for (uint32_t i = 0; ok && i < haystack->n_questions; i++)
        ok = open_question(probe, base, &haystack->questions[i], error);
    engine_seq_close(probe->engine, base);
    return ok;
}

bool answer_probe_new(Engine *engine, PolicyId policy, const Haystack *haystack, AnswerProbe **ret_probe, Error *error)
{
    uint32_t n = haystack->n_questions;
    AnswerProbe *probe = calloc(1, sizeof *probe);
    if (!probe) return error_set(error, ERR_NO_MEMORY, "no memory for a prompt's questions");
    *probe = (AnswerProbe){.engine = engine,
                           .policy = policy,
                           .n_questions = n,
                           .seqs = malloc((n + 1) * sizeof *probe->seqs),
                           .answers = malloc((n + 1) * sizeof *probe->answers),
                           .found = malloc((n + 1) * sizeof *probe->found)};
    bool ok = probe->seqs && probe->answers && probe->found;
    if (!ok) error_set(error, ERR_NO_MEMORY, "no memory for a prompt's questions");
    ok = ok && read_all(probe, haystack, error);
    if (ok)
        *ret_probe = probe;
    else
        answer_probe_free(probe);
    return ok;
}

bool answer_probe_run(AnswerProbe *probe, uint32_t max_open, double *ret_nll, uint32_t *ret_right, Error *error)
{
    KvCounts counts;
    const AskParams params = {.engine = probe->engine,
                              .bases = probe->seqs,
                              .base_policy = probe->policy,
                              .policy = probe->policy,
                              .rows = ROWS_DECODE,
                              .questions = probe->answers,
                              .n_questions = probe->n_questions,
                              .max_open = max_open};
    if (!ask_questions(&params, probe->found, &counts, error)) return false;
    *ret_nll = ask_mean_nll(probe->found, probe->n_questions, ret_right);
    return true;
}
