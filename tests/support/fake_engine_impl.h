/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the fake engine: what its files share. Test code. */
#pragma once
#include "engine/kv/kv_seq.h"
#include "tests/support/fake_engine.h"

/* What a page holds of one token, in every class. */
typedef struct Cell {
    uint64_t value;
    uint32_t token, unused;
} Cell;

typedef struct FakePass {
    bool is_open, fails;
    uint32_t *tokens; /* [n_rows] of max_batch_rows */
    BatchSpan *spans; /* [n_spans] of max_sequences; n_rows 0: its sequence was closed */
    uint32_t n_rows, n_spans, depth;
    uint32_t next_layer, next_row;
} FakePass;

/* What a sequence under a selecting policy keeps. */
typedef struct FakeSelection {
    uint32_t decode_from, n_prompt; /* decode_from UINT32_MAX: nothing was decoded */
    uint64_t list;
} FakeSelection;

/* Of the step that ended last. */
typedef struct FakeDigests {
    uint32_t n;
    bool *is_there;     /* [max_sequences] */
    RowDigest *digests; /* [max_sequences] */
    DigestItem *items;  /* [max_sequences, DIGEST_LIST] */
    float *rows;        /* [max_sequences, n_vocab] what was digested */
} FakeDigests;

struct Engine {
    FakeEngineParams params;
    _Atomic bool is_broken;
    ModelShape shape;
    Buffer file;
    Gguf *gguf;
    Tokenizer *tokenizer;
    KvClassTable classes;
    KvMemory *memory;
    KvSeqs *seqs;
    FakePass *passes;          /* [max_passes] */
    bool *is_in_pass;          /* [max_sequences] */
    FakeSelection *selections; /* [max_sequences] */
    uint32_t *history;         /* [context] for callbacks */
    float *logits;             /* [max_logit_rows, n_vocab] */
    FakeDigests digests;
    void (*pulse)(void *arg);
    void *pulse_arg;
    FakeEngineCounts counts;
};

/* Counts a promise that was broken. */
bool fake_keeps(Engine *engine, bool promise);
/* [KV_PAGE_TOKENS] of a page, or of its image. */
Cell *fake_cells(const Engine *engine, PageId page, bool of_image);
void *fake_checked(void *pointer); /* aborts when there is no memory */
/* Of the batch whose logits have just been made. */
void fake_digests_make(Engine *engine, const Batch *batch);
