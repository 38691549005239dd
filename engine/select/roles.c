/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/roles.h"

#include "base/buffer.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FNV_PRIME UINT64_C(1099511628211)
#define SHARE_SLACK 1e-9 /* a tenth ten times is one */
enum { MAX_TOKENS = 1 << 28, DEFAULT_SINK = 128, DEFAULT_RECENT = 256, DEFAULT_RECENT_PREFILL = 2048 }; /* LServe 3.3 */

static bool refuse_member(const char *name, const char *member, const char *why, Error *error)
{
    return error_set_param(error, ERR_INVALID, "roles", "'%.64s': '%.64s' %s", name, member, why);
}

/* A whole number of tokens; *value stays when the member is not there. */
static bool read_tokens(const cJSON *root, const char *name, const char *member, uint32_t min, uint32_t *value,
                        Error *error)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, member);
    if (!item) return true;
    double x = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(x >= min && x <= MAX_TOKENS) || x != (double)(uint32_t)x || (uint32_t)x % KV_PAGE_TOKENS)
        return refuse_member(name, member, "is not a number of tokens that is a multiple of 64", error);
    *value = (uint32_t)x;
    return true;
}

static bool read_index(const cJSON *item, const char *name, const char *member, uint32_t n, uint32_t *ret_index,
                       Error *error)
{
    double x = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(x >= 0 && x < n) || x != (double)(uint32_t)x)
        return error_set_param(error, ERR_INVALID, "roles", "'%.64s': '%s' is not a whole number from 0 to %u", name,
                               member, n - 1);
    *ret_index = (uint32_t)x;
    return true;
}

static bool known_members(const cJSON *object, const char *name, const char *const *members, Error *error)
{
    for (const cJSON *item = object->child; item; item = item->next) {
        size_t i = 0;
        while (members[i] && strcmp(members[i], item->string)) i++;
        if (!members[i]) return refuse_member(name, item->string, "is not known", error);
        for (const cJSON *other = object->child; other != item; other = other->next)
            if (!strcmp(other->string, item->string)) return refuse_member(name, item->string, "comes twice", error);
    }
    return true;
}

/* {"layer": 3, "heads": [0, 2]} */
static bool read_layer(const cJSON *entry, const char *name, const ModelShape *shape, uint8_t *streams, Error *error)
{
    static const char *const members[] = {"layer", "heads", NULL};
    uint32_t layer = 0, head = 0;
    if (!cJSON_IsObject(entry)) return refuse_member(name, "streaming", "has something that is no object", error);
    if (!known_members(entry, name, members, error)) return false;
    if (!read_index(cJSON_GetObjectItemCaseSensitive(entry, "layer"), name, "layer", shape->n_layers, &layer, error))
        return false;
    const cJSON *heads = cJSON_GetObjectItemCaseSensitive(entry, "heads");
    if (!cJSON_IsArray(heads)) return refuse_member(name, "heads", "is not a list", error);
    for (const cJSON *item = heads->child; item; item = item->next) {
        if (!read_index(item, name, "heads", shape->n_kv_heads, &head, error)) return false;
        streams[(size_t)layer * shape->n_kv_heads + head] = 1;
    }
    return true;
}

/* A file of `calibrate` is for the model that it was made with, and whole. */
static bool read_calibration(const cJSON *root, const char *name, uint64_t fingerprint, Error *error)
{
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(root, "longwave_calibration");
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(root, "model");
    char own[24];
    if (version && !(cJSON_IsNumber(version) && version->valuedouble == 1))
        return refuse_member(name, "longwave_calibration", "is not 1", error);
    if (version && !cJSON_GetObjectItemCaseSensitive(root, "streaming"))
        return refuse_member(name, "streaming", "is missing: the calibration has not come to its end", error);
    if (!model) return !version || refuse_member(name, "model", "is missing", error);
    snprintf(own, sizeof own, "%016" PRIx64, fingerprint);
    if (!cJSON_IsString(model)) return refuse_member(name, "model", "is no text", error);
    return !strcmp(model->valuestring, own) ||
           error_set_param(error, ERR_INVALID, "roles", "'%.64s' is for the model %.40s, not for %s", name,
                           model->valuestring, own);
}

