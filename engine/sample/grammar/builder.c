/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/grammar.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "engine/sample/grammar/grammar_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BLOCK_BYTES = 16 << 10,
    NEARLY_FULL_BYTES = 4 << 20,
    MAX_MARKERS = 64,
    MAX_MARKER_BYTES = 1024,
    LAST_CODE = 0x10FFFF
};

/* Of this thread: a busy machine refuses no grammar. */
static uint64_t cpu_usec(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

bool grammar_builder_new(GrammarBuilder **ret_builder, Error *error)
{
    GrammarBuilder *builder = calloc(1, sizeof *builder);
    if (!builder) return error_set(error, ERR_NO_MEMORY, "no memory for a grammar");
    arena_init(&builder->arena, BLOCK_BYTES, GRAMMAR_MAX_BYTES);
    builder->deadline_cpu_usec = cpu_usec() + GRAMMAR_MAX_CPU_USEC;
    *ret_builder = builder;
    return true;
}

bool grammar_builder_new_within(const GrammarBuilder *other, GrammarBuilder **ret_builder, Error *error)
{
    if (!grammar_builder_new(ret_builder, error)) return false;
    (*ret_builder)->deadline_cpu_usec = other->deadline_cpu_usec;
    (*ret_builder)->is_try = other->is_try;
    grammar_builder_watch(*ret_builder, other->cancelled, other->deadline_usec);
    return true;
}

void grammar_builder_watch(GrammarBuilder *builder, const atomic_bool *cancelled, uint64_t deadline_usec)
{
    builder->cancelled = cancelled;
    builder->deadline_usec = deadline_usec;
}

void grammar_builder_try(GrammarBuilder *builder)
{
    builder->is_try = true;
    builder->deadline_cpu_usec = cpu_usec() + GRAMMAR_TRY_CPU_USEC;
}

bool grammar_in_time(const GrammarBuilder *builder, Error *error)
{
    if (builder->cancelled && atomic_load_explicit(builder->cancelled, memory_order_relaxed))
        return error_set(error, ERR_CANCELLED, "nobody waits for this grammar any more");
    if (builder->deadline_usec && clock_now_usec() > builder->deadline_usec)
        return error_set(error, ERR_DEADLINE, "the request's time was over before its grammar was compiled");
    if (cpu_usec() <= builder->deadline_cpu_usec) return true;
    if (builder->is_try) return error_set(error, ERR_BUSY, "compiling takes more than a try");
    return error_set(error, ERR_TOO_LARGE, "compiling takes more than %d s", GRAMMAR_MAX_CPU_USEC / 1000000);
}

void grammar_builder_free(GrammarBuilder *builder)
{
    if (!builder) return;
    arena_done(&builder->arena);
    id_table_done(&builder->by_node);
    id_table_done(&builder->by_name);
    free(builder->nodes);
    free(builder->node_hashes);
    free(builder->rules);
    free(builder->notes);
    free(builder);
}

void grammar_note(GrammarBuilder *builder, const char *what, const char *why)
{
    GrammarNote note = {arena_strdup(&builder->arena, what), arena_strdup(&builder->arena, why)};
    if (note.what && note.why &&
        array_reserve(&builder->notes, &builder->max_notes, (uint64_t)builder->n_notes + 1, UINT32_MAX, sizeof note))
        builder->notes[builder->n_notes++] = note;
    else
        (void)grammar_fail(builder, ERR_NO_MEMORY, "no memory for a grammar's notes");
}

/* ---- failures ---- */

void grammar_at(GrammarBuilder *builder, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(builder->place, sizeof builder->place, fmt, args);
    va_end(args);
}

GrammarNode grammar_fail(GrammarBuilder *builder, ErrorCode code, const char *fmt, ...)
{
    char text[240];
    if (builder->error.code != ERR_NONE) return GRAMMAR_FAILED;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char *place = builder->place;
    (void)error_set(&builder->error, code, "%s%s%s", place, *place ? ": " : "", text);
    return GRAMMAR_FAILED;
}

bool grammar_is_sound(const GrammarBuilder *builder, Error *error)
{
    if (builder->error.code == ERR_NONE) return true;
    *error = builder->error;
    return false;
}

/* The arena says no for both reasons. */
static GrammarNode no_memory(GrammarBuilder *builder)
{
    if (builder->arena.max_bytes - builder->arena.used_bytes > NEARLY_FULL_BYTES)
        return grammar_fail(builder, ERR_NO_MEMORY, "no memory for a grammar");
    return grammar_fail(builder, ERR_TOO_LARGE, "the grammar takes more than %d bytes", GRAMMAR_MAX_BYTES);
}

/* ---- equal nodes are one ---- */

static size_t item_bytes(NodeKind kind)
{
    switch (kind) {
    case NODE_BYTES:
        return 1;
    case NODE_CLASS:
        return sizeof(CodeRange);
    case NODE_SEQUENCE:
    case NODE_CHOICE:
        return sizeof(GrammarNode);
    case NODE_FREE:
        return sizeof(Marker);
    case NODE_MACHINE:
        return sizeof(GrammarEdge);
    default:
        return 0;
    }
}

static uint32_t hash_node(const Node *node)
{
    uint32_t hash = hash_bytes(2166136261u, (uint32_t[]){node->kind, node->a, node->b, node->c, (uint32_t)node->n},
                               5 * sizeof(uint32_t));
    if (node->kind == NODE_FREE) {
        for (size_t i = 0; i < node->n; i++) hash = hash_bytes(hash, node->markers[i].text, node->markers[i].n);
        return hash;
    }
    return hash_bytes(hash, node->data, node->n * item_bytes(node->kind));
}

static bool is_same_node(const void *owner, uint32_t id, const void *key)
{
    const Node *a = &((const GrammarBuilder *)owner)->nodes[id], *b = key;
    if (a->kind != b->kind || a->a != b->a || a->b != b->b || a->c != b->c || a->n != b->n) return false;
    if (a->kind != NODE_FREE) return !a->n || !memcmp(a->data, b->data, a->n * item_bytes(a->kind));
    for (size_t i = 0; i < a->n; i++)
        if (a->markers[i].n != b->markers[i].n || memcmp(a->markers[i].text, b->markers[i].text, a->markers[i].n))
            return false;
    return true;
}

static uint32_t hash_of_node(const void *owner, uint32_t id)
{
    return ((const GrammarBuilder *)owner)->node_hashes[id];
}

static bool grow(GrammarBuilder *builder)
{
    uint32_t max = builder->max_nodes;
    uint64_t wanted = (uint64_t)builder->n_nodes + 1;
    return array_reserve(&builder->nodes, &max, wanted, UINT32_MAX, sizeof *builder->nodes) &&
           array_reserve(&builder->node_hashes, &builder->max_nodes, wanted, UINT32_MAX, sizeof *builder->node_hashes);
}

/* Its data is copied if it is new. */
static GrammarNode intern(GrammarBuilder *builder, Node node)
{
    if (builder->error.code != ERR_NONE) return GRAMMAR_FAILED;
    if (node.depth > GRAMMAR_MAX_DEPTH)
        return grammar_fail(builder, ERR_TOO_LARGE, "nested deeper than %d levels", GRAMMAR_MAX_DEPTH);
    if (builder->n_nodes >= GRAMMAR_MAX_NODES)
        return grammar_fail(builder, ERR_TOO_LARGE, "the grammar has more than %d parts", GRAMMAR_MAX_NODES);
    uint32_t hash = hash_node(&node);
    if (!grow(builder) || !id_table_reserve(&builder->by_node, hash_of_node, builder)) return no_memory(builder);
    uint32_t *slot = id_table_find(&builder->by_node, hash, is_same_node, builder, &node);
    if (*slot) return *slot - 1;
    if (node.n) node.data = arena_copy(&builder->arena, node.data, node.n * item_bytes(node.kind));
    if (node.n && !node.data) return no_memory(builder);
    builder->nodes[builder->n_nodes] = node;
    builder->node_hashes[builder->n_nodes] = hash;
    id_table_fill(&builder->by_node, slot, builder->n_nodes);
    return builder->n_nodes++;
}

static uint32_t add_weight(uint32_t a, uint32_t b)
{
    return a < UINT32_MAX / 2 && b < UINT32_MAX / 2 ? a + b : UINT32_MAX / 2;
}

/* ---- texts ---- */

GrammarNode grammar_empty(GrammarBuilder *builder)
{
    return intern(builder, (Node){.kind = NODE_EMPTY, .depth = 1});
}

GrammarNode grammar_never(GrammarBuilder *builder)
{
    return intern(builder, (Node){.kind = NODE_NEVER, .depth = 1});
}

GrammarNode grammar_bytes(GrammarBuilder *builder, const char *bytes, size_t n)
{
    if (n == 0) return grammar_empty(builder);
    if (memchr(bytes, 0, n)) return grammar_fail(builder, ERR_SCHEMA, "U+0000 cannot be part of an answer");
    if (n > GRAMMAR_MAX_STATES) return grammar_fail(builder, ERR_TOO_LARGE, "a text of %zu bytes", n);
    return intern(builder, (Node){.kind = NODE_BYTES, .depth = 1, .weight = (uint32_t)n, .n = n, .text = bytes});
}

GrammarNode grammar_text(GrammarBuilder *builder, const char *text)
{
    return grammar_bytes(builder, text, strlen(text));
}

static int compare_ranges(const void *a, const void *b)
{
    uint32_t left = ((const CodeRange *)a)->first, right = ((const CodeRange *)b)->first;
    return (left > right) - (left < right);
}

/* What of [first, last] a text may hold goes behind out [n]; returns the new n. */
static size_t put_range(CodeRange *out, size_t n, uint32_t first, uint32_t last)
{
    static const CodeRange allowed[] = {{1, 0xD7FF}, {0xE000, LAST_CODE}};
    for (size_t i = 0; i < 2; i++) {
        uint32_t from = first > allowed[i].first ? first : allowed[i].first;
        uint32_t to = last < allowed[i].last ? last : allowed[i].last;
        if (from <= to) out[n++] = (CodeRange){from, to};
    }
    return n;
}

GrammarNode grammar_class(GrammarBuilder *builder, const CodeRange *ranges, size_t n, bool negated)
{
    if (n > GRAMMAR_MAX_STATES) return grammar_fail(builder, ERR_TOO_LARGE, "a class of %zu ranges", n);
    CodeRange *sorted = malloc((n + 1) * sizeof *sorted), *out = malloc((2 * n + 2) * sizeof *out);
    if (!sorted || !out) {
        free(sorted);
        free(out);
        return no_memory(builder);
    }
    if (n) memcpy(sorted, ranges, n * sizeof *sorted);
    for (size_t i = 0; i < n; i++)
        if (sorted[i].last > LAST_CODE) sorted[i].last = LAST_CODE;
    qsort(sorted, n, sizeof *sorted, compare_ranges);
    size_t n_merged = 0, n_out = 0;
    for (size_t i = 0; i < n; i++) {
        CodeRange *last = n_merged ? &sorted[n_merged - 1] : NULL;
        if (last && sorted[i].first <= last->last + 1) {
            if (sorted[i].last > last->last) last->last = sorted[i].last;
        } else {
            sorted[n_merged++] = sorted[i];
        }
    }
    uint32_t next = 0;
    for (size_t i = 0; i < n_merged; i++) {
        if (!negated) n_out = put_range(out, n_out, sorted[i].first, sorted[i].last);
        if (negated && sorted[i].first > next) n_out = put_range(out, n_out, next, sorted[i].first - 1);
        next = sorted[i].last + 1;
    }
    if (negated) n_out = put_range(out, n_out, next, LAST_CODE);
    uint32_t weight = n_out ? 2 * (uint32_t)n_out + (out[n_out - 1].last > 0x7F ? 8 : 0) : 0;
    GrammarNode node =
        n_out ? intern(builder, (Node){.kind = NODE_CLASS, .depth = 1, .weight = weight, .n = n_out, .ranges = out})
              : grammar_never(builder);
    free(sorted);
    free(out);
    return node;
}

size_t grammar_class_ranges(const GrammarBuilder *builder, GrammarNode node, const CodeRange **ret_ranges)
{
    if (node >= builder->n_nodes || builder->nodes[node].kind != NODE_CLASS) return 0;
    *ret_ranges = builder->nodes[node].ranges;
    return builder->nodes[node].n;
}

GrammarNode grammar_token(GrammarBuilder *builder, uint32_t id)
{
    return intern(builder, (Node){.kind = NODE_TOKEN, .depth = 1, .weight = 1, .a = id});
}

/* ---- nodes of nodes ---- */

static GrammarNode make_list(GrammarBuilder *builder, NodeKind kind, const GrammarNode *nodes, size_t n)
{
    Node node = {.kind = kind, .n = n, .nodes = nodes, .weight = 1};
    for (size_t i = 0; i < n; i++) {
        const Node *child = &builder->nodes[nodes[i]];
        if (child->depth + 1 > node.depth) node.depth = child->depth + 1;
        node.weight = add_weight(node.weight, child->weight);
        node.has_rules |= child->has_rules;
    }
    return n == 1 ? nodes[0] : intern(builder, node);
}

static bool has_failed(const GrammarNode *nodes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (nodes[i] == GRAMMAR_FAILED) return true;
    return false;
}

/* Without the nodes of the kind that changes nothing. */
static GrammarNode make_without(GrammarBuilder *builder, NodeKind kind, const GrammarNode *nodes, size_t n,
                                NodeKind neutral)
{
    if (has_failed(nodes, n)) return GRAMMAR_FAILED;
    if (n > GRAMMAR_MAX_NODES) return grammar_fail(builder, ERR_TOO_LARGE, "a list of %zu parts", n);
    GrammarNode *kept = malloc((n + 1) * sizeof *kept);
    if (!kept) return no_memory(builder);
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++)
        if (builder->nodes[nodes[i]].kind != neutral) kept[n_kept++] = nodes[i];
    GrammarNode node = n_kept                ? make_list(builder, kind, kept, n_kept)
                       : kind == NODE_CHOICE ? grammar_never(builder)
                                             : grammar_empty(builder);
    free(kept);
    return node;
}

