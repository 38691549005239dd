/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_longwave.h"

#include <stdio.h>
#include <string.h>

#define ATTENTION "longwave.attention"
enum { MAX_BUDGET = 1 << 28, MAX_REFRESH = 1 << 20, MAX_WAVES = 1 << 20 };

/* Every member changes something, so an unknown one is no detail to pass over. */
static bool refuse_member(const char *object, const cJSON *item, Error *error)
{
    char path[96];
    snprintf(path, sizeof path, "%s.%.40s", object, item->string);
    return error_set_param(error, ERR_UNSUPPORTED, path, "'%s' is not supported", path);
}

static bool read_budget(const cJSON *item, AttnWish *wish, Error *error)
{
    int64_t budget;
    if (cJSON_IsString(item)) {
        wish->is_adaptive = !strcmp(item->valuestring, "adaptive");
        return wish->is_adaptive ||
               error_set_param(error, ERR_INVALID, ATTENTION ".budget",
                               "'" ATTENTION ".budget' is neither a number of tokens nor 'adaptive'");
    }
    if (!json_get_int(item, ATTENTION ".budget", 1, MAX_BUDGET, &budget, error)) return false;
    wish->budget = (uint32_t)budget;
    return true;
}

/* Decode steps, of each stage. */
static bool read_refresh(const cJSON *item, AttnWish *wish, Error *error)
{
    size_t n = 0;
    if (!json_get_array(item, ATTENTION ".refresh", SELECT_MAX_STAGES, &n, error)) return false;
    if (n == 0) return error_set_param(error, ERR_INVALID, ATTENTION ".refresh", "'" ATTENTION ".refresh' is empty");
    for (const cJSON *each = item->child; each; each = each->next) {
        int64_t steps;
        if (!json_get_int(each, ATTENTION ".refresh", 1, MAX_REFRESH, &steps, error)) return false;
        wish->refresh[wish->n_refresh++] = (uint32_t)steps;
    }
    return true;
}

static bool read_wavelength(const cJSON *item, AttnWish *wish, Error *error)
{
    if (!json_get_object(item, ATTENTION ".wavelength", error)) return false;
    wish->has_wavelength = true;
    for (const cJSON *member = item->child; member; member = member->next) {
        double *k = !strcmp(member->string, "prefill")  ? &wish->k_prefill
                    : !strcmp(member->string, "decode") ? &wish->k_decode
                                                        : NULL;
        if (!k) return refuse_member(ATTENTION ".wavelength", member, error);
        char path[64];
        snprintf(path, sizeof path, ATTENTION ".wavelength.%s", member->string);
        if (!cJSON_IsNull(member) && !json_get_real(member, path, 0, MAX_WAVES, k, error)) return false;
    }
    return true;
}

static bool read_positions(const cJSON *item, AttnWish *wish, Error *error)
{
    const char *name = NULL;
    if (!json_get_string(item, ATTENTION ".positions", &name, error)) return false;
    wish->has_positions = true;
    wish->positions = strcmp(name, "packed") ? POSITIONS_TRUE : POSITIONS_PACKED;
    return !strcmp(name, "packed") || !strcmp(name, "true") ||
           error_set_param(error, ERR_INVALID, ATTENTION ".positions",
                           "'" ATTENTION ".positions' is neither 'true' nor 'packed'");
}

static bool read_preset(const cJSON *item, ApiLongwave *longwave, Error *error)
{
    return json_get_string(item, ATTENTION ".preset", &longwave->preset, error);
}

static bool read_attention_member(const cJSON *item, ApiLongwave *longwave, Error *error)
{
    static const struct {
        const char *name;
        bool (*read)(const cJSON *item, AttnWish *wish, Error *error);
    } members[] = {{"budget", read_budget},
                   {"refresh", read_refresh},
                   {"wavelength", read_wavelength},
                   {"positions", read_positions}};
    if (cJSON_IsNull(item)) return true;
    if (!strcmp(item->string, "preset")) return read_preset(item, longwave, error);
    if (!strcmp(item->string, "roles")) return json_get_string(item, ATTENTION ".roles", &longwave->roles, error);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (!strcmp(item->string, members[i].name)) return members[i].read(item, &longwave->attention, error);
    return refuse_member(ATTENTION, item, error);
}

static bool read_attention(const cJSON *item, ApiLongwave *longwave, Error *error)
{
    if (cJSON_IsString(item)) return json_get_string(item, ATTENTION, &longwave->preset, error);
    if (!cJSON_IsObject(item))
        return error_set_param(error, ERR_INVALID, ATTENTION, "'" ATTENTION "' must be a string or an object, not %s",
                               json_type_name(item));
    for (const cJSON *member = item->child; member; member = member->next)
        if (!read_attention_member(member, longwave, error)) return false;
    return true;
}

bool api_longwave_read(const cJSON *item, ApiLongwave *ret_longwave, Error *error)
{
    ApiLongwave longwave = {0};
    if (!json_get_object(item, "longwave", error)) return false;
    for (const cJSON *member = item->child; member; member = member->next) {
        if (cJSON_IsNull(member)) continue;
        if (!strcmp(member->string, "attention")) {
            if (!read_attention(member, &longwave, error)) return false;
        } else if (!strcmp(member->string, "progress")) {
            if (!json_get_bool(member, "longwave.progress", &longwave.progress, error)) return false;
        } else {
            return refuse_member("longwave", member, error);
        }
    }
    *ret_longwave = longwave;
    return true;
}

static bool same(const char *a, const char *b)
{
    return !a || !b ? a == b : !strcmp(a, b);
}

