/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All ways to satisfy a node: references are followed, what must hold together becomes one list of leaves, and every
 * choice is taken in turn.
 */
#include "engine/sample/schema/node.h"
#include "engine/sample/schema/number.h"

#include <string.h>

/* A part that is still to be looked at, and the one that it comes from. */
typedef struct Pending {
    Part part;
    const struct Pending *next, *from;
} Pending;

typedef struct Way {
    Nodes *nodes;
    SchemaNode *node;
    const Pending *pending;
    const Leaf *leaves; /* the last one first */
} Way;

static bool walk(Way way);

static bool push(Way *way, PartKind kind, const void *item, const Pending *from)
{
    Pending *pending = arena_alloc(way->nodes->arena, sizeof *pending);
    if (!pending) return nodes_no_memory(way->nodes);
    *pending = (Pending){.part = {kind, item}, .next = way->pending, .from = from};
    way->pending = pending;
    return true;
}

static bool add_leaf(Way *way, PartKind kind, const void *item)
{
    Leaf *leaf = arena_alloc(way->nodes->arena, sizeof *leaf);
    if (!leaf) return nodes_no_memory(way->nodes);
    *leaf = (Leaf){.part = {kind, item}, .next = way->leaves};
    way->leaves = leaf;
    return true;
}

static bool add_limits(Way *way, Scalars limits)
{
    Scalars *own = arena_alloc(way->nodes->arena, sizeof *own);
    if (!own) return nodes_no_memory(way->nodes);
    *own = limits;
    return add_leaf(way, PART_LIMITS, own);
}

/* ---- values ---- */

/* Numbers or strings from a value on become one automaton; end: the value behind the last one, or NULL. */
static bool words_of(Nodes *nodes, const cJSON *first, const cJSON *end, bool numbers, const Dfa **ret_dfa)
{
    uint32_t n = 1;
    for (const cJSON *value = first; value != end; value = value->next) n++;
    const char **words = arena_array(nodes->arena, n, sizeof *words);
    if (!words) return nodes_no_memory(nodes);
    n = 0;
    bool has_zero = false;
    for (const cJSON *value = first; value != end; value = value->next) {
        if (!(numbers ? cJSON_IsNumber(value) : cJSON_IsString(value))) continue;
        words[n] = value->valuestring;
        if (numbers && !number_print(value->valuedouble, nodes->arena, &words[n], nodes->error))
            return nodes_say_where(nodes, value);
        has_zero |= numbers && value->valuedouble == 0;
        n++;
    }
    if (has_zero) words[n++] = "-0";
    const Dfa *dfa;
    if (!dfa_words(words, n, nodes->arena, &dfa, nodes->error)) return false;
    return numbers ? number_spellings(dfa, nodes->arena, ret_dfa, nodes->error)
                   : dfa_minimize(dfa, nodes->arena, ret_dfa, nodes->error);
}

static bool add_scalar(Nodes *nodes, const cJSON *value, Scalars *scalars)
{
    Scalars one = {.kinds = KIND_NULL};
    if (cJSON_IsBool(value)) one.kinds = cJSON_IsTrue(value) ? KIND_TRUE : KIND_FALSE;
    if (cJSON_IsNumber(value)) one.kinds = KIND_NUMBER;
    if (cJSON_IsString(value)) one.kinds = KIND_STRING;
    const Dfa **words = one.kinds == KIND_NUMBER ? &one.numbers : &one.strings;
    if ((one.kinds & (KIND_NUMBER | KIND_STRING)) &&
        !words_of(nodes, value, value->next, one.kinds == KIND_NUMBER, words))
        return false;
    return scalars_join(&nodes->sets, *scalars, one, scalars);
}

static bool is_scalar(const cJSON *value)
{
    return !cJSON_IsArray(value) && !cJSON_IsObject(value);
}

static bool add_value(Way *way, const cJSON *value)
{
    if (!is_scalar(value)) return add_leaf(way, PART_VALUE, value);
    Scalars one = {0};
    return add_scalar(way->nodes, value, &one) && add_limits(way, one);
}