GrammarNode grammar_sequence(GrammarBuilder *builder, const GrammarNode *nodes, size_t n)
{
    return make_without(builder, NODE_SEQUENCE, nodes, n, NODE_EMPTY);
}

GrammarNode grammar_choice(GrammarBuilder *builder, const GrammarNode *nodes, size_t n)
{
    return make_without(builder, NODE_CHOICE, nodes, n, NODE_NEVER);
}

GrammarNode grammar_repeat(GrammarBuilder *builder, GrammarNode node, uint32_t min, uint32_t max)
{
    if (node == GRAMMAR_FAILED) return GRAMMAR_FAILED;
    if (min > max) return grammar_fail(builder, ERR_SCHEMA, "a repetition of at least %u and at most %u", min, max);
    uint32_t times = max == GRAMMAR_UNBOUNDED ? min + (min < UINT32_MAX) : max;
    if (times > GRAMMAR_MAX_REPEATS)
        return grammar_fail(builder, ERR_TOO_LARGE, "a repetition of %u, more than %d", times, GRAMMAR_MAX_REPEATS);
    if (max == 0) return grammar_empty(builder);
    if (min == 1 && max == 1) return node;
    Node child = builder->nodes[node];
    uint64_t weight = (uint64_t)child.weight * times;
    return intern(builder, (Node){.kind = NODE_REPEAT,
                                  .a = node,
                                  .b = min,
                                  .c = max,
                                  .depth = child.depth + 1,
                                  .has_rules = child.has_rules,
                                  .weight = weight < UINT32_MAX / 2 ? (uint32_t)weight : UINT32_MAX / 2});
}

