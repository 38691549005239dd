/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The syntax tree of a template, in the arena of its program; immutable once parsed, so that any thread may run it.
 * Private to the jinja_*.c files.
 */
#pragma once
#include "engine/text/jinja_value.h"

typedef struct JCallRow JCallRow;

typedef enum JNodeType {
    /* statements */
    N_TEXT,      /* text */
    N_OUTPUT,    /* a */
    N_IF,        /* a condition, body, orelse: statements; an elif is an N_IF in orelse's place */
    N_FOR,       /* target, a iterable, b filter or NULL, body, orelse, flag: recursive */
    N_SET,       /* target, a value */
    N_SET_BODY,  /* target, body, a: filters around N_HOLE or NULL */
    N_WITH,      /* list: N_SET, body */
    N_FILTERED,  /* a: filters around N_HOLE, body */
    N_MACRO,     /* text name, params: N_PARAM, body */
    N_CALL_BODY, /* a: the call, params, body */
    N_SCOPED,    /* body in a scope of its own: generation blocks */
    N_BREAK,
    N_CONTINUE,
    /* expressions */
    N_CONST,     /* constant */
    N_NAME,      /* text */
    N_LIST,      /* list */
    N_TUPLE,     /* list */
    N_DICT,      /* list: key, value, key, value */
    N_ATTRIBUTE, /* a object, text name */
    N_SUBSCRIPT, /* a object, b key */
    N_SLICE,     /* a object, list: start, stop, step (N_CONST none where absent) */
    N_CALL,      /* a callee, list: arguments */
    N_FILTER,    /* a input, text, row (NULL: unknown, fails when reached), list: arguments */
    N_TEST,      /* the same; op: OP_NOT when negated */
    N_UNARY,     /* op, a */
    N_BINARY,    /* op, a, b */
    N_CONCAT,    /* list */
    N_COMPARE,   /* a, list: N_OPERAND */
    N_OPERAND,   /* op, a */
    N_AND,       /* a, b */
    N_OR,        /* a, b */
    N_TERNARY,   /* a condition, b value, c other or NULL */
    N_KEYWORD,   /* text name, a value: in arguments */
    N_STAR,      /* a: *args; op OP_POW: **kwargs */
    N_PARAM,     /* text name, a default or NULL */
    N_NS_REF,    /* text namespace, text2 attribute: a target */
    N_HOLE,      /* the text that a filter block or block set has captured */
} JNodeType;

typedef enum JOp {
    OP_NONE,
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_NOT,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
} JOp;

/* What a macro's body mentions decides what it accepts. */
enum { J_USES_CALLER = 1, J_USES_VARARGS = 2, J_USES_KWARGS = 4 };

typedef struct JNode JNode;
struct JNode {
    uint8_t type; /* JNodeType */
    uint8_t op;   /* JOp */
    uint8_t uses; /* N_MACRO, N_CALL_BODY */
    bool flag;
    uint16_t height; /* of the tree below: bounds the evaluator's recursion */
    uint32_t line;
    JNode *next; /* in whatever list it stands */
    JNode *a, *b, *c;
    JNode *list, *body, *orelse, *target, *params;
    const JCallRow *row;
    JText text, text2;
    JValue constant;
};

typedef struct JinjaProgram {
    Arena arena;
    JNode *body;
} JinjaProgram;
