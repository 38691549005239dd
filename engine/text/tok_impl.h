/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the tokenizer share; nobody else includes it. A tokenizer model (the value of tokenizer.ggml.model)
 * is one row of a table: it loads its own tables beside the vocabulary, encodes plain text and gives a token's bytes.
 */
#pragma once
#include "base/arena.h"
#include "engine/text/tokenizer.h"

enum {
    TOK_MAX_VOCAB = 1 << 21,
    TOK_MAX_MERGES = 1 << 23,
    TOK_MAX_TEXT_BYTES = UINT16_MAX, /* of one token */
    TOK_MAX_SPECIAL_BYTES = 512,     /* of one special token: bounds the work at each byte of a text */
    TOK_MAX_SPM_BYTES = 1024,        /* of one token that merges make: bounds the work of a merge */
    TOK_MAX_WORD_BYTES = 4 << 20,    /* of text without a break: bounds the memory, 40 bytes each */
    TOK_MAX_PATTERNS = 8,            /* of one pre-tokenizer */
    TOK_MAX_PROBES = 1024,           /* in a hash table, so that a hostile vocabulary cannot make it a list */
};

/* The numbers of tokenizer.ggml.token_type. */
typedef enum TokType {
    TOK_UNDEFINED,
    TOK_NORMAL,
    TOK_UNKNOWN,
    TOK_CONTROL,
    TOK_USER_DEFINED,
    TOK_UNUSED,
    TOK_BYTE,
    TOK_TYPES
} TokType;

typedef struct TokText {
    const char *data;
    size_t n;
} TokText;

/* Texts stay in the GGUF mapping; the table of slots finds an id by its text. */
typedef struct TokVocab {
    const char *base; /* start of the string array in the mapping */
    uint32_t n;
    uint32_t *offset; /* [n] from base */
    uint16_t *length; /* [n] bytes */
    uint8_t *type;    /* [n] TokType */
    bool *ends;       /* [n] generation stops at it */
    uint32_t *slots;  /* [mask + 1] id + 1, 0: free; empty texts are not in it */
    uint32_t mask;
    uint32_t max_length; /* bytes of the longest text */
    uint32_t bos, eos;   /* TOK_NONE: none */
    bool add_bos, add_eos;
} TokVocab;

/* Control and user-defined tokens sorted by text, so that a walk over a text narrows a range of them byte by byte. */
typedef struct TokSpecials {
    uint32_t *ids; /* [n] */
    uint32_t n;
    uint32_t first[257]; /* ids[first[b] .. first[b + 1]) begin with byte b */
} TokSpecials;

typedef struct TokPre TokPre;

typedef struct TokMerge {
    uint32_t left, right, result;
} TokMerge;

typedef struct TokBpe {
    TokPre *pre;
    bool ignore_merges;    /* a word that is a token as a whole is that token, whatever the merges say */
    uint16_t written[256]; /* the code point that stands for a byte in the file */
    int16_t byte_of[324];  /* the other way round, -1: none */
    uint32_t byte_id[256]; /* TOK_NONE where the vocabulary has no token for a byte */
    TokMerge *merges;      /* [n_merges] by rank */
    uint32_t n_merges;
    uint32_t *slots; /* [mask + 1] rank + 1, 0: free */
    uint32_t mask;
} TokBpe;

typedef struct TokSpm {
    uint32_t *order;       /* [vocabulary] the lower, the higher the token's score */
    uint32_t byte_id[256]; /* TOK_NONE where the vocabulary has no token for a byte */
    uint32_t unknown;      /* what a character becomes then */
    bool add_blank;        /* before each text, and after each special token */
    bool joins[256];       /* some token has a blank after this byte */
} TokSpm;

typedef struct TokModel {
    const char *name;
    bool (*load)(Tokenizer *tokenizer, const Gguf *gguf, Error *error);
    void (*done)(Tokenizer *tokenizer);
    /* text: valid UTF-8 without special tokens; goes_on: directly behind other text */
    bool (*encode)(const Tokenizer *tokenizer, const char *text, size_t n, bool goes_on, TokenList *list, Error *error);
    /* At most 'length' of the vocabulary bytes, of a token that is neither special nor user-defined. */
    size_t (*bytes)(const Tokenizer *tokenizer, uint32_t id, uint8_t *out);
} TokModel;

extern const TokModel tok_model_bpe, tok_model_spm;

struct Tokenizer {
    Arena arena;
    const TokModel *model;
    TokVocab vocab;
    TokSpecials specials;
    TokBpe bpe;
    TokSpm spm;
};

/* tok_vocab.c */
LW_CHECK bool tok_vocab_load(TokVocab *vocab, Arena *arena, const Gguf *gguf, Error *error);
/* After the model's defaults are known. */
LW_CHECK bool tok_vocab_load_rules(TokVocab *vocab, const Gguf *gguf, Error *error);
TokText tok_text(const TokVocab *vocab, uint32_t id);
/* The id whose text is the two parts joined, or TOK_NONE. */
uint32_t tok_vocab_find(const TokVocab *vocab, TokText first, TokText second);
/* A power of two that is at least twice n, less one. */
uint32_t tok_table_mask(uint32_t n);

/* tok_special.c */
LW_CHECK bool tok_specials_load(TokSpecials *specials, const TokVocab *vocab, Arena *arena, Error *error);
typedef struct TokHit {
    size_t start, end;
    uint32_t id;
} TokHit;
/* The first special token at or after 'from', the longest one there; false: none. *range moves forward over trusted. */
bool tok_specials_next(const Tokenizer *tokenizer, const TokEncode *in, size_t from, size_t *range, TokHit *ret_hit);

/* tok_pre.c: splits text into words, within which merges happen. */
typedef struct TokPreRow {
    const char *name;                       /* tokenizer.ggml.pre */
    const char *patterns[TOK_MAX_PATTERNS]; /* each splits what the ones before left; NULL ends them */
    bool ignore_merges, adds_bos;
} TokPreRow;
LW_CHECK bool tok_pre_find(GgufString name, const TokPreRow **ret_row, Error *error);
LW_CHECK bool tok_pre_new(const TokPreRow *row, TokPre **ret_pre, Error *error);
void tok_pre_free(TokPre *pre);
typedef bool (*TokWordFn)(void *arg, const char *word, size_t n, Error *error);
/* text: valid UTF-8; the words joined are the text. */
LW_CHECK bool tok_pre_split(const TokPre *pre, const char *text, size_t n, TokWordFn on_word, void *arg, Error *error);
