/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/emit.h"

/* ---- scalars ---- */

static const EmittedDfa *find_emitted(const EmittedDfa *list, const Dfa *dfa)
{
    while (list && list->dfa != dfa) list = list->next;
    return list;
}

/* Big automata are rules; of equal nodes one. */
static GrammarNode keep_emitted(Emit *emit, EmittedDfa **list, const Dfa *dfa, GrammarNode node, bool is_big)
{
    const EmittedDfa *equal = *list;
    EmittedDfa *known = arena_alloc(emit->nodes->arena, sizeof *known);
    GrammarNode text = node;
    if (!known) return grammar_fail(emit->builder, ERR_NO_MEMORY, "no memory for a schema");
    while (is_big && equal && equal->node != node) equal = equal->next;
    if (is_big && equal) {
        text = equal->text;
    } else if (is_big) {
        GrammarRule rule = grammar_rule_new(emit->builder, "json text");
        grammar_define(emit->builder, rule, node);
        text = grammar_ref(emit->builder, rule);
    }
    *known = (EmittedDfa){dfa, node, text, *list};
    *list = known;
    return text;
}

GrammarNode emit_words(Emit *emit, const Dfa *words)
{
    const EmittedDfa *known = find_emitted(emit->words, words);
    if (known) return known->text;
    GrammarNode node = value_text_words(&emit->text, words);
    return keep_emitted(emit, &emit->words, words, node, words->n_states > EMIT_INLINE_STATES);
}

static GrammarNode emit_texts(Emit *emit, const Dfa *key, const Dfa *texts)
{
    GrammarNode node = value_text_plain(&emit->text, texts);
    return keep_emitted(emit, &emit->numbers, key, node, texts->n_states > EMIT_INLINE_STATES);
}

GrammarNode emit_plain(Emit *emit, const Dfa *words)
{
    const EmittedDfa *known = find_emitted(emit->numbers, words);
    return known ? known->text : emit_texts(emit, words, words);
}

static bool emit_numbers(Emit *emit, const Dfa *numbers, GrammarNode *ret_text)
{
    const EmittedDfa *known = find_emitted(emit->numbers, numbers);
    const Dfa *texts;
    if (!known && !sets_written(&emit->nodes->sets, numbers, &texts)) return false;
    *ret_text = known ? known->text : emit_texts(emit, numbers, texts);
    return true;
}

bool emit_strings(Emit *emit, const ValueText *text, Strings strings, GrammarNode *ret_text)
{
    if (strings.words) {
        EmittedDfa **list = text == &emit->raw ? &emit->raw_words : &emit->words;
        const EmittedDfa *known = find_emitted(*list, strings.words);
        const Dfa *least;
        if (!known && !dfa_minimize(strings.words, emit->nodes->arena, &least, emit->nodes->error)) return false;
        *ret_text = known ? known->text
                          : keep_emitted(emit, list, strings.words, value_text_words(text, least),
                                         least->n_states > EMIT_INLINE_STATES);
        return true;
    }
    if (strings.max != UINT32_MAX && strings.max > EMIT_MAX_REPEATS) strings.max = EMIT_MAX_REPEATS;
    *ret_text = value_text_string(text, strings.min, strings.max);
    return true;
}

/* Choices of what a node may be: scalars, then a shape each. */
typedef struct Ways {
    GrammarNode *nodes;
    uint32_t n;
} Ways;

static bool begin_ways(Emit *emit, const SchemaNode *node, Ways *ways)
{
    uint32_t n = 4; /* null, false, true, numbers */
    for (const StringsList *item = node->strings; item; item = item->next) n++;
    for (const ArrayShape *shape = node->arrays; shape; shape = shape->next) n++;
    for (const ObjectShape *shape = node->objects; shape; shape = shape->next) n++;
    *ways = (Ways){.nodes = arena_array(emit->nodes->arena, n, sizeof *ways->nodes)};
    return ways->nodes || nodes_no_memory(emit->nodes);
}

