/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a load asks for: dialogues of one or more turns, made up from a seed, so that the n-th is the same in each run.
 * Prompts are common words, of which most vocabularies have one token each; the server's usage tells the true counts.
 * One thread.
 */
#pragma once
#include "base/buffer.h"
#include "config/config.h"
#include "server/load/lengths.h"
#include "server/load/replay.h"

typedef struct WorkloadParams {
    WorkloadKind kind;
    Lengths prompt, answer; /* tokens; of an agent the first prompt, then the results of tools */
    Lengths prefix;         /* tokens that dialogues share; an agent's instructions */
    Lengths tool;           /* tokens of the text behind each answer */
    Lengths turns, think_ms;
    uint32_t n_prefixes;
    bool is_chat; /* else one text */
    bool ignores_eos;
    const char *model;
    uint64_t seed;
    const Replay *replay; /* NULL: none; else instead of what kind and lengths say */
} WorkloadParams;

typedef struct Workload {
    WorkloadParams params;
    Buffer *prefixes; /* [n_prefixes] text and an empty line */
} Workload;

LW_CHECK bool workload_new(const WorkloadParams *params, Workload **ret_workload, Error *error);
void workload_free(Workload *workload); /* NULL is fine */

typedef struct Dialogue {
    Rng rng;
    Buffer text; /* chat: messages in JSON with commas between; else the text itself */
    uint32_t turn, n_turns;
    uint32_t answer_tokens; /* wanted in this turn */
} Dialogue;

void dialogue_init(Dialogue *dialogue);
void dialogue_done(Dialogue *dialogue);
/* The index-th one, at its first turn. */
LW_CHECK bool dialogue_begin(Dialogue *dialogue, const Workload *workload, uint64_t index, Error *error);
/* Appends the body of this turn's request. */
LW_CHECK bool dialogue_write(const Dialogue *dialogue, const Workload *workload, Buffer *body, Error *error);
bool dialogue_is_last(const Dialogue *dialogue);
/* Goes on to the next turn: what the model said, and what a tool answers to that. */
LW_CHECK bool dialogue_answer(Dialogue *dialogue, const Workload *workload, const Buffer *answer, Error *error);
uint32_t dialogue_think_ms(Dialogue *dialogue, const Workload *workload);