static bool read_roles(const cJSON *root, const char *name, const RolesModel *model, uint8_t *streams,
                       AttnPolicy *policy, Error *error)
{
    static const char *const members[] = {"sink",      "recent", "recent_prefill", "streaming", "longwave_calibration",
                                          "model",     "method", "sparsity",       "ranking",   "check",
                                          "crossover", NULL};
    if (!cJSON_IsObject(root)) return error_set_param(error, ERR_INVALID, "roles", "'%.64s' is no object", name);
    const cJSON *streaming = cJSON_GetObjectItemCaseSensitive(root, "streaming");
    if (!known_members(root, name, members, error)) return false;
    if (!read_calibration(root, name, model->fingerprint, error)) return false;
    if (!cJSON_IsArray(streaming)) return refuse_member(name, "streaming", "is not a list", error);
    policy->sink = DEFAULT_SINK;
    policy->recent_decode = DEFAULT_RECENT;
    if (!read_tokens(root, name, "sink", 0, &policy->sink, error) ||
        !read_tokens(root, name, "recent", KV_PAGE_TOKENS, &policy->recent_decode, error))
        return false;
    bool is_longer = policy->recent_decode > DEFAULT_RECENT_PREFILL;
    policy->recent_prefill = is_longer ? policy->recent_decode : DEFAULT_RECENT_PREFILL;
    if (!read_tokens(root, name, "recent_prefill", KV_PAGE_TOKENS, &policy->recent_prefill, error)) return false;
    for (const cJSON *entry = streaming->child; entry; entry = entry->next)
        if (!read_layer(entry, name, model->shape, streams, error)) return false;
    return true;
}

static uint64_t hash_roles(const AttnPolicy *policy, const uint8_t *streams, size_t n)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a, 64 bits */
    const uint32_t ranges[] = {policy->sink, policy->recent_prefill, policy->recent_decode};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges * 4; i++)
        hash = (hash ^ (uint8_t)(ranges[i / 4] >> i % 4 * 8)) * FNV_PRIME;
    for (size_t i = 0; i < n; i++) hash = (hash ^ streams[i]) * FNV_PRIME;
    return hash;
}

bool roles_parse(const char *text, size_t n, const char *name, const RolesModel *model, Arena *arena,
                 AttnPolicy *ret_policy, Error *error)
{
    HeadRoles *roles = arena_alloc(arena, sizeof *roles);
    uint8_t *streams = arena_array(arena, model->shape->n_layers, model->shape->n_kv_heads);
    if (!roles || !streams) return error_set(error, ERR_NO_MEMORY, "no memory for the roles '%.64s'", name);
    const char *end = NULL;
    cJSON *root = cJSON_ParseWithLengthOpts(text, n, &end, false);
    while (root && end < text + n && strchr(" \t\r\n", *end) && *end) end++;
    if (!root || end != text + n) {
        cJSON_Delete(root);
        return error_set_param(error, ERR_INVALID, "roles",
                               "'%.64s' is no JSON from byte %zu on, or too much for the memory", name,
                               end ? (size_t)(end - text) : 0);
    }
    AttnPolicy policy = {.name = "dense", .roles = roles};
    bool ok = read_roles(root, name, model, streams, &policy, error);
    cJSON_Delete(root);
    if (!ok) return false;
    size_t n_heads = (size_t)model->shape->n_layers * model->shape->n_kv_heads;
    *roles = (HeadRoles){name, streams, hash_roles(&policy, streams, n_heads)};
    *ret_policy = policy;
    return true;
}

static bool read_file(const char *path, Buffer *text, Error *error)
{
    char piece[4096];
    size_t n;
    FILE *file = fopen(path, "rb");
    if (!file) return error_set_param(error, ERR_IO, "roles", "%s: %s", path, strerror(errno));
    bool ok = true;
    while (ok && (n = fread(piece, 1, sizeof piece, file)) > 0) ok = buffer_append(text, piece, n, error);
    if (ok && ferror(file)) ok = error_set_param(error, ERR_IO, "roles", "%s: %s", path, strerror(errno));
    fclose(file);
    return ok;
}

