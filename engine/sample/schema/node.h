/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A schema as what it means: for each set of schemas that must hold together, which values of each kind are valid.
 * Nodes refer to nodes, so a recursive schema is a cycle. What is regular (numbers, strings, keys) is an exact set;
 * arrays and objects are lists of shapes, any of which will do. Private to engine/sample/schema; arena; one thread at a
 * time.
 */
#pragma once
#include "engine/sample/schema/document.h"
#include "engine/sample/schema/keywords.h"
#include "engine/sample/schema/schema.h"
#include "engine/sample/schema/sets.h"

enum {
    NODE_MAX_NODES = 20000,
    NODE_MAX_CASES = 4096, /* ways to satisfy one node, after alternatives are multiplied out */
    NODE_MAX_STEPS = 2000000,
    NODE_MAX_NESTED = 200, /* references and alternatives within one place */
    NODE_MAX_PATTERNS = 16 /* patternProperties that meet in one object */
};

typedef enum PartKind {
    PART_SCHEMA, /* cJSON: a schema, object or boolean */
    PART_NOT,    /* cJSON: a schema that must not hold */
    PART_VALUE,  /* cJSON: the value */
    PART_LIMITS, /* Scalars: kinds and what of numbers and strings is left */
    PART_PLAIN,  /* Keywords: what a schema object says of itself alone */
    PART_ENUM,   /* Keywords: these and the next three are choices that a schema object leaves */
    PART_ANY_OF,
    PART_ONE_OF,
    PART_IF,
} PartKind;

typedef struct Part {
    PartKind kind;
    const void *item;
} Part;

typedef struct SchemaNode SchemaNode;

typedef struct ArrayShape ArrayShape;
struct ArrayShape {
    SchemaNode **prefix; /* [n_prefix] */
    uint32_t n_prefix;
    SchemaNode *rest; /* NULL: nothing follows */
    uint32_t min, max;
    ArrayShape *next;
};

typedef struct Property {
    const char *name;
    SchemaNode *value;
    bool is_required;
} Property;

/* Keys that no property has, and what is valid under them. */
typedef struct KeyClass {
    const Dfa *keys;
    SchemaNode *value;
} KeyClass;

typedef struct ObjectShape ObjectShape;
struct ObjectShape {
    Property *properties; /* [n_properties] in the order of the schema */
    KeyClass *classes;    /* [n_classes] apart from each other */
    uint32_t n_properties, n_classes;
    uint32_t min, max;
    const cJSON *min_from; /* the keyword that asks for min, if any does */
    bool is_any;           /* nothing is asked */
    ObjectShape *next;
};

typedef struct StringsList {
    Strings strings;
    uint32_t n_ways; /* that it was joined of */
    struct StringsList *next;
} StringsList;

typedef enum NodeState { NODE_NEW, NODE_OPEN, NODE_DONE } NodeState;

struct SchemaNode {
    const Part *parts; /* [n_parts] sorted; all must hold; none: any value */
    const Part *given; /* [n_given] the same in the order of the schema, perhaps some twice */
    uint32_t n_parts, n_given, n_cases;
    NodeState state;
    uint32_t kinds; /* which have values; arrays and objects: shapes, perhaps without a value */
    bool has_all_numbers;
    const Dfa *numbers; /* when kinds has them */
    StringsList *strings;
    ArrayShape *arrays, **arrays_end;
    ObjectShape *objects, **objects_end;
    bool is_satisfiable; /* known after nodes_settle */
    bool is_emitted;     /* its text is known */
    uint32_t text;       /* GrammarNode */
    uint32_t rule;       /* GrammarRule, if it has arrays or objects */
    SchemaNode *next;    /* of the same hash */
};

/* Two branches of a oneOf that must not hold together. */
typedef struct Apart {
    SchemaNode *both;
    const cJSON *where;
    struct Apart *next;
} Apart;