static bool walk_enum(Way way, const cJSON *list)
{
    Scalars scalars = {0};
    for (const cJSON *value = list->child; value; value = value->next) {
        if (cJSON_IsNull(value)) scalars.kinds |= KIND_NULL;
        if (cJSON_IsBool(value)) scalars.kinds |= cJSON_IsTrue(value) ? KIND_TRUE : KIND_FALSE;
        if (cJSON_IsNumber(value)) scalars.kinds |= KIND_NUMBER;
        if (cJSON_IsString(value)) scalars.kinds |= KIND_STRING;
        if (is_scalar(value)) continue;
        Way branch = way;
        if (!add_leaf(&branch, PART_VALUE, value) || !walk(branch)) return false;
    }
    if ((scalars.kinds & KIND_NUMBER) && !words_of(way.nodes, list->child, NULL, true, &scalars.numbers)) return false;
    if ((scalars.kinds & KIND_STRING) && !words_of(way.nodes, list->child, NULL, false, &scalars.strings)) return false;
    return !scalars.kinds || (add_limits(&way, scalars) && walk(way));
}

/* ---- choices ---- */

static bool walk_any_of(Way way, const cJSON *list, const Pending *from)
{
    for (const cJSON *branch = list->child; branch; branch = branch->next) {
        Way taken = way;
        if (!push(&taken, PART_SCHEMA, branch, from) || !walk(taken)) return false;
    }
    return true;
}

static bool fill_one(Nodes *nodes, const cJSON *schema, SchemaNode **ret_node)
{
    return nodes_get(nodes, &(Part){PART_SCHEMA, schema}, 1, ret_node) && nodes_fill(nodes, *ret_node);
}

/* What exactly one branch has among the scalars. */
static bool scalars_of_one(Nodes *nodes, const cJSON *list, Scalars *ret_once)
{
    Scalars once = {0}, seen = {0};
    for (const cJSON *branch = list->child; branch; branch = branch->next) {
        SchemaNode *node;
        Scalars here, fresh, left;
        if (!fill_one(nodes, branch, &node) || !nodes_scalars(nodes, node, &here)) return false;
        if (!scalars_subtract(&nodes->sets, here, seen, &fresh) || !scalars_subtract(&nodes->sets, once, here, &left) ||
            !scalars_join(&nodes->sets, left, fresh, &once) || !scalars_join(&nodes->sets, seen, here, &seen))
            return false;
    }
    *ret_once = once;
    return true;
}

static bool is_true(const cJSON *schema)
{
    return cJSON_IsTrue(schema) || (cJSON_IsObject(schema) && !schema->child);
}

/* The same schema twice among the branches: what it allows is never allowed by one alone. */
static bool has_twin(const cJSON *list, const cJSON *branch)
{
    for (const cJSON *other = list->child; other; other = other->next)
        if (other != branch && ((is_true(other) && is_true(branch)) || cJSON_Compare(other, branch, true))) return true;
    return false;
}

enum { STRUCTURED = KIND_ARRAY | KIND_OBJECT };

/* Branches are compared with each other, name by name: of schemas as people write them that is little work. */
enum { PAIRS_PER_STEP = 4096 };

/* A branch of a oneOf: what it refers to, or itself, and how many items stand in both. */
typedef struct Branch {
    const cJSON *target;
    uint64_t n_items;
} Branch;

typedef struct Branches {
    Branch *list; /* [n] */
    uint64_t n, n_items;
} Branches;

/* That the two have no array and no object in common is looked at when all nodes are filled. */
static bool keep_apart(Way *way, const Keywords *keywords, const cJSON *a, const cJSON *b, const Scalars *structured)
{
    Nodes *nodes = way->nodes;
    const Part parts[] = {{PART_PLAIN, keywords}, {PART_SCHEMA, a}, {PART_SCHEMA, b}, {PART_LIMITS, structured}};
    Apart *apart = arena_alloc(nodes->arena, sizeof *apart);
    if (!apart) return nodes_no_memory(nodes);
    *apart = (Apart){.where = keywords->key[KEY_ONE_OF], .next = nodes->apart};
    nodes->apart = apart;
    return nodes_get(nodes, parts, 4, &apart->both);
}

