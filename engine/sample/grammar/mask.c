/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/mask.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

static bool no_memory(Error *error)
{
    return error_set(error, ERR_NO_MEMORY, "no memory for masks of a grammar");
}

/* ---- walks through the trie ---- */

typedef struct Walk {
    uint64_t *words;    /* tokens that are allowed are added */
    uint32_t max_depth; /* of the nodes visited */
    uint32_t n_nodes;   /* visited so far */
    uint32_t max_nodes;
    uint32_t *exits; /* [max_exits] */
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
    uint32_t *path = run->masks.path, end = vocab->nodes[from].after;
    path[vocab->nodes[from].depth] = spot;
    for (uint32_t i = from + 1; i < end; walk->n_nodes++, run->masks.work++) {
        const TrieNode *node = &vocab->nodes[i];
        uint32_t before = path[node->depth - 1], next = run_known(run, before, node->byte);
        if (next == SPOT_UNKNOWN && !run_byte(run, before, node->byte, &next, error)) return false;
        if (run->masks.work > run->masks.max_work)
            return error_set(error, ERR_TOO_LARGE, "the grammar has too many ways to go on from here");
        if (walk->n_nodes == walk->max_nodes) {
            walk->is_cut = true;
            break;
        }
        if (!spot_lives(next)) {
            i = node->after;
            continue;
        }
        path[node->depth] = next;
        allow(vocab, node, walk->words);
        bool goes_on = node->after > i + 1 && node->depth < walk->max_depth;
        if (run->spots[next].opens && goes_on) {
            if (walk->n_exits == walk->max_exits) {
                walk->is_cut = true;
                break;
            }
            walk->exits[walk->n_exits++] = i;
        }
        i = run->spots[next].n && goes_on ? i + 1 : node->after;
    }
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
    bool ok = array_reserve(&masks->tops, &masks->max_tops, (uint64_t)masks->n_tops + 1, UINT32_MAX, sizeof(TopMask)) &&
              id_table_reserve(&masks->by_stack, hash_of_top, masks);
    return ok || no_memory(error);
}

