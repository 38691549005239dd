/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object as an automaton. Few properties may come in any order: a place is the set of those that were there. Many
 * come in the order of the schema: a place is the next one that may come, and within a key what was read of it; so the
 * automaton grows with the names, whatever may be left out. Other keys come anywhere, or behind all properties. Where
 * it matters, a place counts members too: all of them for a maximum, and those that are surely different for a minimum,
 * since among other keys one may come twice.
 */
#include "engine/sample/schema/emit.h"

#include "base/array.h"
#include "engine/sample/schema/dfa_build.h"
#include "engine/sample/schema/key_tree.h"

#include <stdlib.h>
#include <string.h>

typedef enum Layer {
    AT_OPENING,
    AT_KEY,
    IN_KEY, /* of properties in order: where a node of the key tree begins, where its names part, ... */
    AT_FORK,
    AT_VALUE, /* ... behind the key */
    BEHIND_MEMBER
} Layer;

/* What is known so far. */
typedef struct Place {
    uint32_t layer;
    uint32_t seen;             /* a set, or the first property that may still come; AT_VALUE: the one that has come */
    uint32_t total, different; /* members, as far as they are counted */
    uint32_t has_other;        /* a key of a class was there */
    uint32_t node;             /* of the key tree */
} Place;

enum { PLACE_WORDS = sizeof(Place) / sizeof(uint32_t) };

typedef struct Writer {
    Emit *emit;
    const ObjectText *text;
    const ObjectShape *shape;
    const Property **properties; /* [n] that a value fits */
    GrammarNode *members;        /* [n] what stands behind the key */
    uint32_t n, n_required;
    KeyTree keys;      /* for properties in order */
    uint32_t *last;    /* [n + 1] from each property on, the last one that may come next: the first that must come */
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
    uint32_t to,
        key[PLACE_WORDS] = {place.layer, place.seen, place.total, place.different, place.has_other, place.node};
    return key_table_number(&writer->places, key, EMIT_MAX_OBJECT_STATES, &to, writer->emit->nodes->error) &&
           add_edge(writer, from, to, node);
}

/* ---- one place ---- */

/* Has all come that must? */
static bool is_complete(const Writer *writer, Place place)
{
    if (!writer->any_order) return writer->last[place.seen] == writer->n;
    for (uint32_t i = 0; i < writer->n; i++)
        if (writer->properties[i]->is_required && !(place.seen >> i & 1)) return false;
    return true;
}