static const cJSON *member_of(const cJSON *object, const char *name)
{
    return cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, name) : NULL;
}

static bool is_required(const cJSON *schema, const char *name)
{
    const cJSON *required = member_of(schema, "required");
    for (const cJSON *item = required ? required->child : NULL; item; item = item->next)
        if (cJSON_IsString(item) && !strcmp(item->valuestring, name)) return true;
    return false;
}

/* What a branch refers to, or the branch. Takes steps for all that has to be looked at to find it. */
static bool target_of(Nodes *nodes, const cJSON *branch, const cJSON **ret_target)
{
    const cJSON *reference = member_of(branch, "$ref");
    Error ignored;
    *ret_target = branch;
    if (!cJSON_IsString(reference)) return true;
    if (!nodes->n_items) nodes->n_items = schema_count_items(schema_document_root(nodes->document));
    if (!nodes_spend(nodes, 1 + nodes->n_items / PAIRS_PER_STEP)) return false;
    return schema_document_resolve(nodes->document, branch, reference->valuestring, ret_target, &ignored) ||
           ignored.code != ERR_NO_MEMORY || nodes_no_memory(nodes);
}

static bool find_branches(Nodes *nodes, const cJSON *list, Branches *ret)
{
    *ret = (Branches){.list = arena_array(nodes->arena, (size_t)cJSON_GetArraySize(list), sizeof *ret->list)};
    if (!ret->list) return nodes_no_memory(nodes);
    for (const cJSON *item = list->child; item; item = item->next) {
        Branch *branch = &ret->list[ret->n++];
        if (!target_of(nodes, item, &branch->target)) return false;
        branch->n_items = schema_count_items(item) + (branch->target == item ? 0 : schema_count_items(branch->target));
        ret->n_items += branch->n_items;
    }
    return true;
}

/* Names of this branch are looked for in the other one, and in what both require. */
static uint64_t steps_of_pairs(const Branches *branches, const Branch *branch)
{
    uint64_t n = branch->n_items;
    return 1 + n * (branches->n_items + branches->n * n) / PAIRS_PER_STEP;
}

/*
 * The usual union: objects that tell by a property with a constant of its own which one they are. A name is looked for
 * among all of the other one's.
 */
static bool has_other_tag(const cJSON *a, const cJSON *b)
{
    const cJSON *type = member_of(a, "type"), *properties = member_of(a, "properties");
    const cJSON *its_properties = member_of(b, "properties");
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "object") || !properties || !its_properties) return false;
    for (const cJSON *item = properties->child; item; item = item->next) {
        const cJSON *mine = member_of(item, "const");
        if (!cJSON_IsString(mine)) continue;
        const cJSON *its = member_of(member_of(its_properties, item->string), "const");
        if (cJSON_IsString(its) && strcmp(mine->valuestring, its->valuestring) != 0 && is_required(a, item->string) &&
            is_required(b, item->string))
            return true;
    }
    return false;
}

/* All pairs of branch i that have to have nothing in common. */
static bool keep_others_apart(Way *way, const Keywords *keywords, const Branches *branches, const cJSON *branch,
                              uint64_t i)
{
    static const Scalars structured = {.kinds = STRUCTURED};
    const cJSON *first = branches->list[i].target;
    if (!nodes_spend(way->nodes, steps_of_pairs(branches, &branches->list[i]))) return false;
    for (const cJSON *other = branch->next; other; other = other->next) {
        const cJSON *target = branches->list[++i].target;
        if (is_true(other) && is_true(branch)) continue;
        if (has_other_tag(first, target) || cJSON_Compare(other, branch, true)) continue;
        if (!keep_apart(way, keywords, branch, other, &structured)) return false;
    }
    return true;
}