GrammarNode grammar_optional(GrammarBuilder *builder, GrammarNode node)
{
    return grammar_repeat(builder, node, 0, 1);
}

GrammarNode grammar_many(GrammarBuilder *builder, GrammarNode node)
{
    return grammar_repeat(builder, node, 0, GRAMMAR_UNBOUNDED);
}

GrammarNode grammar_machine(GrammarBuilder *builder, const GrammarEdge *edges, size_t n, uint32_t n_states)
{
    if (n > GRAMMAR_MAX_EDGES || n_states == 0 || n_states > GRAMMAR_MAX_STATES)
        return grammar_fail(builder, ERR_TOO_LARGE, "an automaton of %u states and %zu edges", n_states, n);
    Node node = {.kind = NODE_MACHINE, .a = n_states, .depth = 1, .weight = n_states, .n = n, .edges = edges};
    for (size_t i = 0; i < n; i++) {
        bool has_states = edges[i].from < n_states && (edges[i].to < n_states || edges[i].to == GRAMMAR_MACHINE_END);
        if (edges[i].node == GRAMMAR_FAILED) return GRAMMAR_FAILED;
        if (!has_states) return grammar_fail(builder, ERR_INTERNAL, "an automaton with an edge out of its states");
        const Node *child = &builder->nodes[edges[i].node];
        if (child->depth + 1 > node.depth) node.depth = child->depth + 1;
        node.weight = add_weight(node.weight, child->weight);
        node.has_rules |= child->has_rules;
    }
    return n ? intern(builder, node) : grammar_never(builder);
}

