/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/jinja_parse.h"
#include "engine/text/jinja_run.h"

#include <string.h>

typedef JNode *(*ParseFn)(JParser *parser);

typedef struct OpRow {
    uint16_t token;
    JOp op;
} OpRow;

static const OpRow sum_ops[] = {{JINJA_OP('+', 0), OP_ADD}, {JINJA_OP('-', 0), OP_SUB}, {0, OP_NONE}};
static const OpRow product_ops[] = {{JINJA_OP('*', 0), OP_MUL},
                                    {JINJA_OP('/', 0), OP_DIV},
                                    {JINJA_OP('/', '/'), OP_FLOORDIV},
                                    {JINJA_OP('%', 0), OP_MOD},
                                    {0, OP_NONE}};
static const OpRow power_ops[] = {{JINJA_OP('*', '*'), OP_POW}, {0, OP_NONE}};
static const OpRow compare_ops[] = {{JINJA_OP('=', '='), OP_EQ},
                                    {JINJA_OP('!', '='), OP_NE},
                                    {JINJA_OP('<', 0), OP_LT},
                                    {JINJA_OP('<', '='), OP_LE},
                                    {JINJA_OP('>', 0), OP_GT},
                                    {JINJA_OP('>', '='), OP_GE},
                                    {0, OP_NONE}};

static JOp op_of(const JParser *parser, const OpRow *rows)
{
    if (parser->current.type != T_OPERATOR) return OP_NONE;
    for (; rows->token; rows++)
        if (rows->token == parser->current.op) return rows->op;
    return OP_NONE;
}

static JNode *new_binary(JParser *parser, JNodeType type, JOp op, JNode *a, JNode *b, uint32_t line)
{
    JNode *node = jinja_node_new(parser, type, line);
    if (!node) return NULL;
    node->op = (uint8_t)op;
    node->a = a;
    node->b = b;
    return jinja_node_done(parser, node);
}

/* Operators of one rank, grouped from the left. */
static JNode *parse_left(JParser *parser, const OpRow *rows, ParseFn operand)
{
    JNode *left = operand(parser);
    for (JOp op; left && (op = op_of(parser, rows)) != OP_NONE;) {
        uint32_t line = parser->current.line;
        if (!jinja_advance(parser)) return NULL;
        JNode *right = operand(parser);
        left = right ? new_binary(parser, N_BINARY, op, left, right, line) : NULL;
    }
    return left;
}

static JNode *parse_unary(JParser *parser, bool with_filters);

static JNode *parse_operand(JParser *parser)
{
    return parse_unary(parser, true);
}

static JNode *parse_power(JParser *parser)
{
    return parse_left(parser, power_ops, parse_operand);
}

static JNode *parse_product(JParser *parser)
{
    return parse_left(parser, product_ops, parse_power);
}

static JNode *parse_concat(JParser *parser)
{
    JNode *first = parse_product(parser);
    if (!first || !jinja_at_op(parser, JINJA_OP('~', 0))) return first;
    JNode *node = jinja_node_new(parser, N_CONCAT, parser->current.line);
    if (!node) return NULL;
    node->list = first;
    for (JNode **tail = &first->next; jinja_at_op(parser, JINJA_OP('~', 0)); tail = &(*tail)->next) {
        if (!jinja_advance(parser) || !(*tail = parse_product(parser))) return NULL;
    }
    return jinja_node_done(parser, node);
}

static JNode *parse_sum(JParser *parser)
{
    return parse_left(parser, sum_ops, parse_concat);
}

/* The comparison at hand, "in" and "not in" included; takes its tokens. */
static bool take_compare_op(JParser *parser, JOp *ret_op)
{
    *ret_op = op_of(parser, compare_ops);
    if (*ret_op != OP_NONE) return jinja_advance(parser);
    if (jinja_at_name(parser, "in")) {
        *ret_op = OP_IN;
        return jinja_advance(parser);
    }
    if (!jinja_at_name(parser, "not")) return true;
    const JToken *ahead;
    if (!jinja_peek(parser, &ahead)) return false;
    if (ahead->type != T_NAME || !jinja_text_is(ahead->text, "in")) return true;
    *ret_op = OP_NOT_IN;
    return jinja_advance(parser) && jinja_advance(parser);
}

