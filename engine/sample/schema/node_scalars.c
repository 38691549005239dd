/* SPDX-License-Identifier: Apache-2.0 */
/* What one way to satisfy a node leaves of null, booleans, numbers and strings. */
#include "engine/sample/schema/node.h"

#include <string.h>

/* ---- kinds ---- */

static const struct {
    const char *name;
    uint32_t kinds;
} types[] = {
    {"null", KIND_NULL},     {"boolean", KIND_FALSE | KIND_TRUE},
    {"number", KIND_NUMBER}, {"integer", KIND_NUMBER},
    {"string", KIND_STRING}, {"array", KIND_ARRAY},
    {"object", KIND_OBJECT},
};

enum { N_TYPES = sizeof types / sizeof *types };

static bool kinds_of_type(Nodes *nodes, const cJSON *type, uint32_t *ret_kinds)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (!strcmp(types[i].name, type->valuestring)) {
            *ret_kinds = types[i].kinds;
            return true;
        }
    return nodes_fail(nodes, type, "'%.40s' is no type", type->valuestring);
}

static bool kinds_of(Nodes *nodes, const Leaf *leaf, uint32_t *kinds)
{
    if (leaf->part.kind == PART_LIMITS) *kinds &= ((const Scalars *)leaf->part.item)->kinds;
    if (leaf->part.kind == PART_VALUE)
        *kinds &= cJSON_IsArray((const cJSON *)leaf->part.item) ? KIND_ARRAY : KIND_OBJECT;
    if (leaf->part.kind != PART_PLAIN) return true;
    const cJSON *type = ((const Keywords *)leaf->part.item)->key[KEY_TYPE];
    uint32_t all = 0, one = 0;
    if (!type) return true;
    for (const cJSON *name = cJSON_IsArray(type) ? type->child : type; name; name = name->next) {
        if (!kinds_of_type(nodes, name, &one)) return false;
        all |= one;
        if (name == type) break;
    }
    *kinds &= all;
    return true;
}

static bool names_type(const cJSON *type, const char *name)
{
    if (cJSON_IsString(type)) return !strcmp(type->valuestring, name);
    for (const cJSON *item = type->child; item; item = item->next)
        if (!strcmp(item->valuestring, name)) return true;
    return false;
}

/* ---- numbers ---- */

/* Draft 4 has booleans in exclusiveMinimum and exclusiveMaximum. */
static bool cut_limit(Nodes *nodes, const Keywords *keywords, bool is_maximum, Numbers *numbers)
{
    const cJSON *open = keywords->key[is_maximum ? KEY_EXCLUSIVE_MAXIMUM : KEY_EXCLUSIVE_MINIMUM];
    const cJSON *closed = keywords->key[is_maximum ? KEY_MAXIMUM : KEY_MINIMUM];
    const Dfa *within;
    for (int i = 0; i < 2; i++) {
        const cJSON *item = i ? closed : open;
        if (!item || !cJSON_IsNumber(item)) continue;
        NumberLimit limit = {item->valuedouble, is_maximum, item == open || (open && cJSON_IsTrue(open))};
        if (!sets_within(&nodes->sets, limit, &within)) return nodes_say_where(nodes, item);
        if (!sets_cut_numbers(&nodes->sets, numbers, within)) return false;
    }
    return true;
}

/* The ranges of whole numbers that OpenAPI names; other formats say nothing of numbers. */
static bool cut_number_format(Nodes *nodes, const char *format, Numbers *numbers)
{
    static const struct {
        const char *name;
        double min, max;
    } formats[] = {{"int32", -2147483648.0, 2147483647.0}, {"int64", -0x1p63, 0x1p63}};
    const Dfa *low, *high;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, format)) continue;
        NumberLimit min = {formats[i].min, false, false}, max = {formats[i].max, true, false};
        if (!sets_within(&nodes->sets, min, &low) || !sets_within(&nodes->sets, max, &high) ||
            !sets_cut_numbers(&nodes->sets, numbers, low) || !sets_cut_numbers(&nodes->sets, numbers, high))
            return false;
    }
    return true;
}

static bool cut_by_keywords(Nodes *nodes, const Keywords *keywords, Numbers *numbers)
{
    const cJSON *type = keywords->key[KEY_TYPE], *factor = keywords->key[KEY_MULTIPLE_OF];
    const Dfa *dfa;
    if (type && !names_type(type, "number") &&
        !(sets_integers(&nodes->sets, &dfa) && sets_cut_numbers(&nodes->sets, numbers, dfa)))
        return false;
    if (!cut_limit(nodes, keywords, false, numbers) || !cut_limit(nodes, keywords, true, numbers)) return false;
    if (keywords->key[KEY_FORMAT] && !cut_number_format(nodes, keywords->key[KEY_FORMAT]->valuestring, numbers))
        return false;
    if (!factor) return true;
    if (!sets_multiples(&nodes->sets, factor->valuedouble, &dfa)) return nodes_say_where(nodes, factor);
    return sets_cut_numbers(&nodes->sets, numbers, dfa);
}

