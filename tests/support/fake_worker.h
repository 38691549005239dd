/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker without an engine, linked in place of scheduler/worker.c: a real thread that answers every request with the
 * tokens of its own prompt, over and over, one every step_usec. max_tokens ends an answer with 'length', or, where the
 * request has a plan for its answers, an end token with 'stop', a prompt that
 * begins with token 0 makes the request fail with logits that are not finite, one that begins with two of them by its
 * grammar, and so does its deadline. Tests of the HTTP side only.
 */
#pragma once
#include "scheduler/worker.h"

typedef struct FakeWorkerStats {
    uint64_t submitted, cancelled, finished, tokens;
} FakeWorkerStats;

/* Before worker_start. */
void fake_worker_configure(const Tokenizer *tokenizer, uint32_t step_usec);
FakeWorkerStats fake_worker_stats(void);
/* From now on answers consist of these ids [n], over and over, kept by the caller; NULL: of the prompt's again. */
void fake_worker_speak(const uint32_t *ids, uint32_t n);
/* From now on every request fails with logits that are not finite, until it is taken back. */
void fake_worker_break(bool breaks);
/* From now on no step ends, and nothing shows life, until it is taken back or the worker is stopped. */
void fake_worker_hang(bool hangs);
void fake_worker_break_device(bool is_broken);