/* The words and exits of a stack that ends with STACK_OPEN or, is_whole, with the text. */
static bool fill_top(Run *run, TopMask *top, bool is_whole, Error *error)
{
    uint32_t spot;
    Walk walk = {
        .max_depth = AUTOMATON_ALIKE_BYTES, .max_nodes = UINT32_MAX, .max_exits = is_whole ? 0 : MASK_MAX_EXITS};
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

/* The first n states of a stack upon STACK_OPEN, each as the first of those alike. *ret_rest: what is below them. */
static bool cut_top(Run *run, uint32_t stack, uint32_t n, uint32_t *ret_top, uint32_t *ret_rest, Error *error)
{
    uint32_t states[MASK_MAX_TOP], at = stack, n_states = 0;
    while (n_states < n && at > STACK_OPEN) {
        states[n_states++] = run->automaton->alike[run->stacks[at].state];
        at = run->stacks[at].below;
    }
    uint32_t top = STACK_OPEN;
    while (n_states > 0)
        if (!run_stack(run, states[--n_states], top, &top, error)) return false;
    *ret_top = top;
    *ret_rest = at;
    return true;
}

/* The tokens that leave the top, as far as what is below goes along. *ret_is_cut: they are too many. */
static bool walk_exits(Run *run, const TopMask *top, uint32_t rest, uint64_t *words, bool *ret_is_cut, Error *error)
{
    Walk walk = {.words = words, .max_depth = UINT32_MAX, .max_nodes = MASK_MAX_BELOW};
    uint32_t spot;
    *ret_is_cut = false;
    if (rest <= STACK_OPEN || !top->n_exits) return true;
    if (!run_spot_from(run, rest, &spot, error)) return false;
    for (uint32_t i = 0; i < top->n_exits && spot_lives(spot) && !walk.is_cut; i++)
        if (!walk_below(run, &walk, top->exits[i], spot, error)) return false;
    *ret_is_cut = walk.is_cut;
    return true;
}

/* Is there what a larger top decides? Then a smaller one was not enough upon this stack. */
static bool has_larger(Run *run, uint32_t stack, uint32_t n, bool *ret_has, Error *error)
{
    Masks *masks = &run->masks;
    uint32_t cut, rest;
    *ret_has = false;
    if (n > MASK_MAX_TOP) return true;
    if (!cut_top(run, stack, n, &cut, &rest, error)) return false;
    *ret_has = *id_table_find(&masks->by_stack, hash_id(cut), is_same_top, masks, &cut) != 0;
    return true;
}

static void add_words(const Run *run, const TopMask *top, uint64_t *words)
{
    for (uint32_t i = 0; i < run->vocab->n_words; i++) words[i] |= top->words[i];
}

/* The tokens of one stack, up to AUTOMATON_ALIKE_BYTES. */
static bool add_stack(Run *run, uint32_t stack, uint64_t *words, Error *error)
{
    const TopMask *top;
    uint32_t cut, rest = stack;
    bool is_cut = true, has_more;
    for (uint32_t n = 1; n <= MASK_MAX_TOP && is_cut && rest > STACK_OPEN; n++) {
        if (!cut_top(run, stack, n, &cut, &rest, error) || !find_top(run, cut, false, &top, error)) return false;
        if (!top->words) continue;
        if (rest > STACK_OPEN && !has_larger(run, stack, n + 1, &has_more, error)) return false;
        if (rest > STACK_OPEN && has_more) continue;
        add_words(run, top, words);
        if (!walk_exits(run, top, rest, words, &is_cut, error)) return false;
    }
    if (!is_cut || rest == STACK_OPEN) return true;
    if (!find_top(run, stack, true, &top, error)) return false;
    add_words(run, top, words);
    return true;
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

/* Each of the long tokens by itself, from where it leaves the one before: they are in order, and most are runs. */
static bool add_long_tokens(Run *run, uint32_t spot, uint64_t *words, Error *error)
{
    const GrammarVocab *vocab = run->vocab;
    uint32_t *path = run->masks.path, n_known = 0;
    const uint8_t *before = NULL;
    path[0] = spot;
    for (uint32_t i = 0; i < vocab->n_long; i++) {
        uint32_t id = vocab->long_tokens[i], n = (uint32_t)(vocab->first[id + 1] - vocab->first[id]), at = 0;
        const uint8_t *bytes = vocab->bytes + vocab->first[id];
        while (at < n_known && at < n && bytes[at] == before[at]) at++;
        for (; at < n && spot_lives(path[at]); at++)
            if (!run_byte(run, path[at], bytes[at], &path[at + 1], error)) return false;
        if (spot_lives(path[at])) words[id / 64] |= UINT64_C(1) << id % 64;
        n_known = at;
        before = bytes;
    }
    return true;
}

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

/* So many tokens will follow that it is not worth while to try a light walk. */
static bool is_heavy(const Run *run, uint32_t spot)
{
    for (uint32_t i = 0; i < run->spots[spot].n; i++)
        if (reads_much(run->automaton, run->stacks[run->members[run->spots[spot].first + i]].state)) return true;
    return false;
}

static bool fill_mask(Run *run, uint32_t spot, uint64_t *words, Error *error)
{
    size_t n_bytes = run->vocab->n_words * sizeof *words;
    Walk walk = {.words = words, .max_depth = UINT32_MAX, .max_nodes = MASK_LIGHT_NODES};
    walk.is_cut = is_heavy(run, spot);
    memset(words, 0, n_bytes);
    if (!walk.is_cut && !walk_below(run, &walk, 0, spot, error)) return false;
    if (walk.is_cut) {
        for (uint32_t i = 0; i < run->spots[spot].n; i++)
            if (!add_stack(run, run->members[run->spots[spot].first + i], words, error)) return false;
        if (!add_long_tokens(run, spot, words, error)) return false;
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
        masks->max_work = masks->work + MASK_MAX_WORK;
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

typedef struct Warmth {
    Run *run;
    uint32_t *caller; /* [n_calls] the rule that each call stands in */
    uint64_t *words;
    uint32_t n_steps;
} Warmth;

/* The state upon a place that its rule returns to, and what is not known below that. */
static bool warm_upon(Warmth *warmth, uint32_t state, uint32_t back, uint32_t below, Error *error)
{
    uint32_t stack;
    if (back != AUTOMATON_NO_STATE && !run_stack(warmth->run, back, below, &below, error)) return false;
    return run_stack(warmth->run, state, below, &stack, error) && add_stack(warmth->run, stack, warmth->words, error);
}

/* The state upon all places that the rule returns to; one that only ends is no place, those of its own rule are. */
static bool warm_rule(Warmth *warmth, uint32_t state, uint32_t rule, uint32_t depth, Error *error)
{
    enum { MAX_DEPTH = 4, MAX_STEPS = 1 << 20 };
    const Automaton *automaton = warmth->run->automaton;
    if (rule == automaton->rule_of[0]) return warm_upon(warmth, state, AUTOMATON_NO_STATE, STACK_END, error);
    for (uint32_t i = 0; i < automaton->n_calls && warmth->n_steps++ < MAX_STEPS; i++) {
        const ValueEdge *call = &automaton->calls[i];
        if (call->value != rule || warmth->run->masks.work > MASK_WARM_WORK) continue;
        bool ok = true;
        if (!automaton_is_bare(automaton, call->to))
            ok = warm_upon(warmth, state, call->to, STACK_OPEN, error);
        else if (depth < MAX_DEPTH)
            ok = warm_rule(warmth, state, warmth->caller[i], depth + 1, error);
        if (!ok) return false;
    }
    return true;
}

bool mask_warm(Run *run, const GrammarBuilder *builder, Error *error)
{
    const Automaton *automaton = run->automaton;
    Warmth warmth = {.run = run};
    run->masks.max_work = 2 * MASK_WARM_WORK;
    warmth.words = calloc(run->vocab->n_words, sizeof *warmth.words);
    warmth.caller = calloc((size_t)automaton->n_calls + 1, sizeof *warmth.caller);
    bool ok = warmth.words && warmth.caller;
    if (!ok) (void)no_memory(error);
    for (uint32_t state = 0; ok && state < automaton->n_states; state++)
        for (uint32_t i = automaton->states[state].first_call; i < automaton->states[state + 1].first_call; i++)
            warmth.caller[i] = automaton->rule_of[state];
    for (uint32_t state = 0; ok && state < automaton->n_states; state++) {
        if (run->masks.work > MASK_WARM_WORK || run->masks.top_bytes > RUN_MAX_TOP_BYTES / 2) break;
        if (automaton->alike[state] == state && reads_much(automaton, state))
            ok = grammar_in_time(builder, error) && warm_rule(&warmth, state, automaton->rule_of[state], 0, error);
    }
    free(warmth.words);
    free(warmth.caller);
    return ok || error->code == ERR_TOO_LARGE; /* that comes later, or never */
}
