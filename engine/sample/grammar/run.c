/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/run.h"

#include "base/array.h"
#include "base/numbers.h"

#include <stdlib.h>
#include <string.h>

/* A choice of many words needs a spot for each of their prefixes, and a row for most of them. */
enum { MAX_STACKS = 1 << 16, MAX_SPOTS = 1 << 15, MAX_MEMBERS = 1 << 20, MAX_ROW_BYTES = 8 << 20 };

/* ---- tables ---- */

/* Room for one more of size bytes in *array, of which max is the most; is_full without. */
static bool reserve(Run *run, void *array, uint32_t *capacity, uint32_t n, uint32_t more, uint32_t max, size_t size,
                    Error *error)
{
    if (array_reserve(array, capacity, (uint64_t)n + more, max, size)) return true;
    if (n + more <= max) return error_set(error, ERR_NO_MEMORY, "no memory to follow a grammar");
    run->is_full = true;
    return error_set(error, ERR_TOO_LARGE, "the text is nested too deeply, or in too many ways at once");
}

static bool no_memory(Error *error)
{
    return error_set(error, ERR_NO_MEMORY, "no memory to follow a grammar");
}

bool run_init(Run *run, const Automaton *automaton, const GrammarVocab *vocab, Error *error)
{
    Run made = {.automaton = automaton, .vocab = vocab};
    made.stacks = calloc(64, sizeof *made.stacks);
    made.spots = calloc(64, sizeof *made.spots);
    if (vocab) made.masks.path = calloc((size_t)vocab->max_depth + 1, sizeof *made.masks.path);
    if (!made.stacks || !made.spots || (vocab && !made.masks.path)) {
        run_done(&made);
        return no_memory(error);
    }
    made.max_stacks = made.max_spots = 64;
    made.n_stacks = STACK_OPEN + 1;
    made.n_spots = SPOT_LOST + 1;
    *run = made;
    return true;
}

static size_t id_table_bytes(const IdTable *table)
{
    return table->n_slots * sizeof *table->ids;
}

size_t run_size_bytes(const Run *run)
{
    const Masks *masks = &run->masks;
    size_t n_words = run->vocab ? run->vocab->n_words : 0;
    size_t row_bytes = run->automaton ? run->automaton->n_classes * sizeof *run->rows : 0;
    return run->max_stacks * sizeof *run->stacks + run->max_spots * sizeof *run->spots +
           run->max_members * sizeof *run->members + run->max_rows * row_bytes + run->max_marks * sizeof *run->marks +
           id_table_bytes(&run->by_stack) + id_table_bytes(&run->by_spot) + id_table_bytes(&masks->by_stack) +
           masks->max_tops * sizeof *masks->tops + masks->top_bytes +
           (masks->slots ? RUN_MASK_SLOTS * n_words * sizeof *masks->slots : 0) +
           (run->vocab ? ((size_t)run->vocab->max_depth + 1) * sizeof *masks->path : 0);
}

static void masks_done(Masks *masks)
{
    for (uint32_t i = 0; i < masks->n_tops; i++) {
        free(masks->tops[i].words);
        free(masks->tops[i].exits);
    }
    free(masks->tops);
    free(masks->slots);
    free(masks->path);
    id_table_done(&masks->by_stack);
}

void run_done(Run *run)
{
    masks_done(&run->masks);
    free(run->stacks);
    free(run->marks);
    free(run->spots);
    free(run->members);
    free(run->rows);
    id_table_done(&run->by_stack);
    id_table_done(&run->by_spot);
    *run = (Run){0};
}

void run_join(Run *run, RunUser *user, uint32_t spot)
{
    *user = (RunUser){.spot = spot, .next = run->users, .link = &run->users};
    if (user->next) user->next->link = &user->next;
    run->users = user;
}

void run_leave(RunUser *user)
{
    if (user->next) user->next->link = user->link;
    *user->link = user->next;
}

/* ---- stacks ---- */

static uint32_t hash_stack(Stack stack)
{
    uint32_t hash = stack.state * 0x9E3779B1u ^ stack.below * 0x85EBCA6Bu;
    return hash ^ hash >> 15;
}

