/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/jinja_parse.h"
#include "engine/text/jinja.h"
#include "engine/text/jinja_run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROGRAM_BYTES = 256 << 20 }; /* a tree takes some 200 bytes for each token */

bool jinja_parse_fail(JParser *parser, uint32_t line, const char *fmt, ...)
{
    char what[sizeof parser->error->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return error_set(parser->error, ERR_TEMPLATE, "line %u: %s", line, what);
}

JNode *jinja_node_new(JParser *parser, JNodeType type, uint32_t line)
{
    JNode *node = arena_alloc(&parser->program->arena, sizeof *node);
    if (!node) {
        (void)jinja_fail_memory(&parser->program->arena, sizeof *node, line, parser->error);
        return NULL;
    }
    node->type = (uint8_t)type;
    node->line = line;
    node->height = 1;
    return node;
}

static uint16_t highest(const JNode *list, uint16_t height)
{
    for (; list; list = list->next)
        if (list->height > height) height = list->height;
    return height;
}

JNode *jinja_node_done(JParser *parser, JNode *node)
{
    const JNode *const lists[] = {node->list, node->body, node->orelse, node->params};
    const JNode *const single[] = {node->a, node->b, node->c, node->target};
    uint16_t height = 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) height = highest(lists[i], height);
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        if (single[i] && single[i]->height > height) height = single[i]->height;
    node->height = (uint16_t)(height + 1);
    if (node->height <= JINJA_MAX_TREE_HEIGHT) return node;
    (void)jinja_parse_fail(parser, node->line, "the template is nested too deeply");
    return NULL;
}

bool jinja_advance(JParser *parser)
{
    if (!parser->has_ahead) return jinja_lex(&parser->lexer, &parser->current);
    parser->current = parser->ahead;
    parser->has_ahead = false;
    return true;
}

bool jinja_peek(JParser *parser, const JToken **ret_token)
{
    if (!parser->has_ahead && !jinja_lex(&parser->lexer, &parser->ahead)) return false;
    parser->has_ahead = true;
    *ret_token = &parser->ahead;
    return true;
}

bool jinja_text_is(JText text, const char *literal)
{
    return jinja_text_equal(text, (JText){.data = literal, .n = strlen(literal)});
}

bool jinja_at_op(const JParser *parser, uint16_t op)
{
    return parser->current.type == T_OPERATOR && parser->current.op == op;
}

bool jinja_at_name(const JParser *parser, const char *name)
{
    return parser->current.type == T_NAME && jinja_text_is(parser->current.text, name);
}

static bool unexpected(JParser *parser, const char *wanted)
{
    char what[64];
    jinja_token_describe(&parser->current, what);
    return jinja_parse_fail(parser, parser->current.line, "expected %s, got %s", wanted, what);
}

bool jinja_expect_op(JParser *parser, uint16_t op)
{
    char wanted[64];
    jinja_token_describe(&(JToken){.type = T_OPERATOR, .op = op}, wanted);
    return jinja_at_op(parser, op) ? jinja_advance(parser) : unexpected(parser, wanted);
}

bool jinja_expect_type(JParser *parser, JTokenType type)
{
    char wanted[64];
    jinja_token_describe(&(JToken){.type = type}, wanted);
    return parser->current.type == type ? jinja_advance(parser) : unexpected(parser, wanted);
}

bool jinja_skip_op(JParser *parser, uint16_t op, bool *ret_skipped)
{
    *ret_skipped = jinja_at_op(parser, op);
    return !*ret_skipped || jinja_advance(parser);
}

bool jinja_skip_name(JParser *parser, const char *name, bool *ret_skipped)
{
    *ret_skipped = jinja_at_name(parser, name);
    return !*ret_skipped || jinja_advance(parser);
}

bool jinja_expect_name(JParser *parser, JText *ret_name)
{
    if (parser->current.type != T_NAME) return unexpected(parser, "a name");
    *ret_name = parser->current.text;
    return jinja_advance(parser);
}

/* ---- statements ---- */

typedef JNode *(*StatementFn)(JParser *parser, JNode *node);
typedef struct StatementRow {
    const char *word;
    JNodeType type;
    StatementFn parse; /* after the word */
} StatementRow;

static JNode *parse_statement(JParser *parser);

static bool at_one_of(const JParser *parser, const char *const *words)
{
    for (; *words; words++)
        if (jinja_at_name(parser, *words)) return true;
    return false;
}

static JNode *parse_output(JParser *parser)
{
    JNode *node = jinja_node_new(parser, N_OUTPUT, parser->current.line);
    if (!node || !jinja_advance(parser)) return NULL;
    node->a = jinja_parse_tuple(parser, true, NULL);
    if (!node->a || !jinja_expect_type(parser, T_VARIABLE_END)) return NULL;
    return jinja_node_done(parser, node);
}