typedef struct KnownKeywords {
    const cJSON *schema;
    Keywords keywords;
    struct KnownKeywords *next;
} KnownKeywords;

typedef struct KnownPattern {
    const char *text;
    const Dfa *dfa;
    struct KnownPattern *next;
} KnownPattern;

enum { NODE_BUCKETS = 1024 };

typedef struct Nodes {
    Arena *arena;
    SchemaDocument *document;
    const SchemaOptions *options;
    Sets sets;
    SchemaNode *buckets[NODE_BUCKETS];
    KnownKeywords *keywords[NODE_BUCKETS];
    KnownPattern *patterns, *formats;
    SchemaNode **list; /* [n_nodes] */
    uint32_t n_nodes, max_nodes;
    Apart *apart;
    const SchemaNode *root; /* its objects have all members of 'kinds' as properties */
    ObjectKinds kinds;
    uint64_t steps;
    uint64_t n_items; /* of the document's root; 0: not counted yet */
    unsigned nested;
    Error *error;
} Nodes;

/* builder: knows when to give up. */
void nodes_init(Nodes *nodes, SchemaDocument *document, const SchemaOptions *options, const GrammarBuilder *builder,
                Arena *arena, Error *error);
/* The node of these parts, in any order; it is filled later. */
LW_CHECK bool nodes_get(Nodes *nodes, const Part *parts, uint32_t n, SchemaNode **ret_node);
/* Fills a node now; those that it refers to later. */
LW_CHECK bool nodes_fill(Nodes *nodes, SchemaNode *node);
/* Fills all, tells which have values at all, and sees that the branches of each oneOf are apart. */
LW_CHECK bool nodes_settle(Nodes *nodes);
bool nodes_object_has_value(const ObjectShape *shape); /* once it is known what its members have */

/* ---- for the files of nodes_fill ---- */

/* Leaves of one way to satisfy a node: PART_PLAIN, PART_VALUE (arrays and objects), PART_LIMITS. */
typedef struct Leaf {
    Part part;
    const struct Leaf *next;
} Leaf;

/* Says where: error_set and the path of the item. */
bool nodes_fail(Nodes *nodes, const cJSON *where, const char *fmt, ...) LW_PRINTF(3, 4);
/* Puts the path of the item before an error that is set. */
bool nodes_say_where(Nodes *nodes, const cJSON *where);
bool nodes_no_memory(Nodes *nodes);
LW_CHECK bool nodes_spend(Nodes *nodes, uint64_t steps);
LW_CHECK bool nodes_keywords(Nodes *nodes, const cJSON *schema, const Keywords **ret_keywords);
LW_CHECK bool nodes_pattern(Nodes *nodes, const cJSON *where, const char *text, const Dfa **ret_dfa);
/* Keys that all forms of writing them without quotes can tell. */
LW_CHECK bool nodes_bare_keys(Nodes *nodes, const Dfa **ret_dfa);
/* *ret_dfa NULL: it says nothing of strings. */
LW_CHECK bool nodes_format(Nodes *nodes, const cJSON *where, const char *name, const Dfa **ret_dfa);
/* All values of its scalar kinds as one set each; the node is filled. */
LW_CHECK bool nodes_scalars(Nodes *nodes, SchemaNode *node, Scalars *ret_scalars);
/* What one way adds to the node. leaves: in the order of the schema. */
LW_CHECK bool nodes_add_case(Nodes *nodes, SchemaNode *node, const Leaf *leaves);
LW_CHECK bool nodes_add_array(Nodes *nodes, SchemaNode *node, const Leaf *leaves);
LW_CHECK bool nodes_add_object(Nodes *nodes, SchemaNode *node, const Leaf *leaves);
/* Numbers and strings that the leaves leave over. */
LW_CHECK bool nodes_cut_numbers(Nodes *nodes, const Leaf *leaves, Numbers *numbers);
LW_CHECK bool nodes_cut_strings(Nodes *nodes, const Leaf *leaves, Strings *strings);
