/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/mask.h"

#include <stdlib.h>
#include <string.h>

static bool no_memory(Error *error)
{
    return error_set(error, ERR_NO_MEMORY, "no memory for masks of a grammar");
}

/* ---- walks through the trie ---- */

typedef struct Walk {
    uint64_t *words;    /* tokens that are allowed are added */
    uint32_t max_nodes; /* 0: no limit */
    uint32_t *exits;    /* [max_exits] */
    uint32_t n_exits, max_exits;
    bool is_cut; /* a limit was reached: words are not complete */
} Walk;

static void allow(const GrammarVocab *vocab, const TrieNode *node, uint64_t *words)
{
    for (uint32_t i = node[0].first_token; i < node[1].first_token; i++)
        words[vocab->tokens[i] / 64] |= UINT64_C(1) << vocab->tokens[i] % 64;
}

/* All that lies below a node of the trie, whose text has led to the spot. */
static bool walk_below(Run *run, Walk *walk, uint32_t from, uint32_t spot, Error *error)
{
    const GrammarVocab *vocab = run->vocab;
    uint32_t *path = run->masks.path, end = vocab->nodes[from].after, n = 0;
    path[vocab->nodes[from].depth] = spot;
    for (uint32_t i = from + 1; i < end; n++) {
        const TrieNode *node = &vocab->nodes[i];
        uint32_t before = path[node->depth - 1], next = run_known(run, before, node->byte);
        if (next == SPOT_UNKNOWN && !run_byte(run, before, node->byte, &next, error)) return false;
        if (walk->max_nodes && n == walk->max_nodes) {
            walk->is_cut = true;
            break;
        }
        if (next == SPOT_DEAD) {
            i = node->after;
            continue;
        }
        path[node->depth] = next;
        allow(vocab, node, walk->words);
        if (run->spots[next].opens && node->after > i + 1) {
            if (walk->n_exits == walk->max_exits) {
                walk->is_cut = true;
                break;
            }
            walk->exits[walk->n_exits++] = i;
        }
        i = run->spots[next].n ? i + 1 : node->after;
    }
    run->masks.n_visited += n;
    return true;
}

/* ---- what the top of a stack decides ---- */

static uint32_t hash_id(uint32_t id)
{
    id *= 0x9E3779B1u;
    return id ^ id >> 15;
}

static uint32_t hash_of_top(const void *owner, uint32_t id)
{
    return hash_id(((const Masks *)owner)->tops[id].stack);
}

static bool is_same_top(const void *owner, uint32_t id, const void *key)
{
    return ((const Masks *)owner)->tops[id].stack == *(const uint32_t *)key;
}

static void forget_tops(Masks *masks)
{
    for (uint32_t i = 0; i < masks->n_tops; i++) {
        free(masks->tops[i].words);
        free(masks->tops[i].exits);
    }
    id_table_done(&masks->by_stack);
    masks->n_tops = 0;
    masks->top_bytes = 0;
}

/* Room for one more. */
static bool reserve_top(Masks *masks, Error *error)
{
    if (masks->n_tops == masks->max_tops) {
        uint32_t max = masks->max_tops ? masks->max_tops * 2 : 16;
        TopMask *tops = realloc(masks->tops, max * sizeof *tops);
        if (!tops) return no_memory(error);
        masks->tops = tops;
        masks->max_tops = max;
    }
    return id_table_reserve(&masks->by_stack, hash_of_top, masks) || no_memory(error);
}

/* The words and exits of a stack that ends with STACK_OPEN or, is_whole, with the text. */
static bool fill_top(Run *run, TopMask *top, bool is_whole, Error *error)
{
    uint32_t spot;
    Walk walk = {.max_exits = is_whole ? 0 : MASK_MAX_EXITS};
    walk.words = calloc(run->vocab->n_words, sizeof *walk.words);
    walk.exits = malloc((walk.max_exits + 1) * sizeof *walk.exits);
    bool ok = walk.words && walk.exits;
    if (!ok) (void)no_memory(error);
    ok = ok && run_spot_alone(run, top->stack, &spot, error) && walk_below(run, &walk, 0, spot, error);
    if (!ok || walk.is_cut) {
        free(walk.words);
        free(walk.exits);
        walk = (Walk){0};
    }
    if (walk.exits && walk.n_exits < walk.max_exits) {
        uint32_t *fitting = realloc(walk.exits, (walk.n_exits + 1) * sizeof *fitting);
        if (fitting) walk.exits = fitting;
    }
    top->words = walk.words;
    top->exits = walk.exits;
    top->n_exits = walk.n_exits;
    return ok;
}

