/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/calls/calls_impl.h"

#include <stdlib.h>
#include <string.h>

/*
 * A trie of how calls begin: blanks, one of the format's beginnings, a tool's name and what must follow it. A text that
 * leaves the trie, or ends within it, is no call. Beginnings are ASCII.
 */
typedef struct TrieNode {
    uint32_t child, next; /* 0: none */
    char byte;
} TrieNode;

typedef struct Trie {
    TrieNode *nodes; /* [n]; 0: the root */
    uint32_t n, max;
} Trie;

static bool add_text(Trie *trie, uint32_t *at, const char *text)
{
    for (; *text; text++) {
        uint32_t child = trie->nodes[*at].child;
        while (child && trie->nodes[child].byte != *text) child = trie->nodes[child].next;
        if (!child) {
            if (trie->n == trie->max) return false;
            child = trie->n++;
            trie->nodes[child] = (TrieNode){.next = trie->nodes[*at].child, .byte = *text};
            trie->nodes[*at].child = child;
        }
        *at = child;
    }
    return true;
}

static bool fill(Trie *trie, const AnswerStyle *style, const CallTool *tools, uint32_t n_tools)
{
    size_t n_begins;
    const char *const *begins = answer_style_begins(style, &n_begins);
    const char last[] = {answer_style_name_end(style), '\0'};
    for (size_t b = 0; b < n_begins; b++)
        for (uint32_t i = 0; i < n_tools; i++) {
            uint32_t at = 0;
            if (!add_text(trie, &at, begins[b]) || !add_text(trie, &at, tools[i].name) || !add_text(trie, &at, last))
                return false;
        }
    return true;
}

static uint32_t count_bytes(const AnswerStyle *style, const CallTool *tools, uint32_t n_tools)
{
    size_t n_begins, n = 1;
    const char *const *begins = answer_style_begins(style, &n_begins);
    for (size_t b = 0; b < n_begins; b++)
        for (uint32_t i = 0; i < n_tools; i++) n += strlen(begins[b]) + strlen(tools[i].name) + 1;
    return n > GRAMMAR_MAX_STATES ? GRAMMAR_MAX_STATES : (uint32_t)n;
}

/* What no child has: then any text follows. A node without children is a call. */
static GrammarNode leave(GrammarBuilder *builder, const Trie *trie, uint32_t node, bool blanks)
{
    CodeRange ranges[160];
    size_t n = 0;
    for (uint32_t child = trie->nodes[node].child; child; child = trie->nodes[child].next) {
        uint32_t code = (uint8_t)trie->nodes[child].byte;
        ranges[n++] = (CodeRange){code, code};
    }
    for (const char *blank = " \n\t\r"; blanks && *blank; blank++)
        ranges[n++] = (CodeRange){(uint8_t)*blank, (uint8_t)*blank};
    return grammar_seq(builder, grammar_class(builder, ranges, n, true), grammar_without(builder, NULL, 0));
}

static GrammarNode write_trie(GrammarBuilder *builder, const Trie *trie)
{
    GrammarEdge *edges = calloc((size_t)trie->n * 3 + 1, sizeof *edges);
    size_t n = 0;
    if (!edges) return grammar_fail(builder, ERR_NO_MEMORY, "no memory for the names of tools");
    const CodeRange blanks[] = {{' ', ' '}, {'\n', '\n'}, {'\t', '\t'}, {'\r', '\r'}};
    edges[n++] = (GrammarEdge){0, 0, grammar_class(builder, blanks, 4, false)};
    for (uint32_t node = 0; node < trie->n; node++) {
        if (!trie->nodes[node].child && node) continue;
        edges[n++] = (GrammarEdge){node, GRAMMAR_MACHINE_END, grammar_empty(builder)};
        edges[n++] = (GrammarEdge){node, GRAMMAR_MACHINE_END, leave(builder, trie, node, !node)};
        for (uint32_t child = trie->nodes[node].child; child; child = trie->nodes[child].next)
            edges[n++] = (GrammarEdge){node, child, grammar_bytes(builder, &trie->nodes[child].byte, 1)};
    }
    GrammarNode machine = grammar_machine(builder, edges, n, trie->n);
    free(edges);
    return machine;
}

GrammarNode bare_text(const CallWriter *writer, const CallTool *tools, uint32_t n_tools)
{
    GrammarBuilder *builder = writer->builder;
    Trie trie = {.n = 1, .max = count_bytes(writer->style, tools, n_tools)};
    trie.nodes = calloc(trie.max, sizeof *trie.nodes);
    if (!trie.nodes) return grammar_fail(builder, ERR_NO_MEMORY, "no memory for the names of tools");
    GrammarNode node = fill(&trie, writer->style, tools, n_tools)
                           ? write_trie(builder, &trie)
                           : grammar_fail(builder, ERR_TOO_LARGE, "too many tools for this model's form of calls");
    free(trie.nodes);
    return node;
}
