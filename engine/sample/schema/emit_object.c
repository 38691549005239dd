/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object as an automaton whose edges are members. Few properties may come in any order: a place is the set of those
 * that were there. Many come in the order of the schema: a place is the next one. Other keys come anywhere, or behind
 * all properties. Where it matters, a place counts members too: all of them for a maximum, and those that are surely
 * different for a minimum, since among other keys one may come twice.
 */
#include "engine/sample/schema/emit.h"

#include "base/array.h"
#include "engine/sample/schema/dfa_build.h"
#include "engine/sample/schema/json_text.h"

#include <stdlib.h>

typedef enum Layer { AT_OPENING, AT_KEY, BEHIND_MEMBER } Layer;

/* What is known between two members. */
typedef struct Place {
    uint32_t layer;
    uint32_t seen;             /* a set, or the first property that may still come */
    uint32_t total, different; /* members, as far as they are counted */
    uint32_t has_other;        /* a key of a class was there */
} Place;

enum { PLACE_WORDS = sizeof(Place) / sizeof(uint32_t) };

typedef struct Writer {
    Emit *emit;
    const ObjectShape *shape;
    const Property **properties; /* [n] that a value fits */
    GrammarNode *members;        /* [n] key, colon and value */
    uint32_t n, n_required;
    GrammarNode other; /* a member with another key; never: none */
    bool has_other;
    bool any_order, counts_total, counts_different;
    KeyTable places;
    GrammarEdge *edges;
    uint32_t n_edges, max_edges;
} Writer;

static bool add_edge(Writer *writer, uint32_t from, uint32_t to, GrammarNode node)
{
    if (!array_reserve(&writer->edges, &writer->max_edges, (uint64_t)writer->n_edges + 1, UINT32_MAX,
                       sizeof *writer->edges))
        return nodes_no_memory(writer->emit->nodes);
    writer->edges[writer->n_edges++] = (GrammarEdge){from, to, node};
    return true;
}

static bool lead_to(Writer *writer, uint32_t from, Place place, GrammarNode node)
{
    uint32_t to, key[PLACE_WORDS] = {place.layer, place.seen, place.total, place.different, place.has_other};
    return key_table_number(&writer->places, key, EMIT_MAX_OBJECT_STATES, &to, writer->emit->nodes->error) &&
           add_edge(writer, from, to, node);
}

/* ---- one place ---- */

static bool may_close(const Writer *writer, Place place)
{
    for (uint32_t i = 0; i < writer->n; i++) {
        bool seen = writer->any_order ? place.seen >> i & 1 : i < place.seen;
        if (writer->properties[i]->is_required && !seen) return false;
    }
    return !writer->counts_different || place.different >= writer->shape->min;
}

static Place behind_member(const Writer *writer, Place place, bool is_other)
{
    place.layer = BEHIND_MEMBER;
    if (writer->counts_total) place.total++;
    if (writer->counts_different && place.different < writer->shape->min && !(is_other && place.has_other))
        place.different++;
    if (is_other && writer->counts_different) place.has_other = 1;
    return place;
}

static bool add_members(Writer *writer, uint32_t from, Place place)
{
    for (uint32_t i = 0; i < writer->n; i++) {
        if (writer->any_order ? place.seen >> i & 1 : i != place.seen) continue;
        Place next = behind_member(writer, place, false), skipped = place;
        next.seen = writer->any_order ? place.seen | UINT32_C(1) << i : i + 1;
        skipped.seen++;
        if (!lead_to(writer, from, next, writer->members[i])) return false;
        if (!writer->any_order && !writer->properties[i]->is_required &&
            !lead_to(writer, from, skipped, grammar_empty(writer->emit->builder)))
            return false;
    }
    if (!writer->has_other || (!writer->any_order && place.seen < writer->n)) return true;
    return lead_to(writer, from, behind_member(writer, place, true), writer->other);
}

static bool add_place(Writer *writer, uint32_t from, Place place)
{
    GrammarBuilder *builder = writer->emit->builder;
    Place key = place;
    bool has_room = !writer->counts_total || place.total < writer->shape->max;
    key.layer = AT_KEY;
    if (place.layer == AT_KEY) return add_members(writer, from, place);
    GrammarNode close = grammar_text(builder, "}"), before = grammar_empty(builder);
    if (place.layer == BEHIND_MEMBER) {
        close = grammar_seq(builder, json_text_blank(builder), close);
        before = json_text_comma(builder);
    }
    if (may_close(writer, place) && !add_edge(writer, from, GRAMMAR_MACHINE_END, close)) return false;
    return !has_room || lead_to(writer, from, key, before);
}

