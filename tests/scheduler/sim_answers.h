/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool of prompts that share prefixes, some going on where the answer to another ended, and what the fake model says
 * to each when it is asked alone: computed when it is first wanted, without a scheduler, one token after another. Test
 * code.
 */
#pragma once
#include "scheduler/messages.h"
#include "tests/support/fake_engine.h"

enum { SIM_PROMPTS = 48, SIM_CONTEXT = 768, SIM_MAX_ANSWER = 250, SIM_MAX_CHOICES = 4, SIM_SEEDS = 3 };

typedef struct SimQuestion {
    uint32_t prompt;                  /* below SIM_PROMPTS */
    uint32_t policy, seed, n_choices; /* seed 0: greedy */
    bool tells_prompt;                /* with log-probabilities of the prompt */
} SimQuestion;

typedef struct SimAnswer {
    bool is_known;
    ErrorCode failure; /* of any choice; ids are those before it */
    uint32_t ids[SIM_MAX_CHOICES][SIM_MAX_ANSWER], n[SIM_MAX_CHOICES];
} SimAnswer;

typedef struct SimAnswers SimAnswers;

/*
 * The engine's pages and types as in the simulation; random numbers from seed; turn_policy: whose answers other prompts
 * go on from.
 */
SimAnswers *sim_answers_new(const char *kv_types, PolicyId turn_policy, uint64_t seed);
void sim_answers_free(SimAnswers *answers);
/* The prompt that goes on where the answer to this one ended, or the same one. */
uint32_t sim_turn_after(uint32_t prompt);
bool sim_is_turn(uint32_t prompt);
const uint32_t *sim_prompt(SimAnswers *answers, uint32_t prompt, uint32_t *ret_n);
/* For SIM_MAX_ANSWER tokens; a shorter answer is its beginning. More choices than one: those of SIM_MAX_CHOICES. */
const SimAnswer *sim_answer(SimAnswers *answers, const SimQuestion *question);
/* [n_prompt] of its tokens, those up to one that is not finite. */
const float *sim_prompt_logprobs(SimAnswers *answers, const SimQuestion *question);
/* The request that asks it, greedy or not, for max_tokens. */
Request *sim_request(SimAnswers *answers, const SimQuestion *question, RequestId id, uint32_t max_tokens);

uint64_t sim_random(uint64_t *state);
uint32_t sim_below(uint64_t *state, uint32_t n); /* 0 .. n - 1 */