/* policies->n: it is not there. */
static uint32_t find_policy(const ServedPolicies *policies, const char *preset, const char *roles)
{
    uint32_t i = 0;
    while (i < policies->n && !(same(policies->list[i].preset, preset) && same(policies->list[i].roles, roles))) i++;
    return i;
}

bool api_longwave_policy(const ServedPolicies *policies, size_t i, ServedPolicy *ret_policy)
{
    if (i < policies->n) {
        *ret_policy = policies->list[i];
        return true;
    }
    size_t n = policies->n; /* of the list, and of presets beside it so far */
    for (size_t k = 0; preset_name_at(k) && !policies->is_fixed; k++) {
        const char *name = preset_name_at(k);
        if (find_policy(policies, name, NULL) < policies->n) continue;
        if (preset_is_baseline(preset_find(name)) && !policies->has_baselines) continue;
        if (n++ < i) continue;
        *ret_policy = (ServedPolicy){.preset = name};
        return true;
    }
    return false;
}

/* "'dense', 'dense' with roles 'a', 'hip-3k'" into text, as far as there is room. */
static void list_policies(const ServedPolicies *policies, char *text, size_t room)
{
    size_t n = 0;
    ServedPolicy policy;
    for (size_t i = 0; n < room && api_longwave_policy(policies, i, &policy); i++) {
        const char *comma = i ? ", " : "";
        int more = snprintf(text + n, room - n, "%s'%.40s'", comma, policy.preset);
        n += more > 0 ? (size_t)more : 0;
        if (!policy.roles || n >= room) continue;
        more = snprintf(text + n, room - n, " with roles '%.40s'", policy.roles);
        n += more > 0 ? (size_t)more : 0;
    }
}

static bool refuse_policy(const char *preset, const char *roles, const ServedPolicies *policies, Error *error)
{
    char known[320] = "";
    list_policies(policies, known, sizeof known);
    if (roles)
        return error_set_param(error, ERR_INVALID, ATTENTION,
                               "'" ATTENTION "' asks for '%.40s' with roles '%.40s'; "
                               "this server has %s",
                               preset, roles, known);
    return error_set_param(error, ERR_INVALID, ATTENTION, "'" ATTENTION "' asks for '%.40s'; this server has %s",
                           preset, known);
}

static uint32_t reach_of(const ServedPolicies *policies, const AttnPolicy *policy)
{
    return policies->trained_context && policy ? policy_reach(policy, policies->trained_context) : UINT32_MAX;
}

/* Does the engine take it? Whatever roles may stream, they are there. */
static bool check_wish(const ServedPolicies *policies, const AttnPolicy *from, ApiAttention *attention, Error *error)
{
    static const HeadRoles some = {"", NULL};
    AttnPolicy base = {.name = "dense", .roles = attention->name.roles ? &some : NULL}, policy;
    if (!wish_apply(&attention->wish, from ? from : &base, &policy, error)) return false;
    attention->reach = reach_of(policies, &policy);
    return true;
}

bool api_longwave_attention(const ApiLongwave *longwave, const ServedPolicies *policies, ApiAttention *ret_attention,
                            Error *error)
{
    const ServedPolicy *fallback = &policies->list[policies->fallback];
    bool is_named = longwave->preset && strcmp(longwave->preset, "auto");
    const char *preset = is_named ? longwave->preset : fallback->preset;
    const char *roles = longwave->roles || is_named ? longwave->roles : fallback->roles;
    ApiAttention attention = {.wish = longwave->attention, .name = {preset, roles}};
    const AttnPolicy *known = preset_find(preset), *from = NULL;
    if (known) attention.wish.preset = attention.name.preset = known->name;
    attention.policy = find_policy(policies, preset, roles);
    bool is_own = attention.policy < policies->n;
    if (is_own) attention.name = policies->list[attention.policy];
    AttnWish rest = attention.wish;
    rest.preset = NULL;
    /* Who changes what the server chose has chosen. */
    attention.is_auto = !is_named && !longwave->roles && wish_is_plain(&rest);
    if (is_own && wish_is_plain(&rest)) {
        attention.reach = reach_of(policies, attention.name.policy ? attention.name.policy : known);
        attention.wish = rest;
        *ret_attention = attention;
        return true;
    }
    if (is_own && !known) {
        from = attention.name.policy;
        attention.wish = rest;
    } else {
        attention.policy = find_policy(policies, "dense", roles);
    }
    if ((!known && !from) || attention.policy == policies->n) return refuse_policy(preset, roles, policies, error);
    if (known && !is_own && preset_is_baseline(known) && !policies->has_baselines)
        return error_set_param(error, ERR_UNSUPPORTED, ATTENTION,
                               "'" ATTENTION "': '%.40s' is a baseline of eval; --baselines lets requests ask for it",
                               preset);
    if (policies->is_fixed)
        return error_set_param(error, ERR_UNSUPPORTED, ATTENTION,
                               "'" ATTENTION
                               "': '%.40s' as asked for is none of those that this server was started with: on "
                               "a GPU a request takes one of them by its name, unchanged",
                               preset);
    attention.name.roles = policies->list[attention.policy].roles;
    if (!check_wish(policies, from, &attention, error)) return false;
    *ret_attention = attention;
    return true;
}

void api_longwave_settle(const ServedPolicies *policies, uint32_t n_prompt, ApiAttention *attention)
{
    bool is_short = n_prompt < policies->certified_from;
    bool is_long = policies->certified_tokens && n_prompt > policies->certified_tokens;
    if (!attention->is_auto || (!is_short && !is_long)) return;
    *attention = (ApiAttention){.name = policies->list[0], .reach = policies->trained_context};
    if (!attention->reach) attention->reach = UINT32_MAX;
}
