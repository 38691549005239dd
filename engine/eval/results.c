/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/results.h"

#include "engine/eval/files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES_READ 0x1p60
enum { MAX_DEPTH = 8, MAX_ROW_ITEMS = 1 << 16 };

typedef enum MemberKind {
    MEMBER_TEXT,
    MEMBER_COUNT,
    MEMBER_REAL,
    MEMBER_BYTES,
    MEMBER_FLAGS,
    MEMBER_REALS,
    MEMBER_COUNTS
} MemberKind;

typedef struct Member {
    const char *name;
    MemberKind kind;
} Member;

static const Member answers_members[] = {
    {"policy", MEMBER_TEXT},
    {"task", MEMBER_TEXT},
    {"length", MEMBER_COUNT},
    {"haystack", MEMBER_COUNT},
    {"right", MEMBER_FLAGS},
    {"log_probs", MEMBER_REALS},
    {"needles", MEMBER_COUNTS},
    {"prefill_seconds", MEMBER_REAL},
    {"seconds", MEMBER_REAL},
    {"kv_bytes", MEMBER_BYTES},
    {"select_bytes", MEMBER_BYTES},
    {"dense_bytes", MEMBER_BYTES},
    {NULL, 0},
};
static const Member rows_members[] = {
    {"policy", MEMBER_TEXT},        {"kind", MEMBER_TEXT},         {"position", MEMBER_COUNT},
    {"same_top", MEMBER_FLAGS},     {"kl", MEMBER_REALS},          {"nll", MEMBER_REALS},
    {"dense_nll", MEMBER_REALS},    {"seconds", MEMBER_REAL},      {"kv_bytes", MEMBER_BYTES},
    {"select_bytes", MEMBER_BYTES}, {"dense_bytes", MEMBER_BYTES}, {NULL, 0},
};
static const Member recall_members[] = {
    {"policy", MEMBER_TEXT},    {"position", MEMBER_COUNT},  {"layer", MEMBER_COUNT},
    {"n", MEMBER_COUNT},        {"recall", MEMBER_REAL},     {"mass", MEMBER_REAL},
    {"best_mass", MEMBER_REAL}, {"range_mass", MEMBER_REAL}, {NULL, 0},
};

static const Member estimates_members[] = {
    {"policy", MEMBER_TEXT},
    {"position", MEMBER_COUNT},
    {"estimated", MEMBER_REALS},
    {"missing", MEMBER_REALS},
    {NULL, 0},
};

static const struct {
    const char *name;
    const Member *members;
} lists[] = {
    {"answers", answers_members}, {"rows", rows_members}, {"recall", recall_members}, {"estimates", estimates_members}};
enum { N_LISTS = sizeof lists / sizeof *lists };

static bool no_memory(Error *error)
{
    return error_set(error, ERR_NO_MEMORY, "no memory for the results");
}

double results_number(const cJSON *item, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(item, name)->valuedouble;
}

const char *results_text(const cJSON *item, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(item, name)->valuestring;
}

static bool is_count(const cJSON *item)
{
    return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 4294967296.0 &&
           item->valuedouble == floor(item->valuedouble);
}

static bool is_flags(const cJSON *item)
{
    return cJSON_IsString(item) && strspn(item->valuestring, "01") == strlen(item->valuestring) &&
           strlen(item->valuestring) <= MAX_ROW_ITEMS;
}

static bool is_list(const cJSON *item, bool (*fits)(const cJSON *))
{
    uint32_t n = 0;
    if (!cJSON_IsArray(item)) return false;
    for (const cJSON *one = item->child; one; one = one->next)
        if (!fits(one) || ++n > MAX_ROW_ITEMS) return false;
    return true;
}

static bool is_real(const cJSON *item)
{
    return cJSON_IsNumber(item) && isfinite(item->valuedouble);
}

/* Names come to terminals and pages. */
static bool is_name(const cJSON *item)
{
    if (!cJSON_IsString(item) || strlen(item->valuestring) >= RESULTS_MAX_NAME) return false;
    for (const char *at = item->valuestring; *at; at++)
        if (*at < ' ' || *at > '~') return false;
    return true;
}

static bool member_fits(const cJSON *item, MemberKind kind)
{
    switch (kind) {
    case MEMBER_TEXT:
        return is_name(item);
    case MEMBER_COUNT:
        return is_count(item);
    case MEMBER_REAL:
        return is_real(item);
    case MEMBER_BYTES:
        return is_real(item) && item->valuedouble >= 0 && item->valuedouble <= MAX_BYTES_READ;
    case MEMBER_FLAGS:
        return is_flags(item);
    case MEMBER_REALS:
        return is_list(item, is_real);
    default:
        return is_list(item, is_count);
    }
}