/* ---- all of them ---- */

static bool emit_member(Writer *writer, GrammarNode key, SchemaNode *value, GrammarNode *ret_member)
{
    GrammarBuilder *builder = writer->emit->builder;
    GrammarNode text;
    if (!emit_node(writer->emit, value, &text)) return false;
    *ret_member = grammar_seq(builder, key, json_text_colon(builder), text);
    return true;
}

static bool emit_members(Writer *writer)
{
    const ObjectShape *shape = writer->shape;
    GrammarBuilder *builder = writer->emit->builder;
    Arena *arena = writer->emit->nodes->arena;
    writer->properties = arena_array(arena, shape->n_properties, sizeof *writer->properties);
    writer->members = arena_array(arena, shape->n_properties, sizeof *writer->members);
    if (!writer->properties || !writer->members) return nodes_no_memory(writer->emit->nodes);
    for (uint32_t i = 0; i < shape->n_properties; i++) {
        const Property *property = &shape->properties[i];
        if (!property->value->is_satisfiable) continue;
        GrammarNode key = json_text_word(builder, property->name);
        if (!emit_member(writer, key, property->value, &writer->members[writer->n])) return false;
        writer->properties[writer->n++] = property;
        writer->n_required += property->is_required;
    }
    return true;
}

static bool emit_others(Writer *writer)
{
    const ObjectShape *shape = writer->shape;
    uint32_t n = 0;
    GrammarNode *members = arena_array(writer->emit->nodes->arena, shape->n_classes, sizeof *members);
    if (!members) return nodes_no_memory(writer->emit->nodes);
    for (uint32_t i = 0; i < shape->n_classes; i++) {
        if (!shape->classes[i].value->is_satisfiable) continue;
        GrammarNode key = emit_words(writer->emit, shape->classes[i].keys);
        if (!emit_member(writer, key, shape->classes[i].value, &members[n++])) return false;
    }
    writer->has_other = n > 0;
    writer->other = grammar_choice(writer->emit->builder, members, n);
    return true;
}

static bool decide(Writer *writer)
{
    const ObjectShape *shape = writer->shape;
    Nodes *nodes = writer->emit->nodes;
    uint64_t different = (uint64_t)writer->n + writer->has_other;
    writer->any_order = !nodes->options->keeps_order && writer->n <= EMIT_MAX_ANY_ORDER;
    writer->counts_total = shape->max < (writer->has_other ? UINT32_MAX : writer->n);
    writer->counts_different = shape->min > writer->n_required;
    if (shape->min <= different) return true;
    return nodes_fail(nodes, shape->min_from,
                      "'minProperties' %u is not supported with %u named properties: other keys might come twice",
                      shape->min, writer->n);
}

static bool write_places(Writer *writer, GrammarNode *ret_text)
{
    GrammarBuilder *builder = writer->emit->builder;
    static const uint32_t opening[PLACE_WORDS] = {AT_OPENING};
    uint32_t start;
    if (!key_table_number(&writer->places, opening, 1, &start, writer->emit->nodes->error)) return false;
    for (uint32_t i = 0; i < writer->places.n_keys; i++) {
        const uint32_t *key = writer->places.words + (size_t)i * PLACE_WORDS;
        if (!add_place(writer, i, (Place){key[0], key[1], key[2], key[3], key[4]})) return false;
    }
    GrammarNode machine = grammar_machine(builder, writer->edges, writer->n_edges, writer->places.n_keys);
    *ret_text = grammar_seq(builder, grammar_text(builder, "{"), json_text_blank(builder), machine);
    return true;
}

bool emit_object(Emit *emit, const ObjectShape *shape, GrammarNode *ret_text)
{
    if (shape->is_any) {
        *ret_text = json_text_object(emit->builder);
        return true;
    }
    if (!nodes_object_has_value(shape)) {
        *ret_text = grammar_never(emit->builder);
        return true;
    }
    Writer writer = {.emit = emit, .shape = shape};
    key_table_init(&writer.places, PLACE_WORDS);
    bool ok = emit_members(&writer) && emit_others(&writer) && decide(&writer) && write_places(&writer, ret_text);
    key_table_done(&writer.places);
    free(writer.edges);
    return ok;
}