static bool add_scalars(Emit *emit, const SchemaNode *node, Ways *ways)
{
    const struct {
        uint32_t kind;
        const char *text;
    } words[] = {{KIND_NULL, emit->text.null}, {KIND_FALSE, emit->text.no}, {KIND_TRUE, emit->text.yes}};
    GrammarBuilder *builder = emit->builder;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (node->kinds & words[i].kind) ways->nodes[ways->n++] = grammar_text(builder, words[i].text);
    if ((node->kinds & KIND_NUMBER) && node->has_all_numbers)
        ways->nodes[ways->n++] = value_text_number(&emit->text);
    else if ((node->kinds & KIND_NUMBER) && !emit_numbers(emit, node->numbers, &ways->nodes[ways->n++]))
        return false;
    for (const StringsList *item = node->strings; item; item = item->next)
        if (!emit_raw(emit, &emit->text, item->strings, 0, &ways->nodes[ways->n++])) return false;
    return true;
}

static bool emit_scalars(Emit *emit, const SchemaNode *node, GrammarNode *ret_text)
{
    Ways ways;
    if (!begin_ways(emit, node, &ways) || !add_scalars(emit, node, &ways)) return false;
    *ret_text = grammar_choice(emit->builder, ways.nodes, ways.n);
    return true;
}

/* ---- nodes ---- */

static bool emit_begin(Emit *emit, SchemaNode *node, GrammarNode *ret_text)
{
    if (!node->is_satisfiable) {
        *ret_text = grammar_never(emit->builder);
    } else if (!node->n_parts) {
        *ret_text = value_text_value(&emit->text);
    } else if (node->arrays || node->objects) {
        node->rule = grammar_rule_new(emit->builder, "json");
        emit->queue[emit->n_queued++] = node;
        *ret_text = grammar_ref(emit->builder, node->rule);
    } else {
        return emit_scalars(emit, node, ret_text);
    }
    return true;
}

bool emit_node(Emit *emit, SchemaNode *node, GrammarNode *ret_text)
{
    if (!node->is_emitted) {
        if (!emit_begin(emit, node, &node->text)) return false;
        node->is_emitted = true;
    }
    *ret_text = node->text;
    return true;
}

static bool emit_rule(Emit *emit, SchemaNode *node)
{
    Ways ways;
    if (!begin_ways(emit, node, &ways) || !add_scalars(emit, node, &ways)) return false;
    for (const ArrayShape *shape = node->arrays; shape; shape = shape->next)
        if (!emit_array(emit, shape, &ways.nodes[ways.n++])) return false;
    for (const ObjectShape *shape = node->objects; shape; shape = shape->next)
        if (!emit_object(emit, shape, false, &ways.nodes[ways.n++])) return false;
    grammar_define(emit->builder, node->rule, grammar_choice(emit->builder, ways.nodes, ways.n));
    return true;
}

/* An object in the form of the root, which a reference within it does not have. */
static bool emit_root(Emit *emit, const SchemaNode *root, GrammarNode *ret_text)
{
    Ways ways;
    if (!begin_ways(emit, root, &ways)) return false;
    for (const ObjectShape *shape = root->objects; shape; shape = shape->next)
        if (!emit_object(emit, shape, true, &ways.nodes[ways.n++])) return false;
    *ret_text = grammar_choice(emit->builder, ways.nodes, ways.n);
    return true;
}

bool emit_all(Nodes *nodes, SchemaNode *root, GrammarBuilder *builder, GrammarNode *ret_text)
{
    Emit emit = {.nodes = nodes, .builder = builder};
    emit.queue = arena_array(nodes->arena, nodes->n_nodes, sizeof *emit.queue);
    if (!emit.queue) return nodes_no_memory(nodes);
    GrammarNode text;
    if (!emit_forms(&emit)) return false;
    if (!(emit.has_root ? emit_root(&emit, root, &text) : emit_node(&emit, root, &text))) return false;
    for (uint32_t i = 0; i < emit.n_queued; i++)
        if (!nodes_spend(nodes, 16) || !emit_rule(&emit, emit.queue[i])) return false;
    if (!grammar_is_sound(builder, nodes->error)) return false;
    *ret_text = text;
    return true;
}