static bool walk_one_of(Way way, const Keywords *keywords, const Pending *from)
{
    static const Scalars structured = {.kinds = STRUCTURED};
    const cJSON *list = keywords->key[KEY_ONE_OF];
    Branches branches;
    Scalars once;
    uint64_t i = 0;
    if (!find_branches(way.nodes, list, &branches) || !scalars_of_one(way.nodes, list, &once)) return false;
    Way scalars = way;
    if (once.kinds && (!add_limits(&scalars, once) || !walk(scalars))) return false;
    for (const cJSON *branch = list->child; branch; branch = branch->next, i++) {
        SchemaNode *node;
        if (!fill_one(way.nodes, branch, &node)) return false;
        if (!(node->kinds & STRUCTURED)) continue;
        if (!keep_others_apart(&way, keywords, &branches, branch, i)) return false;
        bool twin = has_twin(list, branch);
        Way taken = way;
        if (!twin && !(add_limits(&taken, structured) && push(&taken, PART_SCHEMA, branch, from) && walk(taken)))
            return false;
    }
    return true;
}

static bool is_any_array(const SchemaNode *node)
{
    for (const ArrayShape *shape = node->arrays; shape; shape = shape->next)
        if (!shape->n_prefix && shape->rest && !shape->rest->n_parts && !shape->min && shape->max == UINT32_MAX)
            return true;
    return false;
}

static bool is_any_object(const SchemaNode *node)
{
    for (const ObjectShape *shape = node->objects; shape; shape = shape->next)
        if (shape->is_any) return true;
    return false;
}

/* Exact for scalars; of arrays and objects the schema must take all or none. */
static bool add_not(Way *way, const cJSON *schema)
{
    Nodes *nodes = way->nodes;
    SchemaNode *node;
    Scalars taken, left = {.kinds = KINDS_ALL};
    if (!fill_one(nodes, schema, &node) || !nodes_scalars(nodes, node, &taken) ||
        !scalars_subtract(&nodes->sets, left, taken, &left))
        return false;
    bool some_arrays = (node->kinds & KIND_ARRAY) && !is_any_array(node);
    bool some_objects = (node->kinds & KIND_OBJECT) && !is_any_object(node);
    if (some_arrays || some_objects)
        return nodes_fail(nodes, schema, "to exclude some %s is not supported ('not', 'if')",
                          some_arrays ? "arrays" : "objects");
    left.kinds &= ~(node->kinds & STRUCTURED);
    return add_limits(way, left);
}

static bool walk_if(Way way, const Keywords *keywords, const Pending *from)
{
    const cJSON *condition = keywords->key[KEY_IF], *yes = keywords->key[KEY_THEN], *no = keywords->key[KEY_ELSE];
    Way taken = way;
    if (!push(&taken, PART_SCHEMA, condition, from) || (yes && !push(&taken, PART_SCHEMA, yes, from)) || !walk(taken))
        return false;
    if (!push(&way, PART_NOT, condition, from)) return false;
    return !(no && !push(&way, PART_SCHEMA, no, from)) && walk(way);
}

/* ---- schemas ---- */

static bool push_all(Way *way, const cJSON *list, const Pending *from)
{
    /* the first one is to be on top */
    for (const cJSON *item = list->child ? list->child->prev : NULL; item; item = item->prev) {
        if (!push(way, PART_SCHEMA, item, from)) return false;
        if (item == list->child) break;
    }
    return true;
}

static bool push_choices(Way *way, const Keywords *keywords, const Pending *from)
{
    static const struct {
        Keyword key;
        PartKind kind;
    } choices[] = {{KEY_ENUM, PART_ENUM}, {KEY_ANY_OF, PART_ANY_OF}, {KEY_ONE_OF, PART_ONE_OF}, {KEY_IF, PART_IF}};
    for (size_t i = sizeof choices / sizeof *choices; i-- > 0;)
        if (keywords->key[choices[i].key] && !push(way, choices[i].kind, keywords, from)) return false;
    return true;
}

