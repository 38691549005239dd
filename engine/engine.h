/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The boundary of the engine: one loaded model, its KV memory, and a synchronous forward pass. No HTTP, no requests over
 * time. engine_open and engine_forward belong to one thread at a time (main, then the engine thread); what the const
 * getters return is immutable and may be read anywhere.
 */
#pragma once
#include "base/tensor.h"
#include "engine/batch.h"
#include "engine/model/family.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

typedef struct Engine Engine;

typedef struct EngineParams {
    const char *model_path;
    uint32_t context;        /* tokens of one sequence; 0: the model's own */
    uint32_t max_sequences;  /* open at once */
    uint32_t max_batch_rows; /* rows of one forward pass */
    uint32_t max_logit_rows; /* rows with logits of one forward pass */
    uint32_t n_threads;      /* 0: all that are available */
    DType kv_type;           /* F32, F16 or BF16 */
    uint32_t rank, world;    /* tensor parallel; 0, 1 */
    const struct KernelTable *kernels; /* NULL: the best for this machine */
    void (*progress)(void *arg, double fraction); /* may be NULL; called from engine_open's thread */
    void *progress_arg;
} EngineParams;

LW_CHECK bool engine_open(const EngineParams *params, Engine **ret_engine, Error *error);
void engine_close(Engine *engine); /* NULL is fine */

const Gguf *engine_gguf(const Engine *engine);
const ModelShape *engine_shape(const Engine *engine);
const Tokenizer *engine_tokenizer(const Engine *engine);
const ChatTemplate *engine_chat_template(const Engine *engine); /* NULL: the file has none, or it does not parse */
const Error *engine_chat_template_error(const Engine *engine);  /* why it does not parse; NULL when that is not so */
uint32_t engine_context(const Engine *engine);
uint32_t engine_max_batch_rows(const Engine *engine);
uint32_t engine_max_logit_rows(const Engine *engine);
size_t engine_kv_bytes(const Engine *engine); /* with every sequence full */
const char *engine_device_name(const Engine *engine);

/* ERR_BUSY when max_sequences are open. */
LW_CHECK bool engine_seq_open(Engine *engine, SeqId *ret_seq, Error *error);
void engine_seq_close(Engine *engine, SeqId seq);
uint32_t engine_seq_tokens(const Engine *engine, SeqId seq);
/* Forgets the tokens from n on (roll back, or reuse of a common prefix). */
void engine_seq_truncate(Engine *engine, SeqId seq, uint32_t n);

/*
 * pulse(arg) is a sign of life: engine_forward calls it, on its own thread, after the embedding, after each layer and
 * after the output projection. NULL: none.
 */
void engine_set_pulse(Engine *engine, void (*pulse)(void *arg), void *arg);

/*
 * Runs one batch; allocates nothing. *ret_logits is [rows with logits, n_vocab] in row order, writable (samplers change
 * it in place), valid until the next call. ERR_NON_FINITE is not raised here: samplers check the row they use.
 */
LW_CHECK bool engine_forward(Engine *engine, const Batch *batch, float **ret_logits, Error *error);
