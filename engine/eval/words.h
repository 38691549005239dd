/* SPDX-License-Identifier: Apache-2.0 */
/* What made-up texts are made of: lists of plain words, and sentences of them. Immutable. */
#pragma once
#include "base/buffer.h"
#include "base/rng.h"

typedef struct WordList {
    const char *const *words;
    uint32_t n;
} WordList;

extern const WordList words_names, words_adjectives, words_nouns, words_foods;
extern const WordList words_facts; /* what can have a number: "the pass key of the vault" */

static inline const char *words_pick(const WordList *list, Rng *rng)
{
    return list->words[rng_below(rng, list->n)];
}

/* Appends one line, its end included. prose: a new sentence each time; noise: one of few that mean nothing. */
LW_CHECK bool words_prose(Rng *rng, Buffer *out, Error *error);
LW_CHECK bool words_noise(Rng *rng, Buffer *out, Error *error);
