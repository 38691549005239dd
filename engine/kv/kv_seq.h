/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The open sequences: for each its tokens and, by class, which page holds which of them. Pages are taken ahead
 * (kv_seq_reserve), shared (fork, adopt), copied before they are written while shared, and left behind when a class has
 * a window that has moved past them. After an error nothing has changed; after kv_seqs_new nothing allocates.
 * Engine thread.
 */
#pragma once
#include "engine/batch.h"
#include "engine/kv/kv_memory.h"

typedef struct KvSeqs KvSeqs;

typedef struct KvSeqsParams {
    const KvClassTable *classes; /* this and memory: kept by the caller until kv_seqs_free */
    KvMemory *memory;
    uint32_t context; /* tokens of one sequence */
    uint32_t max_sequences;
    struct Device *device; /* with memory of its own: it has copies of the tables; NULL: none */
} KvSeqsParams;

LW_CHECK bool kv_seqs_new(const KvSeqsParams *params, KvSeqs **ret_seqs, Error *error);
void kv_seqs_free(KvSeqs *seqs); /* NULL is fine; the open ones are closed */

LW_CHECK bool kv_seq_new(KvSeqs *seqs, PolicyId policy, SeqId *ret_seq, Error *error); /* ERR_BUSY: no place */
void kv_seq_close(KvSeqs *seqs, SeqId seq);
bool kv_seq_is_open(const KvSeqs *seqs, SeqId seq);
uint32_t kv_seq_tokens(const KvSeqs *seqs, SeqId seq);
PolicyId kv_seq_policy(const KvSeqs *seqs, SeqId seq);

/* ERR_BUSY: too few pages are free; ERR_CONTEXT_LENGTH. */
LW_CHECK bool kv_seq_reserve(KvSeqs *seqs, SeqId seq, uint32_t n_tokens, Error *error);
/*
 * Adds what it lacks at most, images and lists included, when it goes on to n tokens in passes of max_rows rows. Pages
 * that are reserved are there; one that is written next and has other owners is not.
 */
void kv_seq_add_missing(const KvSeqs *seqs, SeqId seq, uint32_t n_tokens, uint32_t max_rows, KvNeed *need);
/* What has been reserved for its lists: of those that it holds by a fork or an adoption nothing yet. */
uint64_t kv_seq_list_bytes(const KvSeqs *seqs, SeqId seq);
/* Are the pages of the next n tokens there, and nobody else's? */
bool kv_seq_may_write(const KvSeqs *seqs, SeqId seq, uint32_t n_tokens);
/*
 * Counts n more tokens, whose keys and values the kernels have written: full pages lose their images, and pages that no
 * later query sees leave.
 */
void kv_seq_advance(KvSeqs *seqs, SeqId seq, uint32_t n);

LW_CHECK bool kv_seq_fork(KvSeqs *seqs, SeqId from, SeqId *ret_seq, Error *error);
/* engine_seq_adopt */
LW_CHECK bool kv_seq_adopt(KvSeqs *seqs, SeqId seq, const PageSet *sets, uint32_t n_tokens, Error *error);
void kv_seq_page(const KvSeqs *seqs, SeqId seq, uint32_t logical_page, PageSet *ret_set);

/* For the kernels: [n_classes of the policy], valid until the sequence closes; first_image follows kv_seq_advance. */
const KvPages *kv_seq_views(const KvSeqs *seqs, SeqId seq);

/*
 * The same with addresses of the device, whose tables are brought up to date: ret [KV_MAX_CLASSES]. False: the device
 * failed. kv_seqs_device_bytes: what the tables take there.
 */
LW_CHECK bool kv_seq_device_views(KvSeqs *seqs, SeqId seq, KvPages *ret_views);
uint64_t kv_seqs_device_bytes(const KvClassTable *classes, uint32_t context, uint32_t max_sequences);