/* Lists of one item belong together, one element a question or row. */
static bool check_lengths(const cJSON *item, const Member *members)
{
    size_t n = SIZE_MAX;
    for (const Member *member = members; member->name; member++) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(item, member->name);
        size_t own = member->kind == MEMBER_FLAGS   ? strlen(value->valuestring)
                     : member->kind >= MEMBER_REALS ? (size_t)cJSON_GetArraySize(value)
                                                    : n;
        if (n == SIZE_MAX) n = own;
        if (own != n) return false;
    }
    return true;
}

static bool check_list(const cJSON *root, const char *name, const Member *members, Error *error)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, name);
    uint32_t n = 0;
    if (!cJSON_IsArray(list)) return error_set(error, ERR_INVALID, "'%s' is not a list", name);
    for (const cJSON *item = list->child; item; item = item->next, n++) {
        if (n == RESULTS_MAX_ITEMS || !cJSON_IsObject(item))
            return error_set(error, ERR_INVALID, "'%s' has too many items, or one that is no object", name);
        for (const Member *member = members; member->name; member++)
            if (!member_fits(cJSON_GetObjectItemCaseSensitive(item, member->name), member->kind))
                return error_set(error, ERR_INVALID, "item %u of '%s' has no proper '%s'", n, name, member->name);
        if (!check_lengths(item, members))
            return error_set(error, ERR_INVALID, "item %u of '%s' has lists of different lengths", n, name);
    }
    return true;
}

bool results_new(const cJSON *identity, Results *ret_results, Error *error)
{
    cJSON *root = cJSON_CreateObject(), *copy = cJSON_Duplicate(identity, true);
    bool ok = root && copy && cJSON_AddNumberToObject(root, "longwave_eval", 1);
    if (ok && (ok = cJSON_AddItemToObject(root, "identity", copy))) copy = NULL;
    for (uint32_t i = 0; ok && i < N_LISTS; i++) ok = cJSON_AddArrayToObject(root, lists[i].name);
    cJSON_Delete(copy);
    if (ok)
        *ret_results = (Results){root};
    else
        cJSON_Delete(root);
    return ok || no_memory(error);
}

/* Deeper than any results, a hostile text would only take cJSON's recursion far. */
static bool check_depth(const char *text, size_t n, Error *error)
{
    uint32_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        if (in_string) {
            if (text[i] == '\\')
                i++;
            else if (text[i] == '"')
                in_string = false;
            continue;
        }
        in_string = text[i] == '"';
        if (text[i] == '{' || text[i] == '[') depth++;
        if ((text[i] == '}' || text[i] == ']') && depth) depth--;
        if (depth > MAX_DEPTH) return error_set(error, ERR_INVALID, "byte %zu: is nested too deep", i);
    }
    return true;
}

/* What stands there twice would be read once, and the other one written back for ever. */
static bool check_members(const cJSON *root, Error *error)
{
    for (const cJSON *item = cJSON_IsObject(root) ? root->child : NULL; item; item = item->next)
        for (const cJSON *other = root->child; other != item; other = other->next)
            if (!strcmp(other->string, item->string))
                return error_set(error, ERR_INVALID, "'%.64s' comes twice", item->string);
    return true;
}

bool results_read_json(const char *text, size_t n, cJSON **ret_root, Error *error)
{
    const char *end = NULL;
    if (!check_depth(text, n, error)) return false;
    cJSON *root = cJSON_ParseWithLengthOpts(text, n, &end, false);
    while (root && end < text + n && *end && strchr(" \t\r\n", *end)) end++;
    bool ok = root && end == text + n;
    if (!ok)
        error_set(error, ERR_INVALID, "byte %zu: is no JSON from there on, or too much for the memory",
                  end ? (size_t)(end - text) : 0);
    ok = ok && check_members(root, error);
    if (ok)
        *ret_root = root;
    else
        cJSON_Delete(root);
    return ok;
}

bool results_same_identity(const cJSON *identity, const cJSON *own, Error *error)
{
    if (!cJSON_IsObject(own)) return error_set(error, ERR_INVALID, "'identity' is no object");
    for (const cJSON *item = identity->child; item; item = item->next)
        if (!cJSON_Compare(item, cJSON_GetObjectItemCaseSensitive(own, item->string), true))
            return error_set(error, ERR_INVALID, "was measured with another '%s'", item->string);
    for (const cJSON *item = own->child; item; item = item->next)
        if (!cJSON_GetObjectItemCaseSensitive(identity, item->string))
            return error_set(error, ERR_INVALID, "was measured with another '%.64s'", item->string);
    return true;
}