/* *ret_top: valid until the next call. */
static bool find_top(Run *run, uint32_t stack, bool is_whole, const TopMask **ret_top, Error *error)
{
    Masks *masks = &run->masks;
    if (!reserve_top(masks, error)) return false;
    uint32_t *slot = id_table_find(&masks->by_stack, hash_id(stack), is_same_top, masks, &stack);
    if (!*slot) {
        TopMask made = {.stack = stack};
        if (!fill_top(run, &made, is_whole, error)) return false;
        size_t bytes = (made.words ? run->vocab->n_words * sizeof *made.words : 0) + made.n_exits * sizeof *made.exits;
        if (masks->top_bytes + bytes > RUN_MAX_TOP_BYTES) {
            forget_tops(masks);
            if (!reserve_top(masks, error)) {
                free(made.words);
                free(made.exits);
                return false;
            }
            slot = id_table_find(&masks->by_stack, hash_id(stack), is_same_top, masks, &stack);
        }
        masks->top_bytes += bytes;
        masks->tops[masks->n_tops] = made;
        id_table_fill(&masks->by_stack, slot, masks->n_tops++);
    }
    *ret_top = &masks->tops[*slot - 1];
    return true;
}

/* The first n states of a stack upon STACK_OPEN, or all of it when it has no more. *ret_rest: what is below them. */
static bool cut_top(Run *run, uint32_t stack, uint32_t n, uint32_t *ret_top, uint32_t *ret_rest, Error *error)
{
    uint32_t states[MASK_MAX_TOP], at = stack, top = STACK_OPEN;
    for (uint32_t i = 0; i < n; i++) {
        if (at <= STACK_OPEN) break;
        states[i] = run->stacks[at].state;
        at = run->stacks[at].below;
    }
    *ret_rest = at;
    if (at <= STACK_OPEN) {
        *ret_top = stack;
        return true;
    }
    for (uint32_t i = n; i-- > 0;)
        if (!run_stack(run, states[i], top, &top, error)) return false;
    *ret_top = top;
    return true;
}

/* The tokens that leave the top, as far as what is below goes along. */
static bool walk_exits(Run *run, const TopMask *top, uint32_t rest, uint64_t *words, Error *error)
{
    Walk walk = {.words = words};
    uint32_t spot;
    if (rest <= STACK_OPEN || !top->n_exits) return true;
    if (!run_spot_from(run, rest, &spot, error)) return false;
    if (spot == SPOT_DEAD) return true;
    for (uint32_t i = 0; i < top->n_exits; i++)
        if (!walk_below(run, &walk, top->exits[i], spot, error)) return false;
    return true;
}

static bool add_stack(Run *run, uint32_t stack, uint64_t *words, Error *error)
{
    const TopMask *top = NULL;
    uint32_t cut = stack, rest = STACK_END;
    for (uint32_t n = 1; n <= MASK_MAX_TOP; n++) {
        if (!cut_top(run, stack, n, &cut, &rest, error) || !find_top(run, cut, rest == STACK_END, &top, error))
            return false;
        if (top->words) break;
    }
    if (!top->words && !find_top(run, stack, true, &top, error)) return false;
    for (uint32_t i = 0; i < run->vocab->n_words; i++) words[i] |= top->words[i];
    return walk_exits(run, top, top->stack == stack ? STACK_END : rest, words, error);
}

/* ---- masks of spots ---- */

static void allow_tokens(const Run *run, uint32_t stack, uint64_t *words)
{
    const Automaton *automaton = run->automaton;
    const AutomatonState *at = &automaton->states[run->stacks[stack].state];
    for (uint32_t i = at[0].first_token; i < at[1].first_token; i++) {
        uint32_t id = automaton->tokens[i].value;
        if (id < run->vocab->n_vocab) words[id / 64] |= UINT64_C(1) << id % 64;
    }
}