static JNode *parse_compare(JParser *parser)
{
    JNode *first = parse_sum(parser), *node = NULL, **tail = NULL;
    while (first) {
        uint32_t line = parser->current.line;
        JOp op;
        if (!take_compare_op(parser, &op)) return NULL;
        if (op == OP_NONE) break;
        JNode *operand = parse_sum(parser);
        if (!operand || !(operand = new_binary(parser, N_OPERAND, op, operand, NULL, line))) return NULL;
        if (!node) {
            if (!(node = jinja_node_new(parser, N_COMPARE, line))) return NULL;
            node->a = first;
            tail = &node->list;
        }
        *tail = operand;
        tail = &operand->next;
    }
    return node ? jinja_node_done(parser, node) : first;
}

static JNode *parse_not(JParser *parser)
{
    if (!jinja_at_name(parser, "not")) return parse_compare(parser);
    uint32_t line = parser->current.line;
    if (++parser->depth > JINJA_MAX_PARSE_DEPTH) {
        (void)jinja_parse_fail(parser, line, "an expression is nested too deeply");
        return NULL;
    }
    JNode *inner = jinja_advance(parser) ? parse_not(parser) : NULL;
    parser->depth--;
    return inner ? new_binary(parser, N_UNARY, OP_NOT, inner, NULL, line) : NULL;
}

static JNode *parse_logic(JParser *parser, const char *word, JNodeType type, ParseFn operand)
{
    JNode *left = operand(parser);
    while (left && jinja_at_name(parser, word)) {
        uint32_t line = parser->current.line;
        if (!jinja_advance(parser)) return NULL;
        JNode *right = operand(parser);
        left = right ? new_binary(parser, type, OP_NONE, left, right, line) : NULL;
    }
    return left;
}

static JNode *parse_and(JParser *parser)
{
    return parse_logic(parser, "and", N_AND, parse_not);
}

static JNode *parse_or(JParser *parser)
{
    return parse_logic(parser, "or", N_OR, parse_and);
}

static JNode *parse_ternary(JParser *parser)
{
    uint32_t line = parser->current.line;
    const JNode *unknown = parser->unknown;
    JNode *value = parse_or(parser);
    while (value && jinja_at_name(parser, "if")) {
        parser->unknown = unknown; /* the value turns out to be conditional */
        JNode *node = jinja_node_new(parser, N_TERNARY, line);
        if (!node || !jinja_advance(parser)) return NULL;
        parser->conditional++;
        node->b = value;
        if (!(node->a = parse_or(parser))) return NULL;
        bool has_else;
        if (!jinja_skip_name(parser, "else", &has_else)) return NULL;
        if (has_else && !(node->c = jinja_parse_expression(parser, true))) return NULL;
        parser->conditional--;
        value = jinja_node_done(parser, node);
    }
    return value;
}

JNode *jinja_parse_expression(JParser *parser, bool with_ternary)
{
    if (++parser->depth > JINJA_MAX_PARSE_DEPTH) {
        (void)jinja_parse_fail(parser, parser->current.line, "an expression is nested too deeply");
        return NULL;
    }
    JNode *node = with_ternary ? parse_ternary(parser) : parse_or(parser);
    parser->depth--;
    return node;
}

/* Expressions separated by commas up to a closing bracket, which is taken; a comma may stand before it. */
static bool parse_items(JParser *parser, uint16_t closing, bool pairs, JNode **ret_list)
{
    JNode **tail = ret_list;
    while (!jinja_at_op(parser, closing)) {
        if (tail != ret_list) {
            if (!jinja_expect_op(parser, JINJA_OP(',', 0))) return false;
            if (jinja_at_op(parser, closing)) break;
        }
        if (!(*tail = jinja_parse_expression(parser, true))) return false;
        tail = &(*tail)->next;
        if (!pairs) continue;
        if (!jinja_expect_op(parser, JINJA_OP(':', 0))) return false;
        if (!(*tail = jinja_parse_expression(parser, true))) return false;
        tail = &(*tail)->next;
    }
    return jinja_advance(parser);
}

static JNode *parse_collection(JParser *parser, JNodeType type, uint16_t closing)
{
    JNode *node = jinja_node_new(parser, type, parser->current.line);
    if (!node || !jinja_advance(parser) || !parse_items(parser, closing, type == N_DICT, &node->list)) return NULL;
    return jinja_node_done(parser, node);
}

static bool at_tuple_end(const JParser *parser, const char *end_name)
{
    JTokenType type = parser->current.type;
    return type == T_VARIABLE_END || type == T_BLOCK_END || jinja_at_op(parser, JINJA_OP(')', 0)) ||
           (end_name && jinja_at_name(parser, end_name));
}

