/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for engine/engine.h, chosen at link time: no model, but a real tokenizer (that of tiny models), real pages
 * (engine/kv), and logits that a test scripts. A token's "key and value" is a number made of the token, its position
 * and what its row saw in the pages, so an answer tells whether they held what they should. Every call that breaks the
 * engine's contract is counted. One thread at a time; the atomic members may be read from another.
 */
#pragma once
#include "engine/engine.h"

#include <stdatomic.h>

typedef struct FakeEngineParams {
    /* 0: 4096, 64, 64, 64, 4, 1, enough for max_sequences full contexts */
    uint32_t context, max_batch_rows, max_logit_rows, max_sequences, max_passes, n_layers;
    uint64_t kv_bytes;
    uint32_t pool_tokens;       /* each class has a pool of its own, as on a device, for a context of so many tokens */
    const char *kv_types;       /* as in kv_types_parse; NULL: f16 */
    const AttnPolicy *policies; /* [n_policies]; NULL: dense alone */
    uint32_t n_policies;
    /*
     * The id that gets the best logit behind tokens [n]; NULL: token n of script [n_script], then TINY_IM_END; without
     * a script or an edit what the numbers in the pages lead to, and now and then a row that is not finite.
     */
    uint32_t (*next)(void *arg, const uint32_t *tokens, uint32_t n);
    void *next_arg;
    const uint32_t *script; /* after a prompt of n_script_prompt tokens */
    uint32_t n_script, n_script_prompt;
    /* May change the row that stands for tokens [n]; may be NULL. */
    void (*edit)(void *arg, const uint32_t *tokens, uint32_t n, float *row);
    void *edit_arg;
    /* Called for each item of work, n_layers 0: the end of a pass; for a clock. May be NULL. */
    void (*work)(void *arg, uint32_t n_rows, uint32_t n_layers, uint32_t depth);
    void *work_arg;
    uint32_t fail_at_forward; /* this pass fails with ERR_DEVICE; 0: none */
    const bool *is_full;      /* while true nobody can reserve; may be NULL */
    uint32_t max_interned;    /* policies of requests at once; 0: any */
    bool is_on_device;        /* decoded rows that select are then worked on one by one */
    bool makes_digests;       /* steps bring digests of the rows that ask for them */
    bool short_digests;       /* as if too many ids were to be listed, which makes lists worth nothing */
    bool is_deterministic;    /* on a device: all decoded rows, which differ from prefilled ones whatever the policy */
} FakeEngineParams;

Engine *fake_engine_new(const FakeEngineParams *params); /* engine_close frees it */

/* From now on as if its device had failed. */
void fake_engine_break_device(Engine *engine);

/* What a layer does in the middle of a step: for callbacks. */
void fake_engine_pulse(const Engine *engine);

/*
 * FakeEngineParams.kv_types and policies as streaming heads go: {dense, the same window for both, two windows}; then
 * two that select: decoded rows (every fourth changes what the next ones see), and blocks of prompt rows too.
 */
enum { FAKE_THREADS = 3, FAKE_LAYERS = 4, FAKE_KV_HEADS = 2, FAKE_POLICIES = 5 };
extern const AttnPolicy fake_policies[FAKE_POLICIES];

/* Calls so far, and what is open now. */
typedef struct FakeEngineCounts {
    _Atomic uint32_t forwards, rows, decode_rows, logit_rows, opened, forked, interned, open, open_passes,
        broken_promises;
    _Atomic uint32_t digests, brought_rows;
    _Atomic uint32_t last_rows, last_first_pos;
} FakeEngineCounts;
const FakeEngineCounts *fake_engine_counts(const Engine *engine);

/*
 * Are the owners of all pages those that there are: each open sequence that holds one, and the prefix cache, which has
 * n_cached in all and each at most once? NULL, or what is wrong.
 */
const char *fake_engine_check_pages(const Engine *engine, uint32_t n_cached);
/* Open passes that compute rows of open sequences: the others work for nobody. */
uint32_t fake_engine_useful_passes(const Engine *engine);