/* Text, output and statements up to one of the words (left as the current token), or to the end when there are none. */
static bool parse_statements(JParser *parser, const char *const *ends, JNode **ret_list)
{
    JNode **tail = ret_list;
    while (parser->current.type != T_END) {
        JNode *node = NULL;
        if (parser->current.type == T_DATA) {
            node = jinja_node_new(parser, N_TEXT, parser->current.line);
            if (!node) return false;
            node->text = parser->current.text;
            if (!jinja_advance(parser)) return false;
        } else if (parser->current.type == T_VARIABLE_BEGIN) {
            node = parse_output(parser);
        } else if (parser->current.type == T_BLOCK_BEGIN) {
            if (!jinja_advance(parser)) return false;
            if (ends && at_one_of(parser, ends)) return true;
            node = parse_statement(parser);
            if (node && !jinja_expect_type(parser, T_BLOCK_END)) return false;
        }
        if (!node) return false;
        *tail = node;
        tail = &node->next;
    }
    if (!ends) return true;
    return jinja_parse_fail(parser, parser->current.line, "the template ends where '%s' is missing", ends[0]);
}

static bool parse_body(JParser *parser, const char *const *ends, JNode **ret_list)
{
    bool colon;
    return jinja_skip_op(parser, JINJA_OP(':', 0), &colon) && jinja_expect_type(parser, T_BLOCK_END) &&
           parse_statements(parser, ends, ret_list);
}

/* A body and its one closing word, which is taken. */
static bool parse_whole_body(JParser *parser, const char *end, JNode **ret_list)
{
    return parse_body(parser, (const char *const[]){end, NULL}, ret_list) && jinja_advance(parser);
}

static JNode *parse_if_branches(JParser *parser, JNode *node)
{
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    for (JNode **tail = &node->list;; tail = &(*tail)->next) {
        JNode *branch = *tail = jinja_node_new(parser, N_IF, parser->current.line);
        if (!branch || !(branch->a = jinja_parse_tuple(parser, false, NULL))) return NULL;
        if (!parse_body(parser, ends, &branch->body) || !jinja_node_done(parser, branch)) return NULL;
        bool more;
        if (!jinja_skip_name(parser, "elif", &more)) return NULL;
        if (!more) break;
    }
    bool has_else;
    if (!jinja_skip_name(parser, "else", &has_else)) return NULL;
    if (has_else ? !parse_whole_body(parser, "endif", &node->orelse) : !jinja_advance(parser)) return NULL;
    return jinja_node_done(parser, node);
}

static JNode *parse_if(JParser *parser, JNode *node)
{
    parser->conditional++;
    node = parse_if_branches(parser, node);
    parser->conditional--;
    return node;
}

static JNode *parse_target(JParser *parser, bool with_namespace);

static JNode *parse_single_target(JParser *parser, bool with_namespace)
{
    if (jinja_at_op(parser, JINJA_OP('(', 0))) {
        if (++parser->depth > JINJA_MAX_PARSE_DEPTH) {
            (void)jinja_parse_fail(parser, parser->current.line, "an assignment is nested too deeply");
            return NULL;
        }
        JNode *inner = jinja_advance(parser) ? parse_target(parser, with_namespace) : NULL;
        parser->depth--;
        return inner && jinja_expect_op(parser, JINJA_OP(')', 0)) ? inner : NULL;
    }
    JNode *node = jinja_node_new(parser, N_NAME, parser->current.line);
    if (!node || !jinja_expect_name(parser, &node->text)) return NULL;
    static const char *const reserved[] = {"true", "false", "none", "True", "False", "None",
                                           "and",  "or",    "not",  "in",   "is"};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        if (!jinja_text_is(node->text, reserved[i])) continue;
        (void)jinja_parse_fail(parser, node->line, "cannot assign to '%s'", reserved[i]);
        return NULL;
    }
    if (!with_namespace || !jinja_at_op(parser, JINJA_OP('.', 0))) return node;
    node->type = N_NS_REF;
    return jinja_advance(parser) && jinja_expect_name(parser, &node->text2) ? node : NULL;
}

/* A name, a namespace's attribute, or a tuple of them. */
static JNode *parse_target(JParser *parser, bool with_namespace)
{
    JNode *first = parse_single_target(parser, with_namespace);
    if (!first || !jinja_at_op(parser, JINJA_OP(',', 0))) return first;
    JNode *node = jinja_node_new(parser, N_TUPLE, first->line);
    if (!node) return NULL;
    node->list = first;
    for (JNode **tail = &first->next; jinja_at_op(parser, JINJA_OP(',', 0)); tail = &(*tail)->next) {
        if (!jinja_advance(parser)) return NULL;
        if (parser->current.type != T_NAME && !jinja_at_op(parser, JINJA_OP('(', 0))) break;
        if (jinja_at_name(parser, "in")) break;
        if (!(*tail = parse_single_target(parser, with_namespace))) return NULL;
    }
    return jinja_node_done(parser, node);
}

