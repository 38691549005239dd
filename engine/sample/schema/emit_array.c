/* SPDX-License-Identifier: Apache-2.0 */
/* An array: a chain of places for the first items, each of which may be the last, and behind them all others. */
#include "engine/sample/schema/emit.h"

/* What a shape comes to when items that no value fits are left out. */
typedef struct Extent {
    uint32_t n_prefix, max;
} Extent;

static Extent extent_of(const ArrayShape *shape)
{
    Extent extent = {shape->n_prefix, shape->max};
    for (uint32_t i = 0; i < shape->n_prefix; i++)
        if (!shape->prefix[i]->is_satisfiable) {
            extent.n_prefix = i;
            extent.max = i;
            break;
        }
    if (!shape->rest || !shape->rest->is_satisfiable) extent.max = extent.n_prefix;
    if (extent.max != UINT32_MAX && extent.max > EMIT_MAX_REPEATS) extent.max = EMIT_MAX_REPEATS;
    return extent;
}

/* Items behind the first ones, [min, max] of them; is_first: no comma is needed before the first. */
static bool emit_rest(Emit *emit, SchemaNode *item, uint32_t min, uint32_t max, bool is_first, GrammarNode *ret_text)
{
    GrammarBuilder *builder = emit->builder;
    GrammarNode one;
    if (!max) {
        *ret_text = grammar_empty(builder);
        return true;
    }
    if (!emit_node(emit, item, &one)) return false;
    GrammarNode next = grammar_seq(builder, emit->text.comma, one);
    uint32_t rest = max == GRAMMAR_UNBOUNDED ? max : max - 1;
    if ((max == GRAMMAR_UNBOUNDED ? min : max) > EMIT_MAX_INLINE_ITEMS) {
        GrammarRule rule = grammar_rule_new(builder, "json item");
        grammar_define(builder, rule, next);
        next = grammar_ref(builder, rule);
    }
    if (is_first) {
        GrammarNode all = grammar_seq(builder, one, grammar_repeat(builder, next, min ? min - 1 : 0, rest));
        *ret_text = min ? all : grammar_optional(builder, all);
    } else {
        *ret_text = grammar_repeat(builder, next, min, max);
    }
    return true;
}

static bool emit_items(Emit *emit, const ArrayShape *shape, GrammarNode *ret_text)
{
    GrammarBuilder *builder = emit->builder;
    Extent extent = extent_of(shape);
    uint32_t n = extent.n_prefix, n_edges = 0;
    GrammarEdge *edges = arena_array(emit->nodes->arena, 2 * (size_t)n + 2, sizeof *edges);
    if (!edges) return nodes_no_memory(emit->nodes);
    for (uint32_t i = 0; i < n; i++) {
        GrammarNode item;
        if (!emit_node(emit, shape->prefix[i], &item)) return false;
        if (i) item = grammar_seq(builder, emit->text.comma, item);
        if (i >= shape->min) edges[n_edges++] = (GrammarEdge){i, GRAMMAR_MACHINE_END, grammar_empty(builder)};
        edges[n_edges++] = (GrammarEdge){i, i + 1, item};
    }
    GrammarNode rest;
    uint32_t min = shape->min > n ? shape->min - n : 0;
    uint32_t max = extent.max == GRAMMAR_UNBOUNDED ? extent.max : extent.max - n;
    if (!emit_rest(emit, shape->rest, min, max, !n, &rest)) return false;
    edges[n_edges++] = (GrammarEdge){n, GRAMMAR_MACHINE_END, rest};
    *ret_text = grammar_machine(builder, edges, n_edges, n + 1);
    return true;
}

bool emit_array(Emit *emit, const ArrayShape *shape, GrammarNode *ret_text)
{
    GrammarBuilder *builder = emit->builder;
    GrammarNode items = GRAMMAR_FAILED, blank = emit->text.blank;
    Extent extent = extent_of(shape);
    if (extent.max < shape->min) {
        *ret_text = grammar_never(builder);
        return true;
    }
    if (!emit_items(emit, shape, &items)) return false;
    *ret_text = grammar_seq(builder, grammar_text(builder, "["), blank, items, blank, grammar_text(builder, "]"));
    return true;
}
