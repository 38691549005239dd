/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/grammar_twin.h"

#include "base/utf8.h"
#include "engine/sample/grammar/grammar_impl.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT = 62 };

/* Where texts of a node may end that begin somewhere; whether the text ends within one. */
typedef struct Ends {
    uint64_t at; /* bit i: at byte i */
    bool is_cut;
} Ends;

struct GrammarTwin {
    const GrammarBuilder *builder;
    GrammarNode root;
    bool *has_text; /* [n_rules] */
    const uint8_t *text;
    size_t n;
    Ends *known; /* [n_rules][n + 1] of the text in hand */
    bool *is_known;
};

static bool node_has_text(const GrammarTwin *twin, GrammarNode id);

/* live [node->a]: the states from which the machine comes to its end. */
static void find_live(const GrammarTwin *twin, const Node *node, bool *live)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < node->n; i++) {
            const GrammarEdge *edge = &node->edges[i];
            bool leads_on = edge->to == GRAMMAR_MACHINE_END || live[edge->to];
            if (live[edge->from] || !leads_on || !node_has_text(twin, edge->node)) continue;
            live[edge->from] = changed = true;
        }
    }
}

static bool machine_has_text(const GrammarTwin *twin, const Node *node)
{
    bool *live = calloc(node->a, sizeof *live);
    if (!live) abort();
    find_live(twin, node, live);
    bool has_text = live[0];
    free(live);
    return has_text;
}

static bool node_has_text(const GrammarTwin *twin, GrammarNode id)
{
    const Node *node = &twin->builder->nodes[id];
    bool any = node->kind != NODE_CHOICE;
    switch (node->kind) {
    case NODE_NEVER:
        return false;
    case NODE_RULE:
        return twin->has_text[node->a];
    case NODE_REPEAT:
        return node->b == 0 || node_has_text(twin, node->a);
    case NODE_MACHINE:
        return machine_has_text(twin, node);
    case NODE_SEQUENCE:
    case NODE_CHOICE:
        for (size_t i = 0; i < node->n; i++)
            if (node_has_text(twin, node->nodes[i]) != any) return !any;
        return any;
    default:
        return true;
    }
}

GrammarTwin *grammar_twin_new(const GrammarBuilder *builder, GrammarNode root)
{
    GrammarTwin *twin = calloc(1, sizeof *twin);
    if (!twin) abort();
    *twin = (GrammarTwin){.builder = builder, .root = root};
    size_t n = (size_t)builder->n_rules + 1;
    twin->has_text = calloc(n, sizeof *twin->has_text);
    twin->known = calloc(n * (MAX_TEXT + 1), sizeof *twin->known);
    twin->is_known = calloc(n * (MAX_TEXT + 1), sizeof *twin->is_known);
    if (!twin->has_text || !twin->known || !twin->is_known) abort();
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < builder->n_rules; i++)
            if (!twin->has_text[i] && builder->rules[i].node != GRAMMAR_FAILED &&
                node_has_text(twin, builder->rules[i].node))
                twin->has_text[i] = changed = true;
    }
    return twin;
}

void grammar_twin_free(GrammarTwin *twin)
{
    free(twin->has_text);
    free(twin->known);
    free(twin->is_known);
    free(twin);
}

static Ends ends_of(GrammarTwin *twin, GrammarNode id, size_t at);

static Ends bytes_ends(const GrammarTwin *twin, const Node *node, size_t at)
{
    size_t n = twin->n - at < node->n ? twin->n - at : node->n;
    if (memcmp(twin->text + at, node->text, n)) return (Ends){0};
    return n < node->n ? (Ends){.is_cut = true} : (Ends){.at = UINT64_C(1) << (at + n)};
}

/* The code points that bytes [n] of 'need' begin; 0 missing: one. */
static CodeRange codes_of(const uint8_t *bytes, size_t n, size_t need)
{
    static const uint8_t bits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t code = bytes[0] & bits[need];
    for (size_t i = 1; i < n; i++) code = code << 6 | (bytes[i] & 0x3F);
    uint32_t n_open = (uint32_t)(6 * (need - n));
    return (CodeRange){code << n_open, (code << n_open) | ((1u << n_open) - 1)};
}

static Ends class_ends(const GrammarTwin *twin, const Node *node, size_t at)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len;
    if (at == twin->n) return (Ends){.is_cut = true};
    const uint8_t *bytes = twin->text + at;
    Utf8Kind kind = utf8_step(bytes, twin->n - at, &len);
    if (kind == UTF8_DEAD) return (Ends){0};
    size_t need = bytes[0] < 0x80 ? 1 : bytes[0] < 0xE0 ? 2 : bytes[0] < 0xF0 ? 3 : 4;
    CodeRange codes = codes_of(bytes, len, need);
    if (codes.first < least[need]) codes.first = least[need];
    for (size_t i = 0; i < node->n; i++)
        if (codes.first <= node->ranges[i].last && node->ranges[i].first <= codes.last)
            return kind == UTF8_CUT ? (Ends){.is_cut = true} : (Ends){.at = UINT64_C(1) << (at + len)};
    return (Ends){0};
}