static bool check_root(const cJSON *root, const cJSON *identity, Error *error)
{
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(root, "longwave_eval");
    if (!cJSON_IsObject(root) || !cJSON_IsNumber(version) || version->valuedouble != 1)
        return error_set(error, ERR_INVALID, "is no results of longwave eval");
    if (!results_same_identity(identity, cJSON_GetObjectItemCaseSensitive(root, "identity"), error)) return false;
    for (uint32_t i = 0; i < N_LISTS; i++)
        if (!check_list(root, lists[i].name, lists[i].members, error)) return false;
    return true;
}

bool results_parse(const char *text, size_t n, const cJSON *identity, Results *ret_results, Error *error)
{
    cJSON *root;
    if (!results_read_json(text, n, &root, error)) return false;
    if (!check_root(root, identity, error)) {
        cJSON_Delete(root);
        return false;
    }
    /* What is derived is made anew. */
    cJSON_DeleteItemFromObjectCaseSensitive(root, "summary");
    *ret_results = (Results){root};
    return true;
}

bool results_load(const char *path, const cJSON *identity, Results *ret_results, Error *error)
{
    Buffer text;
    buffer_init(&text, RESULTS_MAX_BYTES);
    bool ok = file_read(path, &text, error);
    if (!ok && error->code == ERR_NOT_FOUND)
        ok = results_new(identity, ret_results, error);
    else
        ok = ok && (results_parse(text.n ? text.data : "", text.n, identity, ret_results, error) ||
                    error_prefix(error, "%s", path));
    buffer_done(&text);
    return ok;
}

bool results_save(const Results *results, const char *path, Error *error)
{
    char *text = cJSON_PrintUnformatted(results->root);
    if (!text) return no_memory(error);
    bool ok = file_replace(path, text, strlen(text), error);
    cJSON_free(text);
    return ok;
}

void results_done(Results *results)
{
    cJSON_Delete(results->root);
    results->root = NULL;
}

static bool has_text(const cJSON *item, const char *name, const char *text)
{
    return !strcmp(results_text(item, name), text);
}

static const cJSON *first_item(const Results *results, const char *list)
{
    return cJSON_GetObjectItemCaseSensitive(results->root, list)->child;
}

const cJSON *results_answers(const Results *results, const AnswersKey *key)
{
    const cJSON *item = first_item(results, "answers");
    for (; item; item = item->next)
        if (results_number(item, "length") == key->length && results_number(item, "haystack") == key->haystack &&
            has_text(item, "policy", key->policy) && has_text(item, "task", key->task))
            break;
    return item;
}

const cJSON *results_rows(const Results *results, const RowsKey *key)
{
    const cJSON *item = first_item(results, "rows");
    for (; item; item = item->next)
        if (results_number(item, "position") == key->position && has_text(item, "policy", key->policy) &&
            has_text(item, "kind", key->kind))
            break;
    return item;
}

static bool has_position(const Results *results, const char *list, const char *policy, uint32_t position)
{
    for (const cJSON *item = first_item(results, list); item; item = item->next)
        if (results_number(item, "position") == position && has_text(item, "policy", policy)) return true;
    return false;
}

bool results_has_recall(const Results *results, const char *policy, uint32_t position)
{
    return has_position(results, "recall", policy, position);
}

bool results_has_estimates(const Results *results, const char *policy, uint32_t position)
{
    return has_position(results, "estimates", policy, position);
}

/* An item on its way: the first failure sticks. */
typedef struct Maker {
    cJSON *item;
    const char *policy, *broken; /* the member that is no number; NULL: none */
    bool failed;
} Maker;

static void put_text(Maker *maker, const char *name, const char *text)
{
    maker->failed = maker->failed || !cJSON_AddStringToObject(maker->item, name, text);
}

/* Six significant digits are more than any of it is sure of; counts are whole. */
static double rounded(double x)
{
    if (x == 0 || (x == floor(x) && fabs(x) < 0x1p53)) return x;
    double unit = pow(10, 5 - floor(log10(fabs(x))));
    return isfinite(unit) ? round(x * unit) / unit : 0;
}

static void check(Maker *maker, const char *name, double x)
{
    if (!isfinite(x) && !maker->broken) maker->broken = name;
}

static void put_number(Maker *maker, const char *name, double x)
{
    check(maker, name, x);
    maker->failed = maker->failed || !cJSON_AddNumberToObject(maker->item, name, rounded(x));
}

static void put_counts(Maker *maker, const KvCounts *counts)
{
    put_number(maker, "kv_bytes", (double)counts->kv_bytes);
    put_number(maker, "select_bytes", (double)counts->select_bytes);
    put_number(maker, "dense_bytes", (double)counts->dense_bytes);
}

