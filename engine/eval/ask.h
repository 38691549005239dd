/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions about one prefilled prompt: each goes into a fork of its sequence, many in one pass. The right answer is
 * fed, not what the model says: greedy decoding gives it exactly if the likeliest token is the right one at each place,
 * and its log-probability is a softer score. Engine thread.
 */
#pragma once
#include "engine/engine.h"
#include "engine/eval/counts.h"
#include "engine/eval/haystack.h"

typedef struct AskParams {
    Engine *engine;
    SeqId base;         /* the haystack, of base_policy */
    const SeqId *bases; /* [n_questions] one of each question, of base_policy too; NULL: all have base */
    PolicyId base_policy, policy;
    RowKind rows; /* what the question is: more of the prompt, or decoded; answers are decoded */
    const EvalQuestion *questions;
    uint32_t n_questions;
    uint32_t max_open; /* questions at once */
} AskParams;

typedef struct Answer {
    bool is_right;
    double log_prob; /* nats, of the whole right answer */
} Answer;

/* ret_answers: [n_questions]; *ret_counts: what all decoded rows of the questions and answers read. */
LW_CHECK bool ask_questions(const AskParams *params, Answer *ret_answers, KvCounts *ret_counts, Error *error);

/* Nats a right answer [n], and how many were given. */
double ask_mean_nll(const Answer *answers, uint32_t n, uint32_t *ret_right);

/* Do rows of prompts of n_tokens tokens see the same under both policies? */
bool ask_reads_alike(const Engine *engine, PolicyId a, PolicyId b, uint32_t n_tokens);
/* The same, and their keys and values lie in the same pages. */
bool ask_prefills_alike(const Engine *engine, PolicyId a, PolicyId b, uint32_t n_tokens);
/* A sequence of policy that holds what `from` does, whose own policy prefills alike. */
LW_CHECK bool ask_fork(Engine *engine, SeqId from, PolicyId from_policy, PolicyId policy, SeqId *ret_seq, Error *error);
/* Rows of a prompt in chunks as large as the engine takes. */
LW_CHECK bool ask_prefill(Engine *engine, SeqId seq, const uint32_t *tokens, uint32_t n, Error *error);

/* log sum exp of a row's logits [n], and the likeliest id. */
double ask_log_sum(const float *logits, uint32_t n, uint32_t *ret_best);