/* ---- free text ---- */

static GrammarNode make_free(GrammarBuilder *builder, const char *const *markers, size_t n, uint32_t which)
{
    Marker list[MAX_MARKERS];
    if (n > MAX_MARKERS) return grammar_fail(builder, ERR_TOO_LARGE, "%zu markers, at most %d", n, MAX_MARKERS);
    uint32_t weight = 4;
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes = strlen(markers[i]);
        if (n_bytes == 0 || n_bytes > MAX_MARKER_BYTES || !utf8_valid((const uint8_t *)markers[i], n_bytes))
            return grammar_fail(builder, ERR_SCHEMA, "a marker of %zu bytes, not 1 to %d bytes of UTF-8", n_bytes,
                                MAX_MARKER_BYTES);
        list[i] = (Marker){arena_copy(&builder->arena, markers[i], n_bytes), n_bytes};
        if (!list[i].text) return no_memory(builder);
        weight += (uint32_t)n_bytes;
    }
    return intern(builder,
                  (Node){.kind = NODE_FREE, .depth = 1, .a = which, .weight = weight, .n = n, .markers = list});
}

GrammarNode grammar_until(GrammarBuilder *builder, const char *const *markers, size_t n, uint32_t only)
{
    if (n == 0 || (only >= n && only != FREE_ANY))
        return grammar_fail(builder, ERR_SCHEMA, "free text that ends with marker %u of %zu", only, n);
    return make_free(builder, markers, n, only);
}

