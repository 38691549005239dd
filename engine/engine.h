/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The boundary of the engine: one loaded model, its KV memory, and a synchronous forward pass. No HTTP, no requests
 * over time. engine_open and engine_forward belong to one thread at a time (main, then the engine thread); what the
 * const getters return is immutable and may be read anywhere.
 */
#pragma once
#include "base/tensor.h"
#include "engine/batch.h"
#include "engine/kv/kv_class.h"
#include "engine/model/family.h"
#include "engine/model/rope_override.h"
#include "engine/select/attention_stats.h"
#include "engine/select/policy.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "engine/trace.h"

typedef struct Engine Engine;

typedef struct EngineParams {
    const char *model_path;
    uint32_t context;           /* tokens of one sequence; 0: the model's own, or less where memory holds no more */
    uint32_t max_sequences;     /* open at once */
    uint32_t max_passes;        /* open at once; 0: 1 */
    uint64_t kv_bytes;          /* of all pages together; 0: enough for max_sequences full contexts */
    struct Device *device;      /* kept by the caller until engine_close; NULL: the host */
    uint64_t device_bytes;      /* of the device, for weights, buffers and pages together; 0: 0.9 of what it has */
    bool is_deterministic;      /* on a device: a row's bits do not depend on the batch */
    const AttnPolicy *policies; /* [n_policies], kept by the caller until engine_close; NULL: dense alone */
    uint32_t n_policies;
    const RopeOverride *rope; /* other positions and a longer context; NULL: the model's own */
    const char *attention;    /* one as eval takes them: a policy behind those, and the default; NULL: dense is; "auto":
                                 what the model's certificate names (engine/eval/certificate.h), dense without one */
    const char *roles;        /* "NAME=PATH,...": a policy for each such file behind the dense one; without policies */
    uint32_t audit_interval;  /* of policies that select: decoded rows between two that run dense too; 0: their own */
    uint32_t max_batch_rows;  /* rows of one forward pass */
    uint32_t max_logit_rows;  /* rows with logits of one forward pass */
    uint32_t n_threads;       /* 0: all that are available */
    KvTypes kv_types;         /* of the keys and values of each class */
    uint32_t rank, world;     /* tensor parallel; 0, 1 */
    const struct KernelTable *kernels;            /* NULL: the device's, or the best for this machine */
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
uint32_t engine_n_threads(const Engine *engine); /* that compute on the host, the caller's included */
const char *engine_device_name(const Engine *engine);
bool engine_is_on_device(const Engine *engine); /* not on the host */
/* A device whose rows have bits that do not depend on the batch: they depend on their RowKind, whatever the policy. */
bool engine_is_deterministic_device(const Engine *engine);
/*
 * Runs fn over [0, n_items) on these threads while the engine computes nothing: one item at a time by whichever is
 * free, as worker 0 .. engine_n_threads - 1.
 */
typedef void (*EngineItemFn)(void *arg, uint32_t worker, size_t first, size_t end);
void engine_each(Engine *engine, uint32_t n_items, EngineItemFn fn, void *arg);
/* Bytes that it holds where it computes, beside keys and values; the weights of a host are the mapped file. */
typedef struct EngineMemory {
    uint64_t weights, buffers;
} EngineMemory;
EngineMemory engine_memory(const Engine *engine);
/* ERR_DEVICE once its device has failed: then it computes nothing more, and its pages are worth nothing. */
LW_CHECK bool engine_check_device(const Engine *engine, Error *error);
/*
 * Numbers by which files of pages know their own: of the model (metadata, tensors, some of their bytes), and of all
 * else that the bytes of a policy's pages depend on (policy, classes, types, layout, kernels). Milliseconds.
 */
uint64_t engine_model_fingerprint(const Engine *engine);
uint64_t engine_policy_fingerprint(const Engine *engine, PolicyId policy);

/*
 * A policy that came with a request, among the engine's: the same one for equal policies, and nobody else's while it
 * has users (engine_policy_release ends one). Its roles are those of a policy that the engine was opened with.
 * ERR_BUSY: the table is full of used ones; ERR_INVALID names the field.
 */
LW_CHECK bool engine_policy_intern(Engine *engine, const AttnPolicy *policy, PolicyId *ret_policy, Error *error);
void engine_policy_release(Engine *engine, PolicyId policy);
/*
 * From now on one KV head of a policy without roles sees sink and recent tokens alone, of the pages that it has;
 * recent PLAN_ALL: all its heads see again what the policy says. While no pass is open; a device that fails stays
 * failed.
 */
void engine_limit_head(Engine *engine, PolicyId policy, uint32_t layer, uint32_t kv_head, uint32_t sink,
                       uint32_t recent);

/*
 * Sequences and their pages. A sequence's tokens are 0 .. engine_seq_tokens - 1; passes extend it. Pages are shared by
 * reference count: with engine_seq_fork, and with whoever keeps a PageSet (the prefix cache). A shared page that is to
 * be written is copied first: by engine_seq_reserve, so sharing an open page calls for reserving again before the next
 * pass. Sharing takes no time, none of this allocates, and after an error nothing has changed.
 */
LW_CHECK bool engine_seq_new(Engine *engine, PolicyId policy, SeqId *ret_seq, Error *error); /* ERR_BUSY: no place */
void engine_seq_close(Engine *engine, SeqId seq);
uint32_t engine_seq_tokens(const Engine *engine, SeqId seq);
/* Takes all pages that the next n tokens need (a copy of a shared open page among them). ERR_BUSY: too few are free. */
LW_CHECK bool engine_seq_reserve(Engine *engine, SeqId seq, uint32_t n_tokens, Error *error);
/* A sequence that holds the same tokens, of one that is in no pass. ERR_BUSY: no place. */
LW_CHECK bool engine_seq_fork(Engine *engine, SeqId from, SeqId *ret_seq, Error *error);
/* The same, but its rows select nothing: what a decoded row would be without. */
LW_CHECK bool engine_seq_fork_dense(Engine *engine, SeqId from, SeqId *ret_seq, Error *error);
/* How long the prompt is whose rows come next: the last ones may be dense. In no pass. */
void engine_seq_set_prompt(Engine *engine, SeqId seq, uint32_t n_tokens);
/* What attention has cost since the sequence was opened; of prompts under selecting policies alone. */
AttentionStats engine_seq_attention(const Engine *engine, SeqId seq, RowKind kind);
/*
 * The sectors that the last choice for a KV head of a layer has listed, behind the rows so far: as many as there are
 * and sectors [n] has room for; returns how many there are. A device that fails stays failed.
 */
uint32_t engine_seq_list(const Engine *engine, SeqId seq, uint32_t layer, uint32_t kv_head, uint32_t *sectors,
                         uint32_t n);
const RopeTurns *engine_rope_turns(const Engine *engine); /* of layers that see everything, on the host */
/*
 * What a sequence under a selecting policy is beyond its tokens and pages: for whoever takes it out of the engine
 * between two decoded rows, and puts it back behind engine_seq_adopt.
 */
size_t engine_seq_state_bytes(const Engine *engine, SeqId seq);
void engine_seq_state_read(const Engine *engine, SeqId seq, void *dst);
void engine_seq_state_write(Engine *engine, SeqId seq, const void *src);
/*
 * Appends n tokens whose pages are sets[0 .. ceil(n / KV_PAGE_TOKENS) - 1] to a sequence that ends on a page boundary.
 * The last page may hold more tokens than are taken from it if its classes are unquantised or it is open. Classes with
 * a window may lack the pages that no later query sees (kv_class_needs).
 */
LW_CHECK bool engine_seq_adopt(Engine *engine, SeqId seq, const PageSet *sets, uint32_t n_tokens, Error *error);
/*
 * The pages of one logical page of a sequence, without references of their own; PAGE_NONE where its class holds none.
 */
void engine_seq_page(const Engine *engine, SeqId seq, uint32_t logical_page, PageSet *ret_set);
/* One more, or one less, owner of every page of the set. */
void engine_pages_ref(Engine *engine, const PageSet *set);
void engine_pages_unref(Engine *engine, const PageSet *set);

/* The classes of a policy, in PageSet order: [*ret_n <= KV_MAX_CLASSES], static. */
const KvClassInfo *engine_policy_classes(const Engine *engine, PolicyId policy, uint32_t *ret_n);
PolicyId engine_default_policy(const Engine *engine); /* of who does not choose one */
/* Prompts that the default is certified for: of at most so many tokens, and of at least so many; 0: any. */
uint32_t engine_certified_tokens(const Engine *engine);
uint32_t engine_certified_from(const Engine *engine);
const Error *engine_certificate_error(const Engine *engine); /* why "auto" does not follow the one there is; NULL */
const AttnPolicy *engine_policy(const Engine *engine, PolicyId policy); /* NULL past the last */
KvUsage engine_kv_usage(const Engine *engine);
/* Bytes that a sequence of n tokens takes at most while it is built, images included. */
uint64_t engine_need_bytes(const Engine *engine, PolicyId policy, uint32_t n_tokens);
/* Adds what a sequence lacks of that at most when it goes on to n tokens in passes of max_rows rows. */
void engine_seq_add_missing(const Engine *engine, SeqId seq, uint32_t n_tokens, uint32_t max_rows, KvNeed *need);
/* Is that free now, of each class? */
bool engine_kv_meets(const Engine *engine, const KvNeed *need);
/* What it has reserved for the lists of its selection. */
uint64_t engine_seq_list_bytes(const Engine *engine, SeqId seq);

/*
 * A page's bytes, for swap and session files. An open page of a quantised class has those of its image, which are not
 * as many as when it is full: is_open tells a new page which of the two it will be. New pages have one owner, the
 * caller. ERR_BUSY: none is free.
 */
size_t engine_page_bytes(const Engine *engine, PageId page);
bool engine_page_is_open(const Engine *engine, PageId page); /* has an image; false in an unquantised class */
/* Its first n_tokens tokens; the rest, which may be somebody else's, is zeros. ERR_DEVICE: dst is worth nothing. */
LW_CHECK bool engine_page_read(const Engine *engine, PageId page, uint32_t n_tokens, void *dst, Error *error);
LW_CHECK bool engine_page_write(Engine *engine, PageId page, const void *src, Error *error);
LW_CHECK bool engine_page_new(Engine *engine, uint32_t class_id, bool is_open, PageId *ret_page, Error *error);

/*
 * Passes. Several may be open; their sequences are disjoint, and what they append is reserved (engine_seq_reserve).
 * begin copies the batch and embeds it; run takes it through layers, ascending, all rows of a layer in ascending
 * pieces; end, after the last layer, projects the rows that want logits ([rows with logits, n_vocab] in row order,
 * writable, valid until the next end) and counts the new tokens. A sequence may be closed while it is in a pass: the
 * pass goes on without. ERR_NON_FINITE is not raised here: samplers check the row they use.
 */
LW_CHECK bool engine_pass_begin(Engine *engine, const Batch *batch, PassId *ret_pass, Error *error);
LW_CHECK bool engine_pass_run(Engine *engine, const WorkItem *item, Error *error);
LW_CHECK bool engine_pass_end(Engine *engine, PassId pass, float **ret_logits, Error *error);
/* Gives up a pass before its end; its sequences keep the tokens they had. */
void engine_pass_drop(Engine *engine, PassId pass);
/*
 * A batch from begin to end at once, what it appends being reserved: on a GPU one graph where each span is a row with
 * logits. After an error nothing has changed.
 */
LW_CHECK bool engine_step(Engine *engine, const Batch *batch, float **ret_logits, Error *error);
/*
 * Whether a step can bring digests; what it has brought of a row that asks for one, and the digest's list, until the
 * next pass ends: NULL: the row itself is among its logits.
 */
bool engine_makes_digests(const Engine *engine);
const RowDigest *engine_digest(const Engine *engine, uint32_t row, const DigestItem **ret_items);
/* Rows of the last step that came as digests: they are among its logits now. */
LW_CHECK bool engine_bring_rows(Engine *engine, const uint32_t *rows, uint32_t n, Error *error);

/*
 * Appends n tokens whose keys and values are random numbers, through the kernels that store and close pages: a depth to
 * measure at that no prefill has to reach first.
 */
LW_CHECK bool engine_seq_fill(Engine *engine, SeqId seq, uint32_t n_tokens, uint64_t seed, Error *error);

/*
 * One batch from reservation to logits, in a pass of its own: for those who run nothing beside it. A failure leaves the
 * sequences with the tokens that they had.
 */
LW_CHECK bool engine_forward(Engine *engine, const Batch *batch, float **ret_logits, Error *error);

/*
 * pulse(arg) is a sign of life, on the thread of the pass: after the embedding, after each layer and after the output
 * projection. NULL: none.
 */
void engine_set_pulse(Engine *engine, void (*pulse)(void *arg), void *arg);
/* trace(arg, ...) sees the attention of every layer; NULL: nobody does, at no cost. On a device steps are slower then.
 */
void engine_set_trace(Engine *engine, TraceCall trace, void *arg);
