/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/ask.h"

#include "engine/select/policy_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Fields that only decoded rows follow are made equal, what prompts do not use is emptied. */
static AttnPolicy prefill_part(const AttnPolicy *policy, uint32_t n_tokens)
{
    AttnPolicy part = *policy;
    part.name = NULL;
    part.recent_decode = part.recent_prefill;
    part.wavelength.k_decode = 0;
    if (part.wavelength.k_prefill == 0 && part.wavelength.linear == 0) part.wavelength = (Wavelength){0};
    if (!part.selection.n_stages || part.selection.prefill_from >= n_tokens) part.selection = (Selection){0};
    return part;
}

bool ask_reads_alike(const Engine *engine, PolicyId a, PolicyId b, uint32_t n_tokens)
{
    AttnPolicy left = prefill_part(engine_policy(engine, a), n_tokens);
    AttnPolicy right = prefill_part(engine_policy(engine, b), n_tokens);
    return a == b || policy_equals(&left, &right);
}

bool ask_prefills_alike(const Engine *engine, PolicyId a, PolicyId b, uint32_t n_tokens)
{
    if (a == b) return true;
    uint32_t n_left, n_right;
    const KvClassInfo *of_left = engine_policy_classes(engine, a, &n_left);
    const KvClassInfo *of_right = engine_policy_classes(engine, b, &n_right);
    if (n_left != n_right || !ask_reads_alike(engine, a, b, n_tokens)) return false;
    for (uint32_t i = 0; i < n_left; i++)
        if (of_left[i].class_id != of_right[i].class_id) return false;
    return true;
}

bool ask_fork(Engine *engine, SeqId from, PolicyId from_policy, PolicyId policy, SeqId *ret_seq, Error *error)
{
    uint32_t n_tokens = engine_seq_tokens(engine, from);
    if (from_policy == policy) return engine_seq_fork(engine, from, ret_seq, error);
    SeqId seq;
    uint32_t n_pages = kv_n_pages(n_tokens);
    PageSet *sets = malloc(n_pages * sizeof *sets);
    if (!sets) return error_set(error, ERR_NO_MEMORY, "no memory for the pages of a prompt");
    for (uint32_t i = 0; i < n_pages; i++) engine_seq_page(engine, from, i, &sets[i]);
    bool ok = engine_seq_new(engine, policy, &seq, error);
    if (ok && !engine_seq_adopt(engine, seq, sets, n_tokens, error)) {
        engine_seq_close(engine, seq);
        ok = false;
    }
    free(sets);
    if (ok) *ret_seq = seq;
    return ok;
}

bool ask_prefill(Engine *engine, SeqId seq, const uint32_t *tokens, uint32_t n, Error *error)
{
    uint32_t chunk = engine_max_batch_rows(engine);
    float *logits;
    for (uint32_t done = 0; done < n; done += chunk) {
        uint32_t rows = n - done < chunk ? n - done : chunk;
        const BatchSpan span = {seq, 0, rows, engine_seq_tokens(engine, seq), LOGITS_NONE, ROWS_PREFILL};
        if (!engine_forward(engine, &(Batch){tokens + done, rows, &span, 1}, &logits, error)) return false;
    }
    return true;
}

double ask_log_sum(const float *logits, uint32_t n, uint32_t *ret_best)
{
    uint32_t best = 0;
    double sum = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    for (uint32_t i = 0; i < n; i++) sum += expf(logits[i] - logits[best]);
    *ret_best = best;
    return logits[best] + log(sum);
}

/* What a row's logits say of the token that should follow. */
typedef struct RowScore {
    double log_prob;
    bool is_best;
} RowScore;

/* Forks that are open at once, and the batch that takes them on. */
typedef struct Round {
    const AskParams *params;
    const EvalQuestion *questions; /* [n] */
    const SeqId *bases;            /* [n]; NULL: all have that of params */
    Answer *answers;               /* [n] */
    uint32_t n, n_open;
    CountTrace *counting;  /* of decoded rows */
    uint64_t select_bytes; /* the same */
    SeqId *seqs;           /* [n] */
    BatchSpan *spans;      /* [n] */
    uint32_t *tokens;      /* [max_batch_rows] */
    uint32_t *owner;       /* [max_batch_rows] question of a row with logits */
    uint32_t *wanted;      /* [max_batch_rows] the token that should follow it */
    RowScore *scores;      /* [max_batch_rows] */
    const float *logits;   /* of the rows that were computed last */
} Round;