static bool may_close(const Writer *writer, Place place)
{
    return is_complete(writer, place) && (!writer->counts_different || place.different >= writer->shape->min);
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

static bool add_other(Writer *writer, uint32_t from, Place place)
{
    if (!writer->any_order) place.seen = writer->n;
    return !writer->has_other || lead_to(writer, from, behind_member(writer, place, true), writer->other);
}

/* A part of a key's name. */
static GrammarNode part_of(const Writer *writer, const char *name, size_t n)
{
    if (writer->text->keys) return grammar_bytes(writer->emit->builder, name, n);
    return value_text_part(&writer->emit->text, name, n);
}

static bool add_any_order(Writer *writer, uint32_t from, Place place)
{
    GrammarBuilder *builder = writer->emit->builder;
    for (uint32_t i = 0; i < writer->n; i++) {
        if (place.seen >> i & 1) continue;
        Place next = behind_member(writer, place, false);
        next.seen = place.seen | UINT32_C(1) << i;
        const char *name = writer->properties[i]->name;
        GrammarNode member = grammar_seq(builder, writer->text->before_key, part_of(writer, name, strlen(name)),
                                         writer->text->behind_key, writer->members[i]);
        if (!lead_to(writer, from, next, member)) return false;
    }
    return add_other(writer, from, place);
}

/* Into a node of the key tree, if one of its names may come. */
static bool enter(Writer *writer, uint32_t from, Place place, uint32_t id, GrammarNode text)
{
    const KeyNode *node = &writer->keys.nodes[id];
    uint32_t next = key_node_next(node, place.seen);
    if (next == KEY_NONE || next > writer->last[place.seen]) return true;
    place.layer = node->begin < node->end ? IN_KEY : AT_FORK;
    place.seen = next;
    place.node = id;
    return lead_to(writer, from, place, text);
}

static bool add_fork(Writer *writer, uint32_t from, Place place)
{
    const KeyNode *node = &writer->keys.nodes[place.node];
    if (node->word != KEY_NONE && node->word >= place.seen && node->word <= writer->last[place.seen]) {
        Place value = place;
        value.layer = AT_VALUE;
        value.seen = node->word;
        value.node = 0;
        if (!lead_to(writer, from, value, writer->text->behind_key)) return false;
    }
    for (uint32_t i = 0; i < node->n_children; i++) {
        const KeyNode *child = &writer->keys.nodes[node->child + i];
        const char *code = writer->properties[child->names[0]]->name + node->end;
        if (!enter(writer, from, place, node->child + i, part_of(writer, code, child->begin - node->end))) return false;
    }
    return true;
}

static bool add_stem(Writer *writer, uint32_t from, Place place)
{
    const KeyNode *node = &writer->keys.nodes[place.node];
    const char *name = writer->properties[node->names[0]]->name;
    place.layer = AT_FORK;
    return lead_to(writer, from, place, part_of(writer, name + node->begin, node->end - node->begin));
}

static bool add_value(Writer *writer, uint32_t from, Place place)
{
    Place next = behind_member(writer, place, false);
    next.seen++;
    return lead_to(writer, from, next, writer->members[place.seen]);
}

static bool add_key(Writer *writer, uint32_t from, Place place)
{
    if (writer->any_order) return add_any_order(writer, from, place);
    if (writer->n && !enter(writer, from, place, 0, writer->text->before_key)) return false;
    return !is_complete(writer, place) || add_other(writer, from, place);
}

/* Between members. */
static bool add_between(Writer *writer, uint32_t from, Place place)
{
    const ObjectText *text = writer->text;
    bool has_room = !writer->counts_total || place.total < writer->shape->max;
    GrammarNode close = text->close, before = grammar_empty(writer->emit->builder);
    bool are_many = writer->n > EMIT_MAX_INLINE_PROPERTIES;
    if (place.layer == BEHIND_MEMBER) {
        close = are_many ? text->many_close : text->close_at_member;
        before = are_many ? text->many_between : text->between;
    }
    if (may_close(writer, place) && !add_edge(writer, from, GRAMMAR_MACHINE_END, close)) return false;
    place.layer = AT_KEY;
    return !has_room || lead_to(writer, from, place, before);
}

static bool add_place(Writer *writer, uint32_t from, Place place)
{
    static bool (*const ways[])(Writer * writer, uint32_t from, Place place) = {
        [AT_OPENING] = add_between, [AT_KEY] = add_key,     [IN_KEY] = add_stem,
        [AT_FORK] = add_fork,       [AT_VALUE] = add_value, [BEHIND_MEMBER] = add_between,
    };
    return ways[place.layer](writer, from, place);
}

/* ---- all of them ---- */

/* What stands behind a key. name NULL: of a class of keys */
static bool emit_member(Writer *writer, const char *name, SchemaNode *value, GrammarNode *ret_member)
{
    Emit *emit = writer->emit;
    const ObjectText *text = writer->text;
    const ObjectKinds *known = &emit->nodes->kinds;
    bool has_tags = text == &emit->root && emit->has_tags;
    uint32_t kinds = name ? object_kinds_of(known, name, strlen(name)) : known->others;
    GrammarNode node;
    if (!(has_tags ? emit_tagged(emit, value, kinds, &node) : emit_node(emit, value, &node))) return false;
    *ret_member = grammar_seq(emit->builder, text->before_value, node, text->behind_value);
    return true;
}

static bool check_key(const Writer *writer, const char *name)
{
    return !writer->text->keys || dfa_label(writer->text->keys, name) ||
           error_set(writer->emit->nodes->error, ERR_UNSUPPORTED,
                     "the key '%.100s' cannot be written in the form in which this model calls tools", name);
}

static bool emit_members(Writer *writer)
{
    const ObjectShape *shape = writer->shape;
    Arena *arena = writer->emit->nodes->arena;
    writer->properties = arena_array(arena, shape->n_properties, sizeof *writer->properties);
    writer->members = arena_array(arena, shape->n_properties, sizeof *writer->members);
    if (!writer->properties || !writer->members) return nodes_no_memory(writer->emit->nodes);
    for (uint32_t i = 0; i < shape->n_properties; i++) {
        const Property *property = &shape->properties[i];
        if (!property->value->is_satisfiable) continue;
        if (!check_key(writer, property->name) ||
            !emit_member(writer, property->name, property->value, &writer->members[writer->n]))
            return false;
        writer->properties[writer->n++] = property;
        writer->n_required += property->is_required;
    }
    return true;
}

/* A key of a class, as far as such keys can be written. */
static bool emit_keys(Writer *writer, const Dfa *keys, GrammarNode *ret_key)
{
    Emit *emit = writer->emit;
    const ObjectText *text = writer->text;
    Strings words = {keys, 0, UINT32_MAX};
    if (!text->keys) {
        *ret_key = emit_words(emit, keys);
        return true;
    }
    if (!sets_cut_words(&emit->nodes->sets, &words, text->keys)) return false;
    GrammarNode word = dfa_is_empty(words.words) ? grammar_never(emit->builder) : emit_plain(emit, words.words);
    *ret_key = grammar_seq(emit->builder, text->before_key, word, text->behind_key);
    return true;
}

static bool emit_others(Writer *writer)
{
    const ObjectShape *shape = writer->shape;
    GrammarBuilder *builder = writer->emit->builder;
    uint32_t n = 0;
    GrammarNode *members = arena_array(writer->emit->nodes->arena, shape->n_classes, sizeof *members), key;
    if (!members) return nodes_no_memory(writer->emit->nodes);
    for (uint32_t i = 0; i < shape->n_classes; i++) {
        if (!shape->classes[i].value->is_satisfiable) continue;
        if (!emit_member(writer, NULL, shape->classes[i].value, &members[n]) ||
            !emit_keys(writer, shape->classes[i].keys, &key))
            return false;
        members[n] = grammar_seq(builder, key, members[n]);
        n++;
    }
    writer->has_other = n > 0;
    writer->other = grammar_choice(builder, members, n);
    if (writer->has_other && writer->n > EMIT_MAX_INLINE_PROPERTIES) {
        GrammarRule rule = grammar_rule_new(builder, "json member");
        grammar_define(builder, rule, writer->other);
        writer->other = grammar_ref(builder, rule);
    }
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

/* What properties in order need. */
static bool make_keys(Writer *writer)
{
    Arena *arena = writer->emit->nodes->arena;
    const char **names = arena_array(arena, writer->n, sizeof *names);
    writer->last = arena_array(arena, writer->n + 1, sizeof *writer->last);
    if (!names || !writer->last) return nodes_no_memory(writer->emit->nodes);
    writer->last[writer->n] = writer->n;
    for (uint32_t i = writer->n; i-- > 0;) {
        names[i] = writer->properties[i]->name;
        writer->last[i] = writer->properties[i]->is_required ? i : writer->last[i + 1];
    }
    return key_tree_make(names, writer->n, arena, &writer->keys, writer->emit->nodes->error);
}

static bool write_places(Writer *writer, GrammarNode *ret_text)
{
    GrammarBuilder *builder = writer->emit->builder;
    static const uint32_t opening[PLACE_WORDS] = {AT_OPENING};
    uint32_t start;
    if (!key_table_number(&writer->places, opening, 1, &start, writer->emit->nodes->error)) return false;
    for (uint32_t i = 0; i < writer->places.n_keys; i++) {
        const uint32_t *key = writer->places.words + (size_t)i * PLACE_WORDS;
        if (!add_place(writer, i, (Place){key[0], key[1], key[2], key[3], key[4], key[5]})) return false;
    }
    GrammarNode machine = grammar_machine(builder, writer->edges, writer->n_edges, writer->places.n_keys);
    *ret_text = grammar_seq(builder, writer->text->open, machine);
    return true;
}

bool emit_object(Emit *emit, const ObjectShape *shape, bool is_root, GrammarNode *ret_text)
{
    bool has_bare_keys = emit->object.keys && shape->n_properties;
    if (shape->is_any && !is_root && !has_bare_keys) {
        *ret_text = value_text_object(&emit->text);
        return true;
    }
    if (!nodes_object_has_value(shape)) {
        *ret_text = grammar_never(emit->builder);
        return true;
    }
    Writer writer = {.emit = emit, .text = is_root ? &emit->root : &emit->object, .shape = shape};
    key_table_init(&writer.places, PLACE_WORDS);
    bool ok = emit_members(&writer) && emit_others(&writer) && decide(&writer) &&
              (writer.any_order || make_keys(&writer)) && write_places(&writer, ret_text);
    key_table_done(&writer.places);
    free(writer.edges);
    return ok;
}