static uint32_t hash_of_stack(const void *owner, uint32_t id)
{
    return hash_stack(((const Run *)owner)->stacks[id]);
}

static bool is_same_stack(const void *owner, uint32_t id, const void *key)
{
    const Stack *a = &((const Run *)owner)->stacks[id], *b = key;
    return a->state == b->state && a->below == b->below;
}

/* As many as there may be stacks. */
static bool reserve_marks(Run *run)
{
    uint32_t before = run->max_marks;
    if (before >= run->max_stacks) return true;
    uint32_t *marks = realloc(run->marks, run->max_stacks * sizeof *marks);
    if (!marks) return false;
    memset(marks + before, 0, (run->max_stacks - before) * sizeof *marks);
    run->marks = marks;
    run->max_marks = run->max_stacks;
    return true;
}

bool run_stack(Run *run, uint32_t state, uint32_t below, uint32_t *ret_stack, Error *error)
{
    Stack stack = {state, below};
    if (!id_table_reserve(&run->by_stack, hash_of_stack, run)) return no_memory(error);
    uint32_t *slot = id_table_find(&run->by_stack, hash_stack(stack), is_same_stack, run, &stack);
    if (!*slot) {
        if (!reserve(run, &run->stacks, &run->max_stacks, run->n_stacks, 1, MAX_STACKS, sizeof stack, error))
            return false;
        if (!reserve_marks(run)) return no_memory(error);
        run->stacks[run->n_stacks] = stack;
        id_table_fill(&run->by_stack, slot, run->n_stacks++);
    }
    *ret_stack = *slot - 1;
    return true;
}

/* ---- spots ---- */

typedef struct SpotKey {
    const uint32_t *members; /* [n] */
    uint32_t n;
    bool may_end, opens;
} SpotKey;

static uint32_t hash_of_spot(const void *owner, uint32_t id)
{
    return ((const Run *)owner)->spots[id].hash;
}

static bool is_same_spot(const void *owner, uint32_t id, const void *key)
{
    const Run *run = owner;
    const Spot *a = &run->spots[id];
    const SpotKey *b = key;
    return a->n == b->n && a->may_end == b->may_end && a->opens == b->opens &&
           (!a->n || !memcmp(&run->members[a->first], b->members, a->n * sizeof *b->members));
}

/* The members are sorted. */
static bool find_spot(Run *run, const SpotKey *key, uint32_t *ret_spot, Error *error)
{
    if (!key->n && !key->may_end && !key->opens) {
        *ret_spot = SPOT_DEAD;
        return true;
    }
    uint32_t hash = hash_bytes(2166136261u + key->may_end + 2 * key->opens, key->members, key->n * sizeof(uint32_t));
    if (!id_table_reserve(&run->by_spot, hash_of_spot, run)) return no_memory(error);
    uint32_t *slot = id_table_find(&run->by_spot, hash, is_same_spot, run, key);
    if (!*slot) {
        if (!reserve(run, &run->spots, &run->max_spots, run->n_spots, 1, MAX_SPOTS, sizeof(Spot), error) ||
            !reserve(run, &run->members, &run->max_members, run->n_members, key->n, MAX_MEMBERS, sizeof(uint32_t),
                     error))
            return false;
        if (key->n) memcpy(&run->members[run->n_members], key->members, key->n * sizeof(uint32_t));
        run->spots[run->n_spots] =
            (Spot){.first = run->n_members, .n = key->n, .hash = hash, .may_end = key->may_end, .opens = key->opens};
        run->n_members += key->n;
        id_table_fill(&run->by_spot, slot, run->n_spots++);
    }
    *ret_spot = *slot - 1;
    return true;
}

static void put(Run *run, uint32_t stack)
{
    if (run->marks[stack] == run->n_marks) return;
    run->marks[stack] = run->n_marks;
    if (run->n_closure == SPOT_MAX_STACKS)
        run->has_overflown = true;
    else
        run->closure[run->n_closure++] = stack;
}