static void score_rows(void *arg, uint32_t worker, size_t first, size_t end)
{
    Round *round = arg;
    uint32_t n_vocab = engine_shape(round->params->engine)->n_vocab, best;
    (void)worker;
    for (size_t r = first; r < end; r++) {
        const float *logits = round->logits + r * n_vocab;
        double log_sum = ask_log_sum(logits, n_vocab, &best);
        round->scores[r] = (RowScore){logits[round->wanted[r]] - log_sum, best == round->wanted[r]};
    }
}

static void score(Round *round, const float *logits, uint32_t n_logit_rows)
{
    round->logits = logits;
    engine_each(round->params->engine, n_logit_rows, score_rows, round);
    for (uint32_t r = 0; r < n_logit_rows; r++) {
        Answer *answer = &round->answers[round->owner[r]];
        answer->is_right &= round->scores[r].is_best;
        answer->log_prob += round->scores[r].log_prob;
    }
}

/*
 * Rows [skip, skip + most) of each part: of the questions, whose last rows tell the first token of each answer; or of
 * the answers but for their last token. *ret_more: some have rows behind these.
 */
static bool step(Round *round, bool is_answer, uint32_t skip, uint32_t most, bool *ret_more, Error *error)
{
    Engine *engine = round->params->engine;
    Batch batch = {.tokens = round->tokens, .spans = round->spans};
    uint32_t n_logit_rows = 0;
    float *logits = NULL;
    *ret_more = false;
    for (uint32_t i = 0; i < round->n; i++) {
        const EvalQuestion *question = &round->questions[i];
        uint32_t n_asking = question->n_tokens - question->n_answer, from = is_answer ? n_asking : 0;
        uint32_t last = is_answer ? question->n_tokens - 1 : n_asking, end = last;
        if (last - from <= skip) continue;
        from += skip;
        if (last - from > most) end = from + most;
        *ret_more |= end < last;
        LogitRows wanted = is_answer ? LOGITS_ALL : end == last ? LOGITS_LAST : LOGITS_NONE;
        round->spans[batch.n_spans++] = (BatchSpan){round->seqs[i], batch.n_rows,
                                                    end - from,     engine_seq_tokens(engine, round->seqs[i]),
                                                    wanted,         is_answer ? ROWS_DECODE : round->params->rows};
        memcpy(round->tokens + batch.n_rows, question->tokens + from, (end - from) * sizeof *round->tokens);
        batch.n_rows += end - from;
        for (uint32_t t = is_answer ? from : last - 1; t < end; t++, n_logit_rows++) {
            round->owner[n_logit_rows] = i;
            round->wanted[n_logit_rows] = question->tokens[t + 1];
        }
    }
    if (!batch.n_spans) return true;
    if (!engine_forward(engine, &batch, &logits, error)) return false;
    score(round, logits, n_logit_rows);
    return true;
}

/* Decoded rows of a device go as they do in a server, one of each sequence: those of one that selects would go one by
 * one in any case. */
static bool feed(Round *round, bool is_answer, Error *error)
{
    const AskParams *params = round->params;
    bool is_decoded = is_answer || params->rows == ROWS_DECODE, more = true;
    uint32_t most = is_decoded && engine_is_on_device(params->engine) ? 1 : UINT32_MAX;
    for (uint32_t skip = 0; more; skip += most)
        if (!step(round, is_answer, skip, most, &more, error)) return false;
    return true;
}

static SeqId base_of(const Round *round, uint32_t i)
{
    return round->bases ? round->bases[i] : round->params->base;
}