static JNode *parse_tuple_rest(JParser *parser, JNode *first, bool with_ternary, const char *end_name)
{
    JNode *node = jinja_node_new(parser, N_TUPLE, parser->current.line);
    if (!node) return NULL;
    node->list = first;
    for (JNode **tail = first ? &first->next : &node->list; jinja_at_op(parser, JINJA_OP(',', 0));
         tail = &(*tail)->next) {
        if (!jinja_advance(parser)) return NULL;
        if (at_tuple_end(parser, end_name)) break;
        if (!(*tail = jinja_parse_expression(parser, with_ternary))) return NULL;
    }
    return jinja_node_done(parser, node);
}

JNode *jinja_parse_tuple(JParser *parser, bool with_ternary, const char *end_name)
{
    JNode *first = jinja_parse_expression(parser, with_ternary);
    if (!first || !jinja_at_op(parser, JINJA_OP(',', 0))) return first;
    return parse_tuple_rest(parser, first, with_ternary, end_name);
}

static JNode *parse_parenthesis(JParser *parser)
{
    if (!jinja_advance(parser)) return NULL;
    JNode *node = jinja_at_op(parser, JINJA_OP(')', 0)) ? parse_tuple_rest(parser, NULL, true, NULL)
                                                        : jinja_parse_tuple(parser, true, NULL);
    return node && jinja_expect_op(parser, JINJA_OP(')', 0)) ? node : NULL;
}

static JNode *new_constant(JParser *parser, JValue constant)
{
    JNode *node = jinja_node_new(parser, N_CONST, parser->current.line);
    if (!node || !jinja_advance(parser)) return NULL;
    node->constant = constant;
    return node;
}

static JNode *new_text_constant(JParser *parser, uint32_t line, JText text)
{
    JNode *node = jinja_node_new(parser, N_CONST, line);
    if (!node) return NULL;
    node->text = text;
    node->constant = (JValue){.type = J_TEXT, .text = &node->text};
    return node;
}

/* Strings next to each other are one. */
static JNode *parse_strings(JParser *parser)
{
    uint32_t line = parser->current.line;
    JText text = parser->current.text;
    if (!jinja_advance(parser)) return NULL;
    size_t capacity = 0;
    while (parser->current.type == T_STRING) {
        JText more = parser->current.text;
        if (text.n + more.n + 1 > capacity) {
            capacity = (text.n + more.n + 1) * 2;
            char *data = arena_alloc(&parser->program->arena, capacity);
            if (!data) {
                (void)jinja_fail_memory(&parser->program->arena, capacity, line, parser->error);
                return NULL;
            }
            if (text.n) memcpy(data, text.data, text.n);
            text.data = data;
        }
        if (more.n) memcpy((char *)text.data + text.n, more.data, more.n);
        text.n += more.n;
        if (!jinja_advance(parser)) return NULL;
    }
    return new_text_constant(parser, line, text);
}

static void note_use(JParser *parser, JText name)
{
    uint8_t use = jinja_text_is(name, "caller")    ? J_USES_CALLER
                  : jinja_text_is(name, "varargs") ? J_USES_VARARGS
                  : jinja_text_is(name, "kwargs")  ? J_USES_KWARGS
                                                   : 0;
    for (JMacroFrame *frame = parser->macros; frame; frame = frame->parent) frame->uses |= use;
}

static JNode *parse_name(JParser *parser)
{
    JText name = parser->current.text;
    if (jinja_text_is(name, "true") || jinja_text_is(name, "True")) return new_constant(parser, jinja_bool(true));
    if (jinja_text_is(name, "false") || jinja_text_is(name, "False")) return new_constant(parser, jinja_bool(false));
    if (jinja_text_is(name, "none") || jinja_text_is(name, "None")) return new_constant(parser, jinja_none());
    JNode *node = jinja_node_new(parser, N_NAME, parser->current.line);
    if (!node || !jinja_advance(parser)) return NULL;
    node->text = name;
    note_use(parser, name);
    return node;
}

static JNode *parse_primary(JParser *parser)
{
    const JToken *token = &parser->current;
    if (token->type == T_NAME) return parse_name(parser);
    if (token->type == T_STRING) return parse_strings(parser);
    if (token->type == T_INT) return new_constant(parser, jinja_int(token->integer));
    if (token->type == T_FLOAT) return new_constant(parser, jinja_float(token->real));
    if (jinja_at_op(parser, JINJA_OP('(', 0))) return parse_parenthesis(parser);
    if (jinja_at_op(parser, JINJA_OP('[', 0))) return parse_collection(parser, N_LIST, JINJA_OP(']', 0));
    if (jinja_at_op(parser, JINJA_OP('{', 0))) return parse_collection(parser, N_DICT, JINJA_OP('}', 0));
    char what[64];
    jinja_token_describe(token, what);
    (void)jinja_parse_fail(parser, token->line, "unexpected %s", what);
    return NULL;
}

