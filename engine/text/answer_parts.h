/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an answer's text turned out to be, piece by piece: one text, and the kinds of its runs in order. A call of a
 * tool is a run with its name, then runs of its arguments, which joined are JSON. An error stays until it is asked for.
 * One thread at a time.
 */
#pragma once
#include "base/buffer.h"

/*
 * Where a mark of the answer's form is a control token, it comes as this byte, which no text has, and its number: so a
 * model's plain text is never taken for it. Neither of them is ever part of an answer.
 */
#define ANSWER_CONTROL '\xFF'

typedef enum PartKind { PART_CONTENT, PART_REASONING, PART_CALL, PART_ARGUMENTS } PartKind;

typedef struct AnswerPart {
    PartKind kind;
    uint32_t n_bytes;
} AnswerPart;

/* Init with answer_parts_init. Neighbours of one kind are one run, but for PART_CALL: each is a call of its own. */
typedef struct AnswerParts {
    Buffer text;       /* all runs */
    AnswerPart *items; /* [n] */
    uint32_t n, capacity;
    bool is_in_control; /* the number of a mark comes next */
    Error error;        /* the first failure; code ERR_NONE: none */
} AnswerParts;

void answer_parts_init(AnswerParts *parts, size_t max_bytes);
void answer_parts_done(AnswerParts *parts);
/* Keeps the memory; forgets an error. */
void answer_parts_clear(AnswerParts *parts);
void answer_parts_add(AnswerParts *parts, PartKind kind, const char *text, size_t n);
/* The bytes as they stand in a JSON string, without quotes. */
void answer_parts_add_escaped(AnswerParts *parts, PartKind kind, const char *text, size_t n);
/* Did everything succeed? */
LW_CHECK bool answer_parts_end(const AnswerParts *parts, Error *error);
