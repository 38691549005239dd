/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for engine/engine.h, chosen at link time: no model, but a real tokenizer (that of tiny models), and logits
 * that a test scripts. It keeps each sequence's tokens and counts every call that breaks the engine's contract. One
 * thread at a time; the atomic members may be read from another.
 */
#pragma once
#include "engine/engine.h"

#include <stdatomic.h>

typedef struct FakeEngineParams {
    uint32_t context, max_batch_rows, max_logit_rows, max_sequences; /* 0: 4096, 64, 64, 1 */
    /* The id that gets the best logit behind tokens [n]; NULL: token n of script [n_script], then TINY_IM_END. */
    uint32_t (*next)(void *arg, const uint32_t *tokens, uint32_t n);
    void *next_arg;
    const uint32_t *script; /* after a prompt of n_script_prompt tokens */
    uint32_t n_script, n_script_prompt;
    /* May change the row that stands for tokens [n]; may be NULL. */
    void (*edit)(void *arg, const uint32_t *tokens, uint32_t n, float *row);
    void *edit_arg;
    uint32_t fail_at_forward; /* this forward pass fails with ERR_DEVICE; 0: none */
} FakeEngineParams;

Engine *fake_engine_new(const FakeEngineParams *params); /* engine_close frees it */

/* What a layer does in the middle of a step: for callbacks. */
void fake_engine_pulse(const Engine *engine);

/* Calls so far, and what is open now. */
typedef struct FakeEngineCounts {
    _Atomic uint32_t forwards, rows, logit_rows, opened, open, broken_promises;
    _Atomic uint32_t last_rows, last_first_pos;
} FakeEngineCounts;
const FakeEngineCounts *fake_engine_counts(const Engine *engine);
