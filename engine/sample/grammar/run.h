/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where texts are in a grammar. A stack is a list of states: the one that reads on top, below it those to which the
 * rules return. Equal stacks are one, so are equal sets of stacks (a spot: all ways that a text may have gone), and
 * what a byte makes of a spot is remembered. Tables grow up to a limit; then all but the spots of users is forgotten.
 * Private to engine/sample/grammar; one thread at a time.
 */
#pragma once
#include "engine/sample/grammar/automaton.h"
#include "engine/sample/grammar/vocab_impl.h"

enum {
    STACK_END = 0,  /* below the root rule: when it ends, the text does */
    STACK_OPEN = 1, /* whatever is below: what is known of the top of a stack alone ends so */
    SPOT_UNKNOWN = 0,
    SPOT_DEAD = 1, /* no stack reads the byte */
    SPOT_LOST = 2, /* there are more than SPOT_MAX_STACKS: what follows is not known, and not allowed */
    SPOT_MAX_STACKS = 512,
    RUN_MASK_SLOTS = 32,
    RUN_MAX_TOP_BYTES = 8 << 20,
    RUN_STACK_WORK = 4,
};

typedef struct Stack {
    uint32_t state, below;
} Stack;

typedef struct Spot {
    uint32_t first, n; /* of its stacks */
    uint32_t hash;
    uint32_t row;  /* index + 1 of its row of next spots; 0: none yet */
    uint32_t slot; /* index + 1 of its mask; 0: none */
    bool may_end;  /* the root rule may end here */
    bool opens;    /* STACK_OPEN was reached: what is below it may go on */
} Spot;

/* Tokens that the top of a stack decides: mask.c */
typedef struct TopMask {
    uint32_t stack;
    uint32_t n_exits;
    uint64_t *words; /* [n_words]; NULL: too many tokens leave this top */
    uint32_t *exits; /* [n_exits] nodes of the trie at which all of it has ended */
} TopMask;

typedef struct Masks {
    uint64_t *slots; /* [RUN_MASK_SLOTS][n_words]; NULL before the first */
    uint32_t counts[RUN_MASK_SLOTS], spot_of[RUN_MASK_SLOTS], next_slot;
    uint32_t *path; /* [max_depth + 1] spots on the way through the trie */
    TopMask *tops;  /* [n_tops] */
    uint32_t n_tops, max_tops;
    IdTable by_stack;
    size_t top_bytes;
    uint64_t work;     /* ever: nodes of the trie that were visited, and RUN_STACK_WORK for a stack of a new spot */
    uint64_t max_work; /* what it may become by the mask in hand */
} Masks;

/* Who is somewhere: a link of the run's list. */
typedef struct RunUser RunUser;
struct RunUser {
    uint32_t spot;
    RunUser *next, **link;
};

typedef struct Run {
    const Automaton *automaton;
    const GrammarVocab *vocab; /* NULL: no masks */
    Stack *stacks;             /* [n_stacks] */
    Spot *spots;               /* [n_spots] */
    uint32_t *members;         /* [n_members] stacks of spots, sorted */
    uint32_t *rows;            /* [n_rows][automaton->n_classes] */
    uint32_t n_stacks, max_stacks, n_spots, max_spots, n_members, max_members, n_rows, max_rows;
    IdTable by_stack, by_spot;
    uint32_t *marks; /* [n_stacks] the last closure that holds each */
    uint32_t n_marks, max_marks;
    uint32_t closure[SPOT_MAX_STACKS]; /* [n_closure] */
    uint32_t n_closure;
    bool has_overflown; /* the closure */
    bool is_full;       /* why something failed: run_compact may help */
    Masks masks;
    RunUser *users;
} Run;

LW_CHECK bool run_init(Run *run, const Automaton *automaton, const GrammarVocab *vocab, Error *error);
void run_done(Run *run);
/* What its tables take. */
size_t run_size_bytes(const Run *run);
void run_join(Run *run, RunUser *user, uint32_t spot);
void run_leave(RunUser *user);

/* The stack of a state upon another. */
LW_CHECK bool run_stack(Run *run, uint32_t state, uint32_t below, uint32_t *ret_stack, Error *error);
/* This stack alone, without what can be reached from it. */
LW_CHECK bool run_spot_alone(Run *run, uint32_t stack, uint32_t *ret_spot, Error *error);
/* All that can be reached from a stack without a byte. */
LW_CHECK bool run_spot_from(Run *run, uint32_t stack, uint32_t *ret_spot, Error *error);
/* One byte, one token further; SPOT_DEAD, SPOT_LOST: there is no way. */
LW_CHECK bool run_byte(Run *run, uint32_t spot, uint8_t byte, uint32_t *ret_spot, Error *error);
LW_CHECK bool run_token(Run *run, uint32_t spot, uint32_t id, uint32_t *ret_spot, Error *error);
/* Forgets all but the spots of users, which get other numbers. */
LW_CHECK bool run_compact(Run *run, Error *error);

/* Does a text go on there? */
static inline bool spot_lives(uint32_t spot)
{
    return spot > SPOT_LOST;
}

/* run_byte, if it is known already. */
static inline uint32_t run_known(const Run *run, uint32_t spot, uint8_t byte)
{
    const Automaton *automaton = run->automaton;
    uint32_t row = run->spots[spot].row;
    return row ? run->rows[(size_t)(row - 1) * automaton->n_classes + automaton->class_of[byte]] : SPOT_UNKNOWN;
}