static bool enter_schema(Way *way, const Pending *pending)
{
    Nodes *nodes = way->nodes;
    const cJSON *schema = pending->part.item, *target;
    const Keywords *keywords;
    for (const Pending *from = pending->from; from; from = from->from)
        if (from->part.item == schema) return nodes_fail(nodes, schema, "a '$ref' leads back to where it stands");
    if (!nodes_keywords(nodes, schema, &keywords)) return false;
    const cJSON *ref = keywords->key[KEY_REF];
    bool alone = ref && nodes->options->ref_stands_alone;
    if (!alone) {
        if (!push_choices(way, keywords, pending)) return false;
        if (keywords->key[KEY_NOT] && !push(way, PART_NOT, keywords->key[KEY_NOT], pending)) return false;
        if (keywords->key[KEY_ALL_OF] && !push_all(way, keywords->key[KEY_ALL_OF], pending)) return false;
    }
    if (ref) {
        if (!schema_document_resolve(nodes->document, schema, ref->valuestring, &target, nodes->error))
            return nodes_say_where(nodes, schema);
        if (!push(way, PART_SCHEMA, target, pending)) return false;
    }
    if (!alone && keywords->key[KEY_CONST] && !push(way, PART_VALUE, keywords->key[KEY_CONST], pending)) return false;
    return alone || add_leaf(way, PART_PLAIN, keywords);
}

static bool finish(Way way)
{
    const Leaf *ordered = NULL;
    way.pending = NULL;
    for (const Leaf *leaf = way.leaves; leaf; leaf = leaf->next) {
        Leaf *copy = arena_alloc(way.nodes->arena, sizeof *copy);
        if (!copy) return nodes_no_memory(way.nodes);
        *copy = (Leaf){.part = leaf->part, .next = ordered};
        ordered = copy;
    }
    return nodes_add_case(way.nodes, way.node, ordered);
}

/* *ret_ends: a choice took over, or nothing is valid this way. */
static bool enter(Way *way, const Pending *pending, bool *ret_ends)
{
    const void *item = pending->part.item;
    *ret_ends = true;
    switch (pending->part.kind) {
    case PART_ENUM:
        return walk_enum(*way, ((const Keywords *)item)->key[KEY_ENUM]);
    case PART_ANY_OF:
        return walk_any_of(*way, ((const Keywords *)item)->key[KEY_ANY_OF], pending);
    case PART_ONE_OF:
        return walk_one_of(*way, item, pending);
    case PART_IF:
        return walk_if(*way, item, pending);
    case PART_SCHEMA:
        if (cJSON_IsFalse((const cJSON *)item)) return true;
        *ret_ends = false;
        return cJSON_IsTrue((const cJSON *)item) || enter_schema(way, pending);
    case PART_NOT:
        *ret_ends = false;
        return add_not(way, item);
    case PART_VALUE:
        *ret_ends = false;
        return add_value(way, item);
    case PART_LIMITS:
    case PART_PLAIN:
        break;
    }
    *ret_ends = false;
    return add_leaf(way, pending->part.kind, item);
}

static bool walk(Way way)
{
    Nodes *nodes = way.nodes;
    bool ends = false, ok = true;
    if (nodes->nested >= NODE_MAX_NESTED)
        return error_set(nodes->error, ERR_TOO_LARGE, "the schema nests more than %d alternatives", NODE_MAX_NESTED);
    nodes->nested++;
    while (ok && !ends && way.pending) {
        const Pending *pending = way.pending;
        way.pending = pending->next;
        ok = nodes_spend(nodes, 1) && enter(&way, pending, &ends);
    }
    if (ok && !ends) ok = finish(way);
    nodes->nested--;
    return ok;
}

bool nodes_fill(Nodes *nodes, SchemaNode *node)
{
    if (node->state == NODE_DONE) return true;
    if (node->state == NODE_OPEN)
        return error_set(nodes->error, ERR_SCHEMA,
                         "a schema refers to itself in 'not', 'if' or 'oneOf' before any value");
    node->state = NODE_OPEN;
    Way way = {.nodes = nodes, .node = node};
    for (uint32_t i = node->n_given; i-- > 0;)
        if (!push(&way, node->given[i].kind, node->given[i].item, NULL)) return false;
    if (!walk(way)) return false;
    node->state = NODE_DONE;
    return true;
}
