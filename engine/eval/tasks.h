/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Retrieval tasks in RULER's style, made from a seed: what is asked for stands somewhere in a long prompt, and many
 * questions are asked about one prompt. Knobs make a task easier or harder, so that small models can be told apart.
 */
#pragma once
#include "engine/eval/haystack.h"

enum { TASK_MAX_TEXT = 96 };

typedef struct TaskKnobs {
    uint32_t digits;      /* of a number that is asked for */
    uint32_t distractors; /* lines like those of a question that nobody asks for, for each question */
    uint32_t hops;        /* variables: names between the one that is asked for and its number */
    uint32_t repeats;     /* words: how often the common one comes; else: how often a needle is said */
    uint32_t near;        /* 1: the lines of a needle stand together; 0: all but the first somewhere behind it */
    uint32_t needles;     /* in a prompt; questions ask for each several times, in other words; 0: one a question */
} TaskKnobs;

typedef struct TaskKind TaskKind;

typedef struct TaskSpec {
    const TaskKind *kind;
    TaskKnobs knobs;
    char text[TASK_MAX_TEXT]; /* as it was asked for, "passkey:digits=5" */
} TaskSpec;

/* NAME[:KNOB=N...], of n bytes; names and knobs are those of the tables in tasks.c. An error names tasks. */
LW_CHECK bool task_parse(const char *text, size_t n, TaskSpec *ret_spec, Error *error);

typedef struct TaskInput {
    const Tokenizer *tokenizer;
    const PromptFrame *frame;
    const TaskSpec *spec;
    uint64_t seed;
    uint32_t n_tokens; /* haystack, question and answer */
    uint32_t n_questions;
    uint32_t haystack; /* which of those of this length */
} TaskInput;

/* The same input makes the same prompt. Needles are spread evenly over all depths. */
LW_CHECK bool task_make(const TaskInput *input, Haystack *ret_haystack, Error *error);
