/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What has been computed before: a radix tree over pages, by (policy, salt, token ids). A node is one page of a class
 * set: a full page, or, as a leaf, an open one. The tree owns one reference of every page that it keeps; pages of
 * windowed classes are kept only where a checkpoint (the end of a message or of a run, every 4K tokens) needs them. KV
 * facts 5, 6. Engine thread.
 */
#pragma once
#include "engine/engine.h"
#include "scheduler/prefix_end.h"

typedef struct PrefixCache PrefixCache;

typedef struct PrefixParams {
    Engine *engine;
    uint32_t max_nodes;
    uint64_t max_idle_bytes;      /* of pages that no cursor keeps; 0: any number */
    bool exact;                   /* decoded runs of policies that tell decode from prefill never match */
    uint64_t (*clock_usec)(void); /* monotonic: what is used decays with time */
} PrefixParams;

enum {
    PREFIX_MAX_SALT_BYTES = 248,     /* what is longer never matches */
    PREFIX_CHECKPOINT_TOKENS = 4096, /* at every multiple of it is a checkpoint */
};

typedef struct PrefixKey {
    PolicyId policy;
    const char *salt; /* [n_salt]; may be NULL when n_salt is 0 */
    uint32_t n_salt;
} PrefixKey;

/* Where a live sequence stands in the tree: keeps its node, and with it the path there, from eviction. */
typedef struct PrefixCursor {
    uint32_t node, n_tokens; /* n_tokens: of the path, a multiple of KV_PAGE_TOKENS */
    PolicyId policy;
    uint32_t n_prefilled; /* leading tokens whose pages are those of a prefill; UINT32_MAX: all so far */
    uint32_t n_known;     /* tokens that the tree knew at the start, usable or not: the next one is where it diverged */
} PrefixCursor;

LW_CHECK bool prefix_cache_new(const PrefixParams *params, PrefixCache **ret_cache, Error *error);
void prefix_cache_free(PrefixCache *cache); /* NULL is fine; unrefs all pages; no cursor is open */

/*
 * The longest usable prefix of tokens [n_tokens] (pass n_prompt - 1, so that a row is left to compute): *ret_n tokens,
 * whose pages are *ret_sets (valid until the next call, for engine_seq_adopt); opens a cursor at its last full page.
 * Never fails: nothing usable is 0.
 */
void prefix_cache_open(PrefixCache *cache, const PrefixKey *key, const uint32_t *tokens, uint32_t n_tokens,
                       PrefixCursor *ret_cursor, const PageSet **ret_sets, uint32_t *ret_n, PrefixEnd *ret_end);
/* Another cursor at the same place, for a fork of the sequence. */
PrefixCursor prefix_cache_fork(PrefixCache *cache, const PrefixCursor *cursor);
/*
 * The sequence now holds tokens [n_tokens]: publishes its pages that became full, and moves the cursor on. Tokens from
 * n_prefilled on were decoded. Where another sequence published the
 * same tokens first, the cursor moves onto that node. Call it after every pass: the sequence drops pages of windowed
 * classes as it goes on, and what it dropped can no longer be published.
 */
typedef struct PrefixRun {
    SeqId seq;
    const PageSet *sets;    /* [ceil(n_tokens / KV_PAGE_TOKENS)] the pages of no sequence; NULL: those of seq */
    const uint32_t *tokens; /* [n_tokens] all of the sequence */
    uint32_t n_tokens, n_prefilled;
    const uint32_t *checkpoints; /* [n_checkpoints] ascending positions */
    uint32_t n_checkpoints;
} PrefixRun;
void prefix_cache_extend(PrefixCache *cache, PrefixCursor *cursor, const PrefixRun *run);
/* The same, then the open page too, and its end as a checkpoint; closes the cursor. seq is still open. */
void prefix_cache_finish(PrefixCache *cache, PrefixCursor *cursor, const PrefixRun *run);
/* Neither finished nor closed, and its key can be kept. */
bool prefix_cursor_is_open(const PrefixCursor *cursor);
/* Closes the cursor; what was published stays, the last full page as a checkpoint. */
void prefix_cache_close(PrefixCache *cache, PrefixCursor *cursor);
/* Gives up the pages least worth keeping; false: nothing that nobody stands on is left. */
LW_CHECK bool prefix_cache_evict(PrefixCache *cache);

/* What prefix_cache_evict gives up before it fails, in bytes; a page that a sequence has too counts, but stays. */
uint64_t prefix_cache_idle_bytes(const PrefixCache *cache);
uint64_t prefix_cache_max_idle_bytes(const PrefixCache *cache); /* UINT64_MAX: any number */
/*
 * Gives up what must go for n new pages to find a place among the nodes, and so many bytes of them among those that no
 * cursor keeps; false: there is none.
 */
LW_CHECK bool prefix_cache_make_room(PrefixCache *cache, uint32_t n, uint64_t bytes);

typedef struct PrefixStats {
    uint64_t looked_up_tokens, evicted_pages; /* looked up: also for those that had to wait then */
    uint32_t n_nodes, n_pages; /* nodes with pages; pages that the tree owns */
} PrefixStats;
PrefixStats prefix_cache_stats(const PrefixCache *cache);