static JNode *parse_for(JParser *parser, JNode *node)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    bool found;
    if (!(node->target = parse_target(parser, false)) || !jinja_skip_name(parser, "in", &found)) return NULL;
    if (!found) {
        (void)unexpected(parser, "'in'");
        return NULL;
    }
    if (!(node->a = jinja_parse_tuple(parser, false, "recursive"))) return NULL;
    if (!jinja_skip_name(parser, "if", &found)) return NULL;
    if (found && !(node->b = jinja_parse_expression(parser, true))) return NULL;
    if (!jinja_skip_name(parser, "recursive", &node->flag)) return NULL;
    parser->loops++;
    if (!parse_body(parser, ends, &node->body)) return NULL;
    parser->loops--;
    if (!jinja_skip_name(parser, "else", &found)) return NULL;
    if (found ? !parse_whole_body(parser, "endfor", &node->orelse) : !jinja_advance(parser)) return NULL;
    return jinja_node_done(parser, node);
}

static JNode *new_hole(JParser *parser)
{
    return jinja_node_new(parser, N_HOLE, parser->current.line);
}

static JNode *parse_set(JParser *parser, JNode *node)
{
    bool assigns;
    if (!(node->target = parse_target(parser, true)) || !jinja_skip_op(parser, JINJA_OP('=', 0), &assigns)) return NULL;
    if (assigns) {
        node->a = jinja_parse_tuple(parser, true, NULL);
        return node->a ? jinja_node_done(parser, node) : NULL;
    }
    node->type = N_SET_BODY;
    if (!(node->a = new_hole(parser)) || !(node->a = jinja_parse_filters(parser, node->a, false))) return NULL;
    if (!parse_whole_body(parser, "endset", &node->body)) return NULL;
    return jinja_node_done(parser, node);
}

static JNode *parse_with(JParser *parser, JNode *node)
{
    for (JNode **tail = &node->list; parser->current.type != T_BLOCK_END; tail = &(*tail)->next) {
        if (tail != &node->list && !jinja_expect_op(parser, JINJA_OP(',', 0))) return NULL;
        JNode *set = *tail = jinja_node_new(parser, N_SET, parser->current.line);
        if (!set || !(set->target = parse_single_target(parser, false))) return NULL;
        if (!jinja_expect_op(parser, JINJA_OP('=', 0))) return NULL;
        if (!(set->a = jinja_parse_expression(parser, true)) || !jinja_node_done(parser, set)) return NULL;
    }
    return parse_whole_body(parser, "endwith", &node->body) ? jinja_node_done(parser, node) : NULL;
}

static JNode *parse_filter_block(JParser *parser, JNode *node)
{
    if (!(node->a = new_hole(parser)) || !(node->a = jinja_parse_filters(parser, node->a, true))) return NULL;
    return parse_whole_body(parser, "endfilter", &node->body) ? jinja_node_done(parser, node) : NULL;
}

static bool parse_params(JParser *parser, JNode **ret_list)
{
    if (!jinja_expect_op(parser, JINJA_OP('(', 0))) return false;
    bool defaults = false;
    for (JNode **tail = ret_list; !jinja_at_op(parser, JINJA_OP(')', 0)); tail = &(*tail)->next) {
        if (tail != ret_list && !jinja_expect_op(parser, JINJA_OP(',', 0))) return false;
        JNode *param = *tail = jinja_node_new(parser, N_PARAM, parser->current.line);
        bool has_default;
        if (!param || !jinja_expect_name(parser, &param->text)) return false;
        if (!jinja_skip_op(parser, JINJA_OP('=', 0), &has_default)) return false;
        if (has_default && !(param->a = jinja_parse_expression(parser, true))) return false;
        if (defaults && !has_default)
            return jinja_parse_fail(parser, param->line, "parameter '%.*s' needs a default as the ones before it",
                                    (int)param->text.n, param->text.data);
        defaults |= has_default;
        if (!jinja_node_done(parser, param)) return false;
    }
    return jinja_advance(parser);
}

/* The body of something that is called later: loops around it do not reach into it. */
static JNode *parse_callable_body(JParser *parser, JNode *node, const char *end)
{
    JMacroFrame frame = {.parent = parser->macros};
    uint32_t loops = parser->loops;
    parser->macros = &frame;
    parser->loops = 0;
    bool ok = parse_whole_body(parser, end, &node->body);
    parser->macros = frame.parent;
    parser->loops = loops;
    node->uses = frame.uses;
    return ok ? jinja_node_done(parser, node) : NULL;
}

