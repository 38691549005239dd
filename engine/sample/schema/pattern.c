/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/pattern.h"
#include "engine/sample/grammar/grammar_impl.h"
#include "engine/sample/grammar/regex.h"
#include "engine/sample/schema/pattern_nfa.h"

#include <string.h>

/* The nodes of a pattern, as the parser of regular expressions leaves them: no rules, no tokens. */
typedef struct Walk {
    const GrammarBuilder *builder;
    PatternNfa nfa;
} Walk;

static bool add_node(Walk *walk, GrammarNode id, PatternPiece *ret_piece);

static bool add_sequence(Walk *walk, const Node *node, PatternPiece *ret_piece)
{
    PatternPiece all, next;
    if (!pattern_nfa_empty(&walk->nfa, &all)) return false;
    for (size_t i = 0; i < node->n; i++) {
        if (!add_node(walk, node->nodes[i], &next)) return false;
        pattern_nfa_join(&walk->nfa, all, next, &all);
    }
    *ret_piece = all;
    return true;
}

static bool add_choice(Walk *walk, const Node *node, PatternPiece *ret_piece)
{
    PatternPiece all, next;
    if (!add_node(walk, node->nodes[0], &all)) return false;
    for (size_t i = 1; i < node->n; i++)
        if (!add_node(walk, node->nodes[i], &next) || !pattern_nfa_either(&walk->nfa, all, next, &all)) return false;
    *ret_piece = all;
    return true;
}

/* As deep as nodes may be: GRAMMAR_MAX_DEPTH. */
static bool add_node(Walk *walk, GrammarNode id, PatternPiece *ret_piece)
{
    const Node *node = &walk->builder->nodes[id];
    PatternPiece piece;
    switch (node->kind) {
    case NODE_EMPTY:
        return pattern_nfa_empty(&walk->nfa, ret_piece);
    case NODE_NEVER:
        return pattern_nfa_set(&walk->nfa, NULL, 0, ret_piece);
    case NODE_CLASS:
        return pattern_nfa_set(&walk->nfa, node->ranges, (uint32_t)node->n, ret_piece);
    case NODE_SEQUENCE:
        return add_sequence(walk, node, ret_piece);
    case NODE_CHOICE:
        return add_choice(walk, node, ret_piece);
    case NODE_REPEAT:
        return add_node(walk, node->a, &piece) && pattern_nfa_repeat(&walk->nfa, piece, node->b, node->c, ret_piece);
    default:
        return error_set(walk->nfa.error, ERR_INTERNAL, "a pattern has a part that no pattern has");
    }
}

bool pattern_compile(const char *text, Arena *arena, const Dfa **ret_dfa, Error *error)
{
    static const RegexDialect search = {.searches = true};
    GrammarBuilder *builder;
    GrammarNode root;
    const Dfa *dfa;
    PatternPiece piece;
    if (strlen(text) > PATTERN_MAX_BYTES)
        return error_set(error, ERR_TOO_LARGE, "a pattern has more than %d bytes", PATTERN_MAX_BYTES);
    if (!grammar_builder_new(&builder, error)) return false;
    Walk walk = {.builder = builder};
    pattern_nfa_init(&walk.nfa, error);
    bool ok = regex_parse(builder, text, strlen(text), &search, &root, error);
    if (!ok) (void)error_prefix(error, "pattern");
    ok = ok && add_node(&walk, root, &piece) && pattern_nfa_to_dfa(&walk.nfa, piece, arena, &dfa) &&
         dfa_minimize(dfa, arena, ret_dfa, error);
    pattern_nfa_done(&walk.nfa);
    grammar_builder_free(builder);
    return ok;
}