static void begin_closure(Run *run)
{
    if (++run->n_marks == 0) {
        memset(run->marks, 0, run->max_marks * sizeof *run->marks);
        run->n_marks = 1;
    }
    run->n_closure = 0;
    run->has_overflown = false;
}

/* What the state on top calls, upon where it returns to. A state that only ends needs no place on the stack. */
static bool put_calls(Run *run, Stack stack, Error *error)
{
    const Automaton *automaton = run->automaton;
    const AutomatonState *at = &automaton->states[stack.state];
    for (uint32_t i = at[0].first_call; i < at[1].first_call; i++) {
        uint32_t below = stack.below, called, back = automaton->calls[i].to;
        if (!automaton_is_bare(automaton, back) && !run_stack(run, back, stack.below, &below, error)) return false;
        if (!run_stack(run, automaton->starts[automaton->calls[i].value], below, &called, error)) return false;
        put(run, called);
    }
    return true;
}

/* Follows calls and ends of rules from the closure in hand; keeps the stacks that read something. */
static bool close_spot(Run *run, uint32_t *ret_spot, Error *error)
{
    const Automaton *automaton = run->automaton;
    SpotKey key = {.members = run->closure};
    for (uint32_t i = 0; i < run->n_closure; i++) {
        Stack stack = run->stacks[run->closure[i]];
        if (!put_calls(run, stack, error)) return false;
        if (!automaton->states[stack.state].is_final) continue;
        if (stack.below == STACK_END)
            key.may_end = true;
        else if (stack.below == STACK_OPEN)
            key.opens = true;
        else
            put(run, stack.below);
    }
    run->masks.work += 1 + (uint64_t)RUN_STACK_WORK * run->n_closure;
    *ret_spot = SPOT_LOST;
    if (run->has_overflown) return true;
    for (uint32_t i = 0; i < run->n_closure; i++) {
        const AutomatonState *at = &automaton->states[run->stacks[run->closure[i]].state];
        bool reads = at[0].first_byte < at[1].first_byte || at[0].first_token < at[1].first_token;
        if (reads) run->closure[key.n++] = run->closure[i];
    }
    qsort(run->closure, key.n, sizeof *run->closure, compare_u32);
    return find_spot(run, &key, ret_spot, error);
}

bool run_spot_alone(Run *run, uint32_t stack, uint32_t *ret_spot, Error *error)
{
    return find_spot(run, &(SpotKey){.members = &stack, .n = 1}, ret_spot, error);
}

bool run_spot_from(Run *run, uint32_t stack, uint32_t *ret_spot, Error *error)
{
    begin_closure(run);
    put(run, stack);
    return close_spot(run, ret_spot, error);
}

/* ---- steps ---- */

static int compare_byte(const void *key, const void *item)
{
    uint8_t byte = *(const uint8_t *)key;
    const ByteEdge *edge = item;
    return byte < edge->first ? -1 : byte > edge->last;
}

static bool put_byte(Run *run, Stack stack, uint8_t byte, Error *error)
{
    const Automaton *automaton = run->automaton;
    const AutomatonState *at = &automaton->states[stack.state];
    const ByteEdge *edge = bsearch(&byte, &automaton->bytes[at[0].first_byte], at[1].first_byte - at[0].first_byte,
                                   sizeof *edge, compare_byte);
    uint32_t next;
    if (!edge) return true;
    if (!run_stack(run, edge->to, stack.below, &next, error)) return false;
    put(run, next);
    return true;
}

/* Room for a row of the spot. */
static bool make_row(Run *run, uint32_t spot, Error *error)
{
    size_t n_classes = run->automaton->n_classes, row_bytes = n_classes * sizeof *run->rows;
    if (run->spots[spot].row) return true;
    if (!reserve(run, &run->rows, &run->max_rows, run->n_rows, 1, (uint32_t)(MAX_ROW_BYTES / row_bytes), row_bytes,
                 error))
        return false;
    memset(&run->rows[run->n_rows * n_classes], 0, n_classes * sizeof *run->rows);
    run->spots[spot].row = ++run->n_rows;
    return true;
}