static JNode *parse_argument(JParser *parser)
{
    uint32_t line = parser->current.line;
    bool star = jinja_at_op(parser, JINJA_OP('*', 0)), stars = jinja_at_op(parser, JINJA_OP('*', '*'));
    if (star || stars) {
        if (!jinja_advance(parser)) return NULL;
        JNode *inner = jinja_parse_expression(parser, true);
        return inner ? new_binary(parser, N_STAR, stars ? OP_POW : OP_NONE, inner, NULL, line) : NULL;
    }
    if (parser->current.type == T_NAME) {
        const JToken *ahead;
        if (!jinja_peek(parser, &ahead)) return NULL;
        if (ahead->type == T_OPERATOR && ahead->op == JINJA_OP('=', 0)) {
            JNode *node = jinja_node_new(parser, N_KEYWORD, line);
            if (!node) return NULL;
            node->text = parser->current.text;
            if (!jinja_advance(parser) || !jinja_advance(parser)) return NULL;
            node->a = jinja_parse_expression(parser, true);
            return node->a ? jinja_node_done(parser, node) : NULL;
        }
    }
    return jinja_parse_expression(parser, true);
}

static bool parse_arguments(JParser *parser, JNode **ret_list)
{
    if (!jinja_expect_op(parser, JINJA_OP('(', 0))) return false;
    JNode **tail = ret_list;
    bool named = false;
    while (!jinja_at_op(parser, JINJA_OP(')', 0))) {
        if (tail != ret_list) {
            if (!jinja_expect_op(parser, JINJA_OP(',', 0))) return false;
            if (jinja_at_op(parser, JINJA_OP(')', 0))) break;
        }
        if (!(*tail = parse_argument(parser))) return false;
        bool is_named = (*tail)->type == N_KEYWORD || (*tail)->type == N_STAR;
        if (named && !is_named)
            return jinja_parse_fail(parser, (*tail)->line, "a positional argument follows a named one");
        named |= is_named;
        tail = &(*tail)->next;
    }
    return jinja_advance(parser);
}

static JNode *parse_call(JParser *parser, JNode *callee)
{
    JNode *node = jinja_node_new(parser, N_CALL, parser->current.line);
    if (!node) return NULL;
    node->a = callee;
    return parse_arguments(parser, &node->list) ? jinja_node_done(parser, node) : NULL;
}

static JNode *parse_dot(JParser *parser, JNode *object)
{
    uint32_t line = parser->current.line;
    if (!jinja_advance(parser)) return NULL;
    if (parser->current.type == T_INT) {
        JNode *key = new_constant(parser, jinja_int(parser->current.integer));
        return key ? new_binary(parser, N_SUBSCRIPT, OP_NONE, object, key, line) : NULL;
    }
    JNode *node = jinja_node_new(parser, N_ATTRIBUTE, line);
    if (!node || !jinja_expect_name(parser, &node->text)) return NULL;
    node->a = object;
    return jinja_node_done(parser, node);
}

static bool at_slice_bound_end(const JParser *parser)
{
    return jinja_at_op(parser, JINJA_OP(':', 0)) || jinja_at_op(parser, JINJA_OP(']', 0)) ||
           jinja_at_op(parser, JINJA_OP(',', 0));
}

/* The rest of start:stop:step after 'start', at its first colon. */
static JNode *parse_slice(JParser *parser, JNode *object, JNode *start, uint32_t line)
{
    JNode *node = jinja_node_new(parser, N_SLICE, line);
    if (!node) return NULL;
    node->a = object;
    JNode **tail = &node->list;
    for (int i = 0; i < 3; i++) {
        bool present = i == 0 ? start != NULL : false;
        if (i > 0) {
            bool colon;
            if (!jinja_skip_op(parser, JINJA_OP(':', 0), &colon)) return NULL;
            present = colon && !at_slice_bound_end(parser);
        }
        *tail = i == 0 && present ? start
                : present         ? jinja_parse_expression(parser, true)
                                  : jinja_node_new(parser, N_CONST, line);
        if (!*tail) return NULL;
        if (!present) (*tail)->constant = jinja_none();
        tail = &(*tail)->next;
    }
    return jinja_node_done(parser, node);
}

static JNode *parse_bracket(JParser *parser, JNode *object)
{
    uint32_t line = parser->current.line;
    if (!jinja_advance(parser)) return NULL;
    JNode *key = NULL, *node;
    if (!jinja_at_op(parser, JINJA_OP(':', 0)) && !(key = jinja_parse_tuple(parser, true, NULL))) return NULL;
    if (jinja_at_op(parser, JINJA_OP(':', 0)))
        node = parse_slice(parser, object, key, line);
    else
        node = new_binary(parser, N_SUBSCRIPT, OP_NONE, object, key, line);
    return node && jinja_expect_op(parser, JINJA_OP(']', 0)) ? node : NULL;
}

