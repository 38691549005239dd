/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sampling needs of rows of logits, where a device computes them: the best token, the mass of all, the token that
 * a number falls on, and those that may be left after cuts. A few KiB a row, so that the rows themselves stay where
 * they are; everything is exact (token_weight.h), and a row's digest does not depend on the rows beside it.
 */
#pragma once
#include "base/host_device.h"
#include "kernels/stream.h"
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

enum {
    DIGEST_LIST = 1024,     /* items that a list has room for */
    DIGEST_MOST_BEST = 512, /* the most of n_best */
    DIGEST_SPAN = 512,      /* ids in a row, of which every ... */
    DIGEST_STEP = 16,       /* ... 16th are a group: 16 groups of 32 ids */
};

/*
 * A change of one logit before anything else: l + bias, then by the repetition penalty (a quotient where it is > 0, a
 * product where not), then less 'less', then less 'again', each rounded. 0, 1, 0, 0 change nothing; a bias of -INFINITY
 * is a ban.
 */
typedef struct DigestEdit {
    uint32_t id;
    float bias, repetition, less, again;
} DigestEdit;

LW_INLINE float digest_edited(float l, const DigestEdit *edit)
{
#ifdef __CUDA_ARCH__
    l = __fadd_rn(l, edit->bias);
    l = l > 0 ? __fdiv_rn(l, edit->repetition) : __fmul_rn(l, edit->repetition);
    return __fsub_rn(__fsub_rn(l, edit->less), edit->again);
#else
    l = l + edit->bias;
    l = l > 0 ? l / edit->repetition : l * edit->repetition;
    return l - edit->less - edit->again;
#endif
}

/* What is wanted of a row. */
typedef struct DigestAsk {
    bool is_wanted; /* else the row has no digest */
    bool wants_draw, wants_plain_mass;
    float temperature; /* of the mass and the draw; 0: neither is wanted */
    uint32_t n_best;   /* so many groups have an id in the list; 0: no list */
    double draw;       /* in [0, 1) */
    /* Where it is computed. All below is of the changed row; is_bad is true also of what changes or the mask hide. */
    const DigestEdit *edits; /* [n_edits] of ids of their own */
    uint32_t n_edits;
    const uint64_t *mask; /* [n_vocab / 64, rounded up] only ids whose bit is set are left; NULL: all */
} DigestAsk;

typedef struct RowDigest {
    uint64_t mass, plain_mass; /* of all weights, at the temperature and at 1; 0: not asked for */
    float max;                 /* -INFINITY: no id is left, and nothing below means anything */
    uint32_t best;             /* the first id of the largest logit */
    bool is_bad;               /* NaN or +INFINITY is in the row, and nothing else here means anything */
    uint32_t n_listed;         /* above DIGEST_LIST: too many, the list is worth nothing */
    float least;               /* every id that is not listed has a logit below, or -INFINITY */
    uint32_t drawn;            /* the first id at which the running mass passes token_mass_share(mass, draw) */
    float drawn_logit;
} RowDigest;

typedef struct DigestItem {
    uint32_t id;
    float logit;
} DigestItem;

typedef struct DigestParams {
    float *logits; /* [n_rows, n_vocab]; edits change them */
    uint32_t n_rows, n_vocab;
    uint32_t max_rows;     /* GPU: what scratch is for */
    bool has_edits;        /* GPU: some row has */
    const DigestAsk *asks; /* [n_rows] */
    /* GPU: these two may lie in pinned host memory. */
    RowDigest *digests; /* [n_rows] */
    DigestItem *items;  /* [n_rows, DIGEST_LIST] lists by rising id: logits of at least 'least', -INFINITY left out */
    void *scratch;      /* GPU: digest_scratch_bytes, zeros before the first call, its own */
} DigestParams;

/* Groups of a row: 'least' is the n_best-th largest of their maxima, or -INFINITY where there are fewer. */
LW_INLINE uint32_t digest_groups(uint32_t n_vocab)
{
    return (n_vocab + DIGEST_SPAN - 1) / DIGEST_SPAN * DIGEST_STEP;
}

size_t digest_scratch_bytes(uint32_t max_rows, uint32_t n_vocab); /* in a build with CUDA */

/* False: no row, no id, more of them than TOKEN_MAX_VOCAB, or an n_best above DIGEST_MOST_BEST; or no memory. */
bool digest_ref(const DigestParams *params);
/* The same; what the asks say is not checked, which lie on the device. At most 65,535 rows. */
bool digest_cuda(const DigestParams *params, Stream stream);

#ifdef __cplusplus
}
#endif