/* "50%": heads of the layers that see everything, spread evenly; false: it is none. */
static bool read_share(const char *text, double *ret_share)
{
    char *end = NULL;
    double percent = strtod(text, &end);
    if (end == text || strcmp(end, "%") != 0 || !(percent >= 0 && percent <= 100)) return false;
    *ret_share = percent / 100;
    return true;
}

static bool spread_roles(double share, const char *name, const RolesModel *model, Arena *arena, AttnPolicy *ret_policy,
                         Error *error)
{
    const ModelShape *shape = model->shape;
    HeadRoles *roles = arena_alloc(arena, sizeof *roles);
    uint8_t *streams = arena_array(arena, shape->n_layers, shape->n_kv_heads);
    if (!roles || !streams) return error_set(error, ERR_NO_MEMORY, "no memory for the roles '%.64s'", name);
    size_t n = (size_t)shape->n_layers * shape->n_kv_heads, n_full = 0;
    for (size_t i = 0; i < n; i++) {
        if (shape_layer_window(shape, (uint32_t)(i / shape->n_kv_heads))) continue;
        double before = (double)n_full * share, after = (double)++n_full * share;
        streams[i] = floor(after + SHARE_SLACK) > floor(before + SHARE_SLACK);
    }
    *ret_policy = (AttnPolicy){.name = "dense",
                               .roles = roles,
                               .sink = DEFAULT_SINK,
                               .recent_prefill = DEFAULT_RECENT_PREFILL,
                               .recent_decode = DEFAULT_RECENT};
    *roles = (HeadRoles){name, streams, hash_roles(ret_policy, streams, n)};
    return true;
}

/* One "NAME=PATH" of n bytes. */
static bool load_pair(const char *pair, size_t n, const RolesModel *model, Arena *arena, AttnPolicy *ret_policy,
                      Error *error)
{
    const char *equals = memchr(pair, '=', n);
    size_t n_name = equals ? (size_t)(equals - pair) : 0;
    if (!n_name || n_name > ROLES_MAX_NAME_BYTES || n_name + 1 == n)
        return error_set_param(error, ERR_INVALID, "roles", "'%.*s' is not NAME=PATH with a name of up to %d bytes",
                               (int)(n < 80 ? n : 80), pair, ROLES_MAX_NAME_BYTES);
    const char *name = arena_copy(arena, pair, n_name), *path = arena_copy(arena, equals + 1, n - n_name - 1);
    if (!name || !path) return error_set(error, ERR_NO_MEMORY, "no memory for the roles '%.*s'", (int)n_name, pair);
    double share;
    if (read_share(path, &share)) return spread_roles(share, name, model, arena, ret_policy, error);
    Buffer text;
    buffer_init(&text, ROLES_MAX_FILE_BYTES);
    bool ok = read_file(path, &text, error);
    if (ok && !roles_parse(text.data ? text.data : "", text.n, name, model, arena, ret_policy, error))
        ok = error_prefix(error, "%s", path);
    buffer_done(&text);
    return ok;
}

static bool check_name(const AttnPolicy *policies, uint32_t n, Error *error)
{
    const char *name = policies[n].roles->name;
    for (uint32_t i = 1; i < n; i++)
        if (!strcmp(policies[i].roles->name, name))
            return error_set_param(error, ERR_INVALID, "roles", "'%s' is named twice", name);
    return true;
}

bool roles_load(const char *list, const RolesModel *model, Arena *arena, const AttnPolicy **ret_policies,
                uint32_t *ret_n, Error *error)
{
    AttnPolicy *policies = arena_array(arena, ROLES_MAX_POLICIES, sizeof *policies);
    if (!policies) return error_set(error, ERR_NO_MEMORY, "no memory for attention policies");
    uint32_t n = 0;
    policies[n++] = (AttnPolicy){.name = "dense"};
    for (const char *at = list; at; n++) {
        size_t n_pair = strcspn(at, ",");
        if (n == ROLES_MAX_POLICIES)
            return error_set_param(error, ERR_TOO_LARGE, "roles", "more than %d files", ROLES_MAX_POLICIES - 1);
        if (!load_pair(at, n_pair, model, arena, &policies[n], error) || !check_name(policies, n, error))
            return error_prefix(error, "roles");
        at = at[n_pair] ? at + n_pair + 1 : NULL;
    }
    *ret_policies = policies;
    *ret_n = n;
    return true;
}