static JNode *parse_postfix(JParser *parser, JNode *node)
{
    while (node) {
        if (jinja_at_op(parser, JINJA_OP('.', 0)))
            node = parse_dot(parser, node);
        else if (jinja_at_op(parser, JINJA_OP('[', 0)))
            node = parse_bracket(parser, node);
        else if (jinja_at_op(parser, JINJA_OP('(', 0)))
            node = parse_call(parser, node);
        else
            break;
    }
    return node;
}

/* A filter or test that does not exist is an error of the whole template, unless a condition stands before it. */
static void note_unknown(JParser *parser, const JNode *node)
{
    if (!node->row && !parser->conditional && !parser->unknown) parser->unknown = node;
}

JNode *jinja_parse_filters(JParser *parser, JNode *input, bool named)
{
    while (input && (named || jinja_at_op(parser, JINJA_OP('|', 0)))) {
        if (!named && !jinja_advance(parser)) return NULL;
        named = false;
        JNode *node = jinja_node_new(parser, N_FILTER, parser->current.line);
        if (!node || !jinja_expect_name(parser, &node->text)) return NULL;
        node->a = input;
        node->row = jinja_filter_find(node->text);
        note_unknown(parser, node);
        if (jinja_at_op(parser, JINJA_OP('(', 0)) && !parse_arguments(parser, &node->list)) return NULL;
        input = jinja_node_done(parser, node);
    }
    return input;
}

/* A test may take one argument without brackets: x is divisibleby 3. */
static bool at_bare_argument(const JParser *parser)
{
    switch (parser->current.type) {
    case T_NAME:
        return !jinja_at_name(parser, "else") && !jinja_at_name(parser, "or") && !jinja_at_name(parser, "and");
    case T_STRING:
    case T_INT:
    case T_FLOAT:
        return true;
    default:
        return jinja_at_op(parser, JINJA_OP('[', 0)) || jinja_at_op(parser, JINJA_OP('{', 0));
    }
}

static JNode *parse_test(JParser *parser, JNode *input)
{
    JNode *node = jinja_node_new(parser, N_TEST, parser->current.line);
    bool negated;
    if (!node || !jinja_advance(parser) || !jinja_skip_name(parser, "not", &negated)) return NULL;
    if (!jinja_expect_name(parser, &node->text)) return NULL;
    node->a = input;
    node->op = negated ? OP_NOT : OP_NONE;
    node->row = jinja_test_find(node->text);
    note_unknown(parser, node);
    if (jinja_at_op(parser, JINJA_OP('(', 0))) {
        if (!parse_arguments(parser, &node->list)) return NULL;
    } else if (at_bare_argument(parser)) {
        if (jinja_at_name(parser, "is")) {
            (void)jinja_parse_fail(parser, node->line, "tests cannot be chained with 'is'");
            return NULL;
        }
        if (!(node->list = parse_postfix(parser, parse_primary(parser)))) return NULL;
    }
    return jinja_node_done(parser, node);
}

static JNode *parse_filters_and_tests(JParser *parser, JNode *node)
{
    while (node) {
        if (jinja_at_op(parser, JINJA_OP('|', 0)))
            node = jinja_parse_filters(parser, node, false);
        else if (jinja_at_name(parser, "is"))
            node = parse_test(parser, node);
        else if (jinja_at_op(parser, JINJA_OP('(', 0)))
            node = parse_call(parser, node);
        else
            break;
    }
    return node;
}

static JNode *parse_unary(JParser *parser, bool with_filters)
{
    uint32_t line = parser->current.line;
    bool minus = jinja_at_op(parser, JINJA_OP('-', 0));
    JNode *node;
    if (minus || jinja_at_op(parser, JINJA_OP('+', 0))) {
        if (++parser->depth > JINJA_MAX_PARSE_DEPTH) {
            (void)jinja_parse_fail(parser, line, "an expression is nested too deeply");
            return NULL;
        }
        JNode *inner = jinja_advance(parser) ? parse_unary(parser, false) : NULL;
        parser->depth--;
        node = inner ? new_binary(parser, N_UNARY, minus ? OP_SUB : OP_ADD, inner, NULL, line) : NULL;
    } else {
        node = parse_primary(parser);
    }
    node = parse_postfix(parser, node);
    return with_filters ? parse_filters_and_tests(parser, node) : node;
}