/* value(arg, i) of n elements. */
static void put_reals(Maker *maker, const char *name, uint32_t n, double (*value)(const void *, uint32_t),
                      const void *arg)
{
    cJSON *list = maker->failed ? NULL : cJSON_AddArrayToObject(maker->item, name);
    maker->failed = !list;
    for (uint32_t i = 0; i < n && !maker->failed; i++) {
        check(maker, name, value(arg, i));
        cJSON *number = cJSON_CreateNumber(rounded(value(arg, i)));
        maker->failed = !number || !cJSON_AddItemToArray(list, number);
    }
}

static void put_flags(Maker *maker, const char *name, uint32_t n, bool (*flag)(const void *, uint32_t), const void *arg)
{
    char *text = malloc((size_t)n + 1);
    maker->failed = maker->failed || !text;
    if (!maker->failed) {
        for (uint32_t i = 0; i < n; i++) text[i] = flag(arg, i) ? '1' : '0';
        text[n] = '\0';
        put_text(maker, name, text);
    }
    free(text);
}

static bool finish(Results *results, const char *list, Maker *maker, Error *error)
{
    bool ok = !maker->failed && !maker->broken &&
              cJSON_AddItemToArray(cJSON_GetObjectItemCaseSensitive(results->root, list), maker->item);
    if (!ok) cJSON_Delete(maker->item);
    if (maker->broken)
        return error_set(error, ERR_NON_FINITE, "policy '%.64s': '%s' is not finite", maker->policy, maker->broken);
    return ok || no_memory(error);
}

static Maker start(const char *policy)
{
    Maker maker = {.item = cJSON_CreateObject(), .policy = policy};
    maker.failed = !maker.item;
    put_text(&maker, "policy", policy);
    return maker;
}

static bool is_right(const void *answers, uint32_t i)
{
    return ((const Answer *)answers)[i].is_right;
}

static double log_prob_at(const void *answers, uint32_t i)
{
    return ((const Answer *)answers)[i].log_prob;
}

static double needle_at(const void *questions, uint32_t i)
{
    return ((const EvalQuestion *)questions)[i].needle;
}

bool results_add_answers(Results *results, const AnswersCell *cell, Error *error)
{
    Maker maker = start(cell->key.policy);
    put_text(&maker, "task", cell->key.task);
    put_number(&maker, "length", cell->key.length);
    put_number(&maker, "haystack", cell->key.haystack);
    put_flags(&maker, "right", cell->n, is_right, cell->answers);
    put_reals(&maker, "log_probs", cell->n, log_prob_at, cell->answers);
    put_reals(&maker, "needles", cell->n, needle_at, cell->questions);
    put_number(&maker, "prefill_seconds", cell->prefill_seconds);
    put_number(&maker, "seconds", cell->seconds);
    put_counts(&maker, &cell->counts);
    return finish(results, "answers", &maker, error);
}

static double real_at(const void *values, uint32_t i)
{
    return ((const double *)values)[i];
}

static bool flag_at(const void *values, uint32_t i)
{
    return ((const bool *)values)[i];
}

bool results_add_rows(Results *results, const RowsCell *cell, Error *error)
{
    Maker maker = start(cell->key.policy);
    put_text(&maker, "kind", cell->key.kind);
    put_number(&maker, "position", cell->key.position);
    put_flags(&maker, "same_top", cell->n, flag_at, cell->same_top);
    put_reals(&maker, "kl", cell->n, real_at, cell->kl);
    put_reals(&maker, "nll", cell->n, real_at, cell->nll);
    put_reals(&maker, "dense_nll", cell->n, real_at, cell->dense_nll);
    put_number(&maker, "seconds", cell->seconds);
    put_counts(&maker, &cell->counts);
    return finish(results, "rows", &maker, error);
}

bool results_add_recall(Results *results, const RecallCell *cell, Error *error)
{
    Maker maker = start(cell->policy);
    put_number(&maker, "position", cell->position);
    put_number(&maker, "layer", cell->layer);
    put_number(&maker, "n", cell->n);
    put_number(&maker, "recall", cell->recall);
    put_number(&maker, "mass", cell->mass);
    put_number(&maker, "best_mass", cell->best_mass);
    put_number(&maker, "range_mass", cell->range_mass);
    return finish(results, "recall", &maker, error);
}

bool results_add_estimates(Results *results, const EstimatesCell *cell, Error *error)
{
    Maker maker = start(cell->policy);
    put_number(&maker, "position", cell->position);
    put_reals(&maker, "estimated", cell->n, real_at, cell->estimated);
    put_reals(&maker, "missing", cell->n, real_at, cell->missing);
    return finish(results, "estimates", &maker, error);
}