bool nodes_cut_numbers(Nodes *nodes, const Leaf *leaves, Numbers *numbers)
{
    for (const Leaf *leaf = leaves; leaf; leaf = leaf->next) {
        const void *item = leaf->part.item;
        if (leaf->part.kind == PART_LIMITS &&
            !sets_cut_numbers(&nodes->sets, numbers, ((const Scalars *)item)->numbers))
            return false;
        if (leaf->part.kind == PART_PLAIN && !cut_by_keywords(nodes, item, numbers)) return false;
    }
    return true;
}

/* ---- strings ---- */

static bool cut_by_text(Nodes *nodes, const Keywords *keywords, Strings *strings)
{
    const cJSON *pattern = keywords->key[KEY_PATTERN], *format = keywords->key[KEY_FORMAT];
    const Dfa *dfa = NULL;
    sets_cut_length(strings, keywords_count(keywords, KEY_MIN_LENGTH, 0),
                    keywords_count(keywords, KEY_MAX_LENGTH, UINT32_MAX));
    if (pattern &&
        !(nodes_pattern(nodes, pattern, pattern->valuestring, &dfa) && sets_cut_words(&nodes->sets, strings, dfa)))
        return false;
    if (!format) return true;
    dfa = NULL;
    if (!nodes_format(nodes, format, format->valuestring, &dfa)) return false;
    return sets_cut_words(&nodes->sets, strings, dfa);
}

bool nodes_cut_strings(Nodes *nodes, const Leaf *leaves, Strings *strings)
{
    for (const Leaf *leaf = leaves; leaf; leaf = leaf->next) {
        const void *item = leaf->part.item;
        if (leaf->part.kind == PART_LIMITS && !sets_cut_words(&nodes->sets, strings, ((const Scalars *)item)->strings))
            return false;
        if (leaf->part.kind == PART_PLAIN && !cut_by_text(nodes, item, strings)) return false;
    }
    return true;
}

/* ---- one way ---- */

static bool add_numbers(Nodes *nodes, SchemaNode *node, const Leaf *leaves)
{
    Numbers numbers = NULL;
    if (!nodes_cut_numbers(nodes, leaves, &numbers)) return false;
    if (numbers && dfa_is_empty(numbers)) return true;
    Scalars before = {.kinds = node->kinds & KIND_NUMBER, .numbers = node->numbers};
    if (node->has_all_numbers) before.numbers = NULL;
    Scalars here = {.kinds = KIND_NUMBER, .numbers = numbers}, all;
    if (!scalars_join(&nodes->sets, before, here, &all)) return false;
    node->kinds |= KIND_NUMBER;
    node->numbers = all.numbers;
    node->has_all_numbers = !all.numbers;
    return true;
}

/* Joins words of as many ways as there are in an item already, so that many ways are joined in few rounds. */
static bool join_words(Nodes *nodes, SchemaNode *node, StringsList *item)
{
    for (StringsList **at = &node->strings; *at;) {
        StringsList *other = *at;
        if (!other->strings.words || other->n_ways != item->n_ways) {
            at = &other->next;
            continue;
        }
        const Dfa *joined, *least;
        if (!dfa_combine(other->strings.words, item->strings.words, DFA_OR, nodes->arena, &joined, nodes->error) ||
            !dfa_minimize(joined, nodes->arena, &least, nodes->error))
            return false;
        item->strings.words = least;
        item->n_ways += other->n_ways;
        *at = other->next;
        at = &node->strings;
    }
    return true;
}

static bool add_strings(Nodes *nodes, SchemaNode *node, const Leaf *leaves)
{
    Strings strings = STRINGS_ALL;
    if (!nodes_cut_strings(nodes, leaves, &strings)) return false;
    if (strings.words && (strings.min || strings.max != UINT32_MAX)) {
        if (!sets_words(&nodes->sets, strings, &strings.words)) return false;
        strings = (Strings){strings.words, 0, UINT32_MAX};
    }
    if (sets_are_empty(strings)) return true;
    StringsList *item = arena_alloc(nodes->arena, sizeof *item);
    if (!item) return nodes_no_memory(nodes);
    *item = (StringsList){.strings = strings, .n_ways = 1};
    if (strings.words && !join_words(nodes, node, item)) return false;
    item->next = node->strings;
    node->strings = item;
    node->kinds |= KIND_STRING;
    return true;
}

bool nodes_add_case(Nodes *nodes, SchemaNode *node, const Leaf *leaves)
{
    uint32_t kinds = KINDS_ALL;
    if (++node->n_cases > NODE_MAX_CASES)
        return error_set(nodes->error, ERR_TOO_LARGE, "the schema has a place with more than %d alternatives",
                         NODE_MAX_CASES);
    for (const Leaf *leaf = leaves; leaf; leaf = leaf->next)
        if (!kinds_of(nodes, leaf, &kinds)) return false;
    node->kinds |= kinds & (KIND_NULL | KIND_FALSE | KIND_TRUE);
    return (!(kinds & KIND_NUMBER) || add_numbers(nodes, node, leaves)) &&
           (!(kinds & KIND_STRING) || add_strings(nodes, node, leaves)) &&
           (!(kinds & KIND_ARRAY) || nodes_add_array(nodes, node, leaves)) &&
           (!(kinds & KIND_OBJECT) || nodes_add_object(nodes, node, leaves));
}