static bool fill_mask(Run *run, uint32_t spot, uint64_t *words, Error *error)
{
    size_t n_bytes = run->vocab->n_words * sizeof *words;
    Walk walk = {.words = words, .max_nodes = MASK_LIGHT_NODES};
    memset(words, 0, n_bytes);
    if (!run->spots[spot].is_heavy && !walk_below(run, &walk, 0, spot, error)) return false;
    if (walk.is_cut || run->spots[spot].is_heavy) {
        run->spots[spot].is_heavy = true;
        memset(words, 0, n_bytes);
        for (uint32_t i = 0; i < run->spots[spot].n; i++)
            if (!add_stack(run, run->members[run->spots[spot].first + i], words, error)) return false;
    }
    for (uint32_t i = 0; i < run->spots[spot].n; i++)
        allow_tokens(run, run->members[run->spots[spot].first + i], words);
    return true;
}

/* A slot that the next mask may take. */
static uint32_t take_slot(Run *run)
{
    Masks *masks = &run->masks;
    uint32_t slot = masks->next_slot++ % RUN_MASK_SLOTS;
    if (masks->spot_of[slot]) run->spots[masks->spot_of[slot]].slot = 0;
    masks->spot_of[slot] = 0;
    return slot;
}

bool mask_of(Run *run, uint32_t spot, const uint64_t **ret_words, uint32_t *ret_n, Error *error)
{
    Masks *masks = &run->masks;
    size_t n_words = run->vocab->n_words;
    if (!masks->slots) masks->slots = calloc(RUN_MASK_SLOTS * n_words, sizeof *masks->slots);
    if (!masks->slots) return no_memory(error);
    if (!run->spots[spot].slot) {
        uint32_t slot = take_slot(run), n = 0;
        uint64_t *words = masks->slots + slot * n_words;
        if (!fill_mask(run, spot, words, error)) return false;
        for (size_t i = 0; i < n_words; i++) n += (uint32_t)__builtin_popcountll(words[i]);
        masks->counts[slot] = n;
        masks->spot_of[slot] = spot;
        run->spots[spot].slot = slot + 1;
    }
    *ret_words = masks->slots + (run->spots[spot].slot - 1) * n_words;
    *ret_n = masks->counts[run->spots[spot].slot - 1];
    return true;
}

/* ---- ahead of time ---- */

/* Does a state read many bytes, so that its mask will take long? */
static bool reads_much(const Automaton *automaton, uint32_t state)
{
    enum { MANY_BYTES = 32 };
    const AutomatonState *at = &automaton->states[state];
    uint32_t n = 0;
    for (uint32_t i = at[0].first_byte; i < at[1].first_byte; i++)
        n += automaton->bytes[i].last - automaton->bytes[i].first + 1u;
    return n >= MANY_BYTES;
}

/* The top of one state; where that is not enough, of two, for all places that its rule is called from. */
static bool warm_state(Run *run, uint32_t state, Error *error)
{
    const Automaton *automaton = run->automaton;
    const TopMask *top;
    uint32_t stack;
    if (!run_stack(run, state, STACK_OPEN, &stack, error) || !find_top(run, stack, false, &top, error)) return false;
    if (top->words) return true;
    for (uint32_t i = 0; i < automaton->n_calls; i++) {
        if (automaton->calls[i].value != automaton->rule_of[state]) continue;
        if (automaton_is_bare(automaton, automaton->calls[i].to)) continue;
        if (run->masks.n_visited > MASK_WARM_NODES) return true;
        if (!run_stack(run, automaton->calls[i].to, STACK_OPEN, &stack, error) ||
            !run_stack(run, state, stack, &stack, error) || !find_top(run, stack, false, &top, error))
            return false;
    }
    return true;
}

bool mask_warm(Run *run, Error *error)
{
    for (uint32_t state = 0; state < run->automaton->n_states; state++) {
        if (run->masks.n_visited > MASK_WARM_NODES || run->masks.top_bytes > RUN_MAX_TOP_BYTES / 2) break;
        if (reads_much(run->automaton, state) && !warm_state(run, state, error)) return error->code != ERR_NO_MEMORY;
    }
    return true;
}