/* All that a node makes of any of the places. */
static Ends step(GrammarTwin *twin, GrammarNode id, Ends from)
{
    Ends to = {.is_cut = from.is_cut};
    for (size_t at = 0; at <= twin->n; at++) {
        if (!(from.at >> at & 1)) continue;
        Ends ends = ends_of(twin, id, at);
        to.at |= ends.at;
        to.is_cut |= ends.is_cut;
    }
    return to;
}

static Ends repeat_ends(GrammarTwin *twin, const Node *node, size_t at)
{
    Ends all = {0}, now = {.at = UINT64_C(1) << at};
    for (uint32_t i = 0; now.at; i++) {
        if (i >= node->b) {
            now.at &= ~all.at; /* from there on it has gone already */
            all.at |= now.at;
        }
        if (i == node->c) break;
        now.is_cut = false;
        now = step(twin, node->a, now);
        all.is_cut |= now.is_cut;
        if (i >= node->b && !(now.at & ~all.at)) break;
    }
    return all;
}

/* Every state's places are passed on along its edges until nothing is new. */
static Ends machine_ends(GrammarTwin *twin, const Node *node, size_t at)
{
    Ends all = {0};
    bool *live = calloc(node->a, sizeof *live);
    uint64_t *reached = calloc(node->a, sizeof *reached);
    if (!live || !reached) abort();
    find_live(twin, node, live);
    reached[0] = UINT64_C(1) << at;
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < node->n; i++) {
            const GrammarEdge *edge = &node->edges[i];
            bool ends = edge->to == GRAMMAR_MACHINE_END;
            if (!reached[edge->from] || !(ends || live[edge->to])) continue;
            Ends next = step(twin, edge->node, (Ends){.at = reached[edge->from]});
            uint64_t *to = ends ? &all.at : &reached[edge->to];
            all.is_cut |= next.is_cut;
            changed |= (next.at & ~*to) != 0;
            *to |= next.at;
        }
    }
    free(reached);
    free(live);
    return all;
}

static bool ends_with(const uint8_t *text, size_t n, const Marker *marker)
{
    return n >= marker->n && !memcmp(text + n - marker->n, marker->text, marker->n);
}

static Ends free_ends(const GrammarTwin *twin, const Node *node, size_t at)
{
    Ends ends = {0};
    const uint8_t *text = twin->text + at;
    for (size_t n = 0; at + n <= twin->n; n++) {
        bool is_marked = false, is_wanted = false;
        for (size_t i = 0; i < node->n; i++)
            if (ends_with(text, n, &node->markers[i])) {
                is_marked = true;
                is_wanted |= node->a == FREE_ANY || node->a == i;
            }
        if (n && text[n - 1] == 0) return ends;
        if (is_marked) {
            if (is_wanted && utf8_valid(text, n)) ends.at |= UINT64_C(1) << (at + n);
            return ends;
        }
        if (node->a == FREE_NONE && utf8_valid(text, n)) ends.at |= UINT64_C(1) << (at + n);
    }
    size_t len, i = 0, n = twin->n - at;
    for (; i < n; i += len) {
        Utf8Kind kind = utf8_step(text + i, n - i, &len);
        if (kind == UTF8_DEAD) return ends;
    }
    ends.is_cut = true;
    return ends;
}

static Ends rule_ends(GrammarTwin *twin, uint32_t rule, size_t at)
{
    size_t place = rule * (MAX_TEXT + 1) + at;
    if (!twin->is_known[place]) {
        twin->known[place] = ends_of(twin, twin->builder->rules[rule].node, at);
        twin->is_known[place] = true;
    }
    return twin->known[place];
}

static Ends ends_of(GrammarTwin *twin, GrammarNode id, size_t at)
{
    const Node *node = &twin->builder->nodes[id];
    Ends ends = {.at = UINT64_C(1) << at};
    if (!node_has_text(twin, id)) return (Ends){0};
    switch (node->kind) {
    case NODE_EMPTY:
        return ends;
    case NODE_BYTES:
        return bytes_ends(twin, node, at);
    case NODE_CLASS:
        return class_ends(twin, node, at);
    case NODE_SEQUENCE:
        for (size_t i = 0; i < node->n; i++) ends = step(twin, node->nodes[i], ends);
        return ends;
    case NODE_CHOICE:
        ends = (Ends){0};
        for (size_t i = 0; i < node->n; i++) {
            Ends one = ends_of(twin, node->nodes[i], at);
            ends.at |= one.at;
            ends.is_cut |= one.is_cut;
        }
        return ends;
    case NODE_REPEAT:
        return repeat_ends(twin, node, at);
    case NODE_MACHINE:
        return machine_ends(twin, node, at);
    case NODE_FREE:
        return free_ends(twin, node, at);
    case NODE_RULE:
        return rule_ends(twin, node->a, at);
    case NODE_TOKEN:
    case NODE_NEVER:
        break;
    }
    return (Ends){0};
}

bool grammar_twin_takes(GrammarTwin *twin, const uint8_t *text, size_t n, bool *ret_whole)
{
    if (n > MAX_TEXT) abort();
    twin->text = text;
    twin->n = n;
    memset(twin->is_known, 0, (size_t)twin->builder->n_rules * (MAX_TEXT + 1) * sizeof *twin->is_known);
    Ends ends = ends_of(twin, twin->root, 0);
    *ret_whole = ends.at >> n & 1;
    return *ret_whole || ends.is_cut;
}