bool run_byte(Run *run, uint32_t spot, uint8_t byte, uint32_t *ret_spot, Error *error)
{
    const Automaton *automaton = run->automaton;
    uint32_t next = run_known(run, spot, byte);
    if (next == SPOT_UNKNOWN) {
        begin_closure(run);
        for (uint32_t i = 0; i < run->spots[spot].n; i++)
            if (!put_byte(run, run->stacks[run->members[run->spots[spot].first + i]], byte, error)) return false;
        if (!close_spot(run, &next, error) || !make_row(run, spot, error)) return false;
        run->rows[(size_t)(run->spots[spot].row - 1) * automaton->n_classes + automaton->class_of[byte]] = next;
    }
    *ret_spot = next;
    return true;
}

bool run_token(Run *run, uint32_t spot, uint32_t id, uint32_t *ret_spot, Error *error)
{
    const Automaton *automaton = run->automaton;
    begin_closure(run);
    for (uint32_t i = 0; i < run->spots[spot].n; i++) {
        Stack stack = run->stacks[run->members[run->spots[spot].first + i]];
        const AutomatonState *at = &automaton->states[stack.state];
        for (uint32_t j = at[0].first_token; j < at[1].first_token; j++) {
            uint32_t next;
            if (automaton->tokens[j].value != id) continue;
            if (!run_stack(run, automaton->tokens[j].to, stack.below, &next, error)) return false;
            put(run, next);
        }
    }
    return close_spot(run, ret_spot, error);
}

/* ---- forgetting ---- */

/* Stacks lie behind those below them, so one turn down marks all that is needed, and one turn up makes it again. */
static bool copy_stacks(const Run *run, Run *made, uint32_t *copies, Error *error)
{
    for (const RunUser *user = run->users; user; user = user->next) {
        const Spot *spot = &run->spots[user->spot];
        for (uint32_t i = 0; i < spot->n; i++) copies[run->members[spot->first + i]] = 1;
    }
    for (uint32_t i = run->n_stacks; i-- > STACK_OPEN + 1;)
        if (copies[i]) copies[run->stacks[i].below] = 1;
    copies[STACK_END] = STACK_END;
    copies[STACK_OPEN] = STACK_OPEN;
    for (uint32_t i = STACK_OPEN + 1; i < run->n_stacks; i++)
        if (copies[i] && !run_stack(made, run->stacks[i].state, copies[run->stacks[i].below], &copies[i], error))
            return false;
    return true;
}

static bool copy_spot(const Run *run, Run *made, const uint32_t *copies, uint32_t id, uint32_t *ret_spot, Error *error)
{
    const Spot *spot = &run->spots[id];
    for (uint32_t i = 0; i < spot->n; i++) made->closure[i] = copies[run->members[spot->first + i]];
    qsort(made->closure, spot->n, sizeof *made->closure, compare_u32);
    SpotKey key = {made->closure, spot->n, spot->may_end, spot->opens};
    return find_spot(made, &key, ret_spot, error);
}

bool run_compact(Run *run, Error *error)
{
    Run made;
    uint32_t n_users = 0, i = 0;
    for (const RunUser *user = run->users; user; user = user->next) n_users++;
    if (!run_init(&made, run->automaton, run->vocab, error)) return false;
    uint32_t *copies = calloc(run->n_stacks, sizeof *copies), *spots = calloc((size_t)n_users + 1, sizeof *spots);
    bool ok = copies && spots;
    if (!ok) (void)no_memory(error);
    ok = ok && copy_stacks(run, &made, copies, error);
    for (const RunUser *user = run->users; ok && user; user = user->next)
        ok = copy_spot(run, &made, copies, user->spot, &spots[i++], error);
    if (ok) {
        RunUser *users = run->users;
        i = 0;
        for (RunUser *user = users; user; user = user->next) user->spot = spots[i++];
        run_done(run);
        *run = made;
        run->users = users;
        if (users) users->link = &run->users;
    } else {
        run_done(&made);
    }
    free(copies);
    free(spots);
    return ok;
}