static JNode *parse_macro(JParser *parser, JNode *node)
{
    if (!jinja_expect_name(parser, &node->text) || !parse_params(parser, &node->params)) return NULL;
    return parse_callable_body(parser, node, "endmacro");
}

static JNode *parse_call_block(JParser *parser, JNode *node)
{
    if (jinja_at_op(parser, JINJA_OP('(', 0)) && !parse_params(parser, &node->params)) return NULL;
    node->text = JTEXT("caller");
    if (!(node->a = jinja_parse_expression(parser, true))) return NULL;
    if (node->a->type != N_CALL) {
        (void)jinja_parse_fail(parser, node->line, "expected a call");
        return NULL;
    }
    return parse_callable_body(parser, node, "endcall");
}

static JNode *parse_generation(JParser *parser, JNode *node)
{
    return parse_callable_body(parser, node, "endgeneration");
}

static JNode *parse_loop_control(JParser *parser, JNode *node)
{
    if (parser->loops) return node;
    (void)jinja_parse_fail(parser, node->line, "'%s' outside of a loop", node->type == N_BREAK ? "break" : "continue");
    return NULL;
}

static const StatementRow statements[] = {
    {"if", N_IF, parse_if},
    {"for", N_FOR, parse_for},
    {"set", N_SET, parse_set},
    {"with", N_WITH, parse_with},
    {"filter", N_FILTERED, parse_filter_block},
    {"macro", N_MACRO, parse_macro},
    {"call", N_CALL_BODY, parse_call_block},
    {"generation", N_SCOPED, parse_generation},
    {"break", N_BREAK, parse_loop_control},
    {"continue", N_CONTINUE, parse_loop_control},
};

static JNode *dispatch_statement(JParser *parser)
{
    uint32_t line = parser->current.line;
    JText word;
    if (!jinja_expect_name(parser, &word)) return NULL;
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!jinja_text_is(word, statements[i].word)) continue;
        JNode *node = jinja_node_new(parser, statements[i].type, line);
        return node ? statements[i].parse(parser, node) : NULL;
    }
    (void)jinja_parse_fail(parser, line, "unknown statement '%.*s'", (int)(word.n < 64 ? word.n : 64), word.data);
    return NULL;
}

static JNode *parse_statement(JParser *parser)
{
    if (++parser->depth > JINJA_MAX_PARSE_DEPTH) {
        (void)jinja_parse_fail(parser, parser->current.line, "statements are nested too deeply");
        return NULL;
    }
    JNode *node = dispatch_statement(parser);
    parser->depth--;
    return node;
}

/* A copy with "\n" line ends and without the last one. */
static char *copy_source(Arena *arena, const char *source, size_t *n)
{
    char *copy = arena_copy(arena, source, *n);
    if (!copy) return NULL;
    size_t to = 0;
    for (size_t from = 0; from < *n; from++) {
        bool pair = copy[from] == '\r' && from + 1 < *n && copy[from + 1] == '\n';
        if (!pair) copy[to++] = copy[from] == '\r' ? '\n' : copy[from];
    }
    if (to > 0 && copy[to - 1] == '\n') to--;
    *n = to;
    return copy;
}

bool jinja_parse(const char *source, size_t n, JinjaProgram **ret_program, Error *error)
{
    if (n > JINJA_MAX_SOURCE_BYTES)
        return error_set(error, ERR_TEMPLATE, "the template has more than %d bytes", JINJA_MAX_SOURCE_BYTES);
    JinjaProgram *program = calloc(1, sizeof *program);
    if (!program) return error_set(error, ERR_NO_MEMORY, "no memory for a template");
    arena_init(&program->arena, 64 << 10, MAX_PROGRAM_BYTES);
    JParser parser = {.program = program, .error = error};
    char *copy = copy_source(&program->arena, source, &n);
    if (!copy) {
        (void)error_set(error, ERR_NO_MEMORY, "no memory for a template");
        goto fail;
    }
    parser.lexer = (JLexer){.source = copy, .n = n, .line = 1, .arena = &program->arena, .error = error};
    if (!jinja_advance(&parser) || !parse_statements(&parser, NULL, &program->body)) goto fail;
    if (parser.unknown) {
        const JNode *node = parser.unknown;
        (void)jinja_parse_fail(&parser, node->line, "no %s named '%.*s'", node->type == N_FILTER ? "filter" : "test",
                               (int)node->text.n, node->text.data);
        goto fail;
    }
    *ret_program = program;
    return true;
fail:
    jinja_program_free(program);
    return false;
}

void jinja_program_free(JinjaProgram *program)
{
    if (!program) return;
    arena_done(&program->arena);
    free(program);
}