static bool run_round(Round *round, Error *error)
{
    const AskParams *params = round->params;
    for (uint32_t i = 0; i < round->n; i++) {
        round->answers[i] = (Answer){.is_right = true};
        if (!ask_fork(params->engine, base_of(round, i), params->base_policy, params->policy, &round->seqs[i], error))
            return false;
        round->n_open++;
        const EvalQuestion *question = &round->questions[i];
        uint32_t n_prompt = engine_seq_tokens(params->engine, round->seqs[i]) + question->n_tokens - question->n_answer;
        if (params->rows == ROWS_PREFILL) engine_seq_set_prompt(params->engine, round->seqs[i], n_prompt);
    }
    if (params->rows == ROWS_DECODE) engine_set_trace(params->engine, counts_look, round->counting);
    bool ok = feed(round, false, error);
    engine_set_trace(params->engine, counts_look, round->counting);
    ok = ok && feed(round, true, error);
    engine_set_trace(params->engine, NULL, NULL);
    return ok;
}

static uint32_t round_size(const AskParams *params)
{
    uint32_t n = params->max_open, rows = 1, logit_rows = 1;
    for (uint32_t i = 0; i < params->n_questions; i++) {
        if (params->questions[i].n_tokens > rows) rows = params->questions[i].n_tokens;
        if (params->questions[i].n_answer > logit_rows) logit_rows = params->questions[i].n_answer;
    }
    uint32_t by_rows = engine_max_batch_rows(params->engine) / rows;
    uint32_t by_logits = engine_max_logit_rows(params->engine) / logit_rows;
    if (by_rows < n) n = by_rows;
    return by_logits < n ? by_logits : n;
}

static void end_round(Round *round)
{
    Engine *engine = round->params->engine;
    for (uint32_t i = 0; i < round->n_open; i++) {
        uint64_t before = engine_seq_attention(engine, base_of(round, i), ROWS_DECODE).select_bytes;
        /* A fork goes on counting where its prompt's sequence stands; one that adopted pages begins with nothing. */
        uint64_t bytes = engine_seq_attention(engine, round->seqs[i], ROWS_DECODE).select_bytes;
        round->select_bytes += bytes >= before ? bytes - before : bytes;
        engine_seq_close(engine, round->seqs[i]);
    }
    round->n_open = 0;
}

static bool run_rounds(Round *round, uint32_t size, Answer *answers, Error *error)
{
    const AskParams *params = round->params;
    for (uint32_t done = 0; done < params->n_questions; done += round->n) {
        round->questions = params->questions + done;
        round->bases = params->bases ? params->bases + done : NULL;
        round->answers = answers + done;
        round->n = params->n_questions - done < size ? params->n_questions - done : size;
        bool ok = run_round(round, error);
        end_round(round);
        if (!ok) return false;
    }
    return true;
}

bool ask_questions(const AskParams *params, Answer *ret_answers, KvCounts *ret_counts, Error *error)
{
    uint32_t size = round_size(params), max_rows = engine_max_batch_rows(params->engine);
    if (!size) return error_set(error, ERR_TOO_LARGE, "a question has more tokens than a pass takes");
    CountTrace counting = {.shape = engine_shape(params->engine)};
    Round round = {.params = params,
                   .counting = &counting,
                   .seqs = malloc(size * sizeof *round.seqs),
                   .spans = malloc(size * sizeof *round.spans),
                   .tokens = malloc(max_rows * sizeof *round.tokens),
                   .owner = malloc(max_rows * sizeof *round.owner),
                   .wanted = malloc(max_rows * sizeof *round.wanted),
                   .scores = malloc(max_rows * sizeof *round.scores)};
    bool ok = (round.seqs && round.spans && round.tokens && round.owner && round.wanted && round.scores) ||
              error_set(error, ERR_NO_MEMORY, "no memory for %u questions", size);
    ok = ok && run_rounds(&round, size, ret_answers, error);
    if (ok) {
        counting.counts.select_bytes = round.select_bytes;
        *ret_counts = counting.counts;
    }
    free(round.seqs);
    free(round.spans);
    free(round.tokens);
    free(round.owner);
    free(round.wanted);
    free(round.scores);
    return ok;
}

double ask_mean_nll(const Answer *answers, uint32_t n, uint32_t *ret_right)
{
    double sum = 0;
    *ret_right = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum -= answers[i].log_prob;
        *ret_right += answers[i].is_right;
    }
    return n ? sum / n : 0;
}