GrammarNode grammar_without(GrammarBuilder *builder, const char *const *markers, size_t n)
{
    return make_free(builder, markers, n, FREE_NONE);
}

/* ---- rules ---- */

typedef struct Name {
    const char *text;
    size_t n;
} Name;

static bool is_same_name(const void *owner, uint32_t id, const void *key)
{
    const Rule *rule = &((const GrammarBuilder *)owner)->rules[id];
    const Name *name = key;
    return rule->n_name == name->n && !memcmp(rule->name, name->text, name->n);
}

static uint32_t hash_of_rule(const void *owner, uint32_t id)
{
    return ((const GrammarBuilder *)owner)->rules[id].hash;
}

GrammarRule grammar_rule(GrammarBuilder *builder, const char *name, size_t n)
{
    if (builder->error.code != ERR_NONE) return GRAMMAR_FAILED;
    if (builder->n_rules >= GRAMMAR_MAX_RULES)
        return grammar_fail(builder, ERR_TOO_LARGE, "more than %d rules", GRAMMAR_MAX_RULES);
    if (!array_reserve(&builder->rules, &builder->max_rules, (uint64_t)builder->n_rules + 1, UINT32_MAX, sizeof(Rule)))
        return no_memory(builder);
    if (!id_table_reserve(&builder->by_name, hash_of_rule, builder)) return no_memory(builder);
    uint32_t hash = hash_bytes(2166136261u, name, n);
    uint32_t *slot = id_table_find(&builder->by_name, hash, is_same_name, builder, &(Name){name, n});
    if (*slot) return *slot - 1;
    Rule rule = {.name = arena_copy(&builder->arena, name, n), .n_name = n, .hash = hash, .node = GRAMMAR_FAILED};
    if (!rule.name) return no_memory(builder);
    builder->rules[builder->n_rules] = rule;
    id_table_fill(&builder->by_name, slot, builder->n_rules);
    return builder->n_rules++;
}

GrammarRule grammar_rule_new(GrammarBuilder *builder, const char *prefix)
{
    char name[64];
    uint32_t n_before;
    GrammarRule rule;
    do {
        n_before = builder->n_rules;
        int n = snprintf(name, sizeof name, "%.40s-%u", prefix, ++builder->n_fresh);
        rule = grammar_rule(builder, name, (size_t)n);
    } while (rule != GRAMMAR_FAILED && builder->n_rules == n_before);
    return rule;
}

bool grammar_rule_is_defined(const GrammarBuilder *builder, GrammarRule rule)
{
    return rule < builder->n_rules && builder->rules[rule].node != GRAMMAR_FAILED;
}

void grammar_define(GrammarBuilder *builder, GrammarRule rule, GrammarNode node)
{
    if (builder->error.code != ERR_NONE || rule == GRAMMAR_FAILED || node == GRAMMAR_FAILED) return;
    if (grammar_rule_is_defined(builder, rule))
        (void)grammar_fail(builder, ERR_SCHEMA, "rule '%.60s' is defined twice", builder->rules[rule].name);
    else
        builder->rules[rule].node = node;
}

GrammarNode grammar_ref(GrammarBuilder *builder, GrammarRule rule)
{
    if (rule == GRAMMAR_FAILED) return GRAMMAR_FAILED;
    return intern(builder, (Node){.kind = NODE_RULE, .depth = 1, .weight = 1, .a = rule, .has_rules = true});
}
