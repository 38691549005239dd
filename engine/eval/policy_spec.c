/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/policy_spec.h"

#include "engine/select/presets.h"
#include "engine/select/selector.h"
#include "engine/select/wavelength.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANY_CONTEXT = 1 << 24 };

typedef enum FieldKind {
    FIELD_BUDGET,
    FIELD_TOKENS,
    FIELD_COUNT,
    FIELD_REAL,
    FIELD_POSITIVE,
    FIELD_FLAG,
    FIELD_LAYERS,
    FIELD_SCAN,
    FIELD_POSITIONS,
    FIELD_PROFILE,
    FIELD_ROLES
} FieldKind;

/* Without which a field says nothing. */
typedef enum FieldNeed {
    NEEDS_NOTHING,
    NEEDS_SELECTION,
    NEEDS_WINDOW,
    NEEDS_RATIO,
    NEEDS_ROLES,
    NEEDS_GROUPS
} FieldNeed;

/* One field, or the same in several places: of all stages, of both kinds of rows. */
typedef struct Field {
    const char *name;
    FieldKind kind;
    size_t offset, second; /* into AttnPolicy; second 0: none */
    bool of_stages;        /* offset is into SelectStage, of every stage */
    FieldNeed need;
} Field;

#define AT(member) offsetof(AttnPolicy, member)
#define STAGE(member) offsetof(SelectStage, member)
static const Field fields[] = {
    {"budget", FIELD_BUDGET, 0, 0, false, NEEDS_NOTHING},
    {"bypass", FIELD_TOKENS, AT(selection.bypass), 0, false, NEEDS_SELECTION},
    {"sink", FIELD_TOKENS, AT(selection.sink), 0, false, NEEDS_SELECTION},
    {"recent", FIELD_TOKENS, AT(selection.recent), 0, false, NEEDS_SELECTION},
    {"prefill_from", FIELD_TOKENS, AT(selection.prefill_from), 0, false, NEEDS_SELECTION},
    {"unit", FIELD_TOKENS, STAGE(unit_tokens), 0, true, NEEDS_SELECTION},
    {"refresh", FIELD_COUNT, STAGE(refresh), 0, true, NEEDS_SELECTION},
    {"scan", FIELD_SCAN, STAGE(scan), 0, true, NEEDS_SELECTION},
    {"early", FIELD_LAYERS, AT(selection.early_layers), 0, false, NEEDS_SELECTION},
    {"early_keep", FIELD_TOKENS, AT(selection.early_keep_tokens), 0, false, NEEDS_SELECTION},
    {"probes", FIELD_COUNT, AT(selection.n_probes), 0, false, NEEDS_SELECTION},
    {"missing", FIELD_REAL, AT(selection.max_missing_mass), 0, false, NEEDS_SELECTION},
    {"audit", FIELD_COUNT, AT(selection.audit_interval), 0, false, NEEDS_SELECTION},
    {"dense_tail", FIELD_TOKENS, AT(selection.dense_tail_rows), 0, false, NEEDS_SELECTION},
    {"delta", FIELD_COUNT, AT(selection.delta_stride), 0, false, NEEDS_SELECTION},
    {"k", FIELD_REAL, AT(wavelength.k_prefill), AT(wavelength.k_decode), false, NEEDS_NOTHING},
    {"k_prefill", FIELD_REAL, AT(wavelength.k_prefill), 0, false, NEEDS_NOTHING},
    {"k_decode", FIELD_REAL, AT(wavelength.k_decode), 0, false, NEEDS_NOTHING},
    {"k_ratio", FIELD_POSITIVE, AT(wavelength.k_ratio), 0, false, NEEDS_WINDOW},
    {"profile", FIELD_PROFILE, AT(wavelength.profile), 0, false, NEEDS_RATIO},
    {"gamma", FIELD_POSITIVE, AT(wavelength.gamma), 0, false, NEEDS_WINDOW},
    {"linear", FIELD_REAL, AT(wavelength.linear), 0, false, NEEDS_WINDOW},
    {"floor", FIELD_TOKENS, AT(wavelength.floor), 0, false, NEEDS_WINDOW},
    {"ceiling", FIELD_TOKENS, AT(wavelength.ceiling), 0, false, NEEDS_WINDOW},
    {"window_layers", FIELD_FLAG, AT(wavelength.in_window_layers), 0, false, NEEDS_WINDOW},
    {"roles_sink", FIELD_TOKENS, AT(sink), 0, false, NEEDS_ROLES},
    {"roles_recent", FIELD_TOKENS, AT(recent_prefill), AT(recent_decode), false, NEEDS_ROLES},
    {"recent_prefill", FIELD_TOKENS, AT(recent_prefill), 0, false, NEEDS_ROLES},
    {"recent_decode", FIELD_TOKENS, AT(recent_decode), 0, false, NEEDS_ROLES},
    {"positions", FIELD_POSITIONS, AT(positions), 0, false, NEEDS_NOTHING},
    {"group", FIELD_COUNT, AT(group), 0, false, NEEDS_GROUPS},
    {"near", FIELD_TOKENS, AT(near), 0, false, NEEDS_GROUPS},
    {"roles", FIELD_ROLES, 0, 0, false, NEEDS_NOTHING},
};

_Static_assert(sizeof fields / sizeof *fields <= 64, "a bit of PolicySpec.given each");

static const char *const scans[] = {[SCAN_BOX] = "box",
                                    [SCAN_CENTER] = "center",
                                    [SCAN_MEAN] = "mean",
                                    [SCAN_DESCENT] = "descent",
                                    [SCAN_DESCENT_FIRST] = "descent_first",
                                    [SCAN_EXACT] = "exact"};
static const char *const positions[] = {
    [POSITIONS_TRUE] = "true", [POSITIONS_PACKED] = "packed", [POSITIONS_GROUPED] = "grouped"};
static const char *const profiles[] = {[WAVE_ARITHMETIC] = "arithmetic", [WAVE_GEOMETRIC] = "geometric"};
static const char *const flags[] = {"off", "on"};

static bool refuse(const char *part, const char *why, Error *error)
{
    return error_set_param(error, ERR_INVALID, "policies", "'%s' %s", part, why);
}

static bool refuse_preset(const char *part, Error *error)
{
    char known[256] = "";
    for (size_t i = 0, n = 0; preset_name_at(i) && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", preset_name_at(i));
    return error_set_param(error, ERR_INVALID, "policies", "'%s' is no preset (known: %s)", part, known);
}

static bool read_number(const char *part, const char *text, double *ret_value, Error *error)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end || errno || !(value >= 0 && value <= 1 << 24) || !strpbrk(text, "0123456789"))
        return refuse(part, "wants a number from 0 to 16777216", error);
    *ret_value = value;
    return true;
}

static bool read_choice(const char *part, const char *text, const char *const *names, size_t n, uint32_t *ret_index,
                        Error *error)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(names[i], text)) {
            *ret_index = (uint32_t)i;
            return true;
        }
    return refuse(part, "names something that there is not", error);
}

/* Enumerations are as wide as uint32_t. */
static bool read_value(const Field *field, const char *part, const char *text, double *ret_real, uint32_t *ret_count,
                       Error *error)
{
    _Static_assert(sizeof(ScanKind) == sizeof(uint32_t) && sizeof(PositionRule) == sizeof(uint32_t) &&
                       sizeof(WaveProfile) == sizeof(uint32_t),
                   "");
    if (field->kind == FIELD_SCAN) return read_choice(part, text, scans, SCAN_N_KINDS, ret_count, error);
    if (field->kind == FIELD_POSITIONS) return read_choice(part, text, positions, 3, ret_count, error);
    if (field->kind == FIELD_PROFILE) return read_choice(part, text, profiles, 2, ret_count, error);
    if (field->kind == FIELD_FLAG) return read_choice(part, text, flags, 2, ret_count, error);
    if (field->kind == FIELD_TOKENS && !strcmp(text, "all")) {
        *ret_count = PLAN_ALL;
        return true;
    }
    if (!read_number(part, text, ret_real, error)) return false;
    *ret_count = (uint32_t)*ret_real;
    if (field->kind == FIELD_REAL) return true;
    if (field->kind == FIELD_POSITIVE) return *ret_real > 0 || refuse(part, "wants a number above 0", error);
    return *ret_real == *ret_count || refuse(part, "wants a whole number", error);
}

static void store(const Field *field, size_t offset, double real, uint32_t count, void *at)
{
    const uint64_t layers = count < 64 ? (UINT64_C(1) << count) - 1 : UINT64_MAX; /* the first so many */
    const bool flag = count;
    if (field->kind == FIELD_REAL || field->kind == FIELD_POSITIVE)
        memcpy((char *)at + offset, &real, sizeof real);
    else if (field->kind == FIELD_FLAG)
        memcpy((char *)at + offset, &flag, sizeof flag);
    else if (field->kind == FIELD_LAYERS)
        memcpy((char *)at + offset, &layers, sizeof layers);
    else
        memcpy((char *)at + offset, &count, sizeof count);
}

static const Field *find_field(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strlen(fields[i].name) == n && !memcmp(fields[i].name, name, n)) return &fields[i];
    return NULL;
}

static uint64_t bit_of(const Field *field)
{
    return UINT64_C(1) << (field - fields);
}

static bool is_given(const PolicySpec *spec, const char *name)
{
    return spec->given & bit_of(find_field(name, strlen(name)));
}

/*
 * As requests say it: the stages of each preset have their own way to follow. Comes behind all other fields, so that
 * their order means nothing; bypass and early_keep stay where they are given.
 */
static bool set_budget(const char *part, uint32_t budget, PolicySpec *spec, Error *error)
{
    const AttnWish wish = {.budget = budget};
    const Selection asked = spec->policy.selection;
    Selection *selection = &spec->policy.selection;
    if (!budget) return refuse(part, "is nothing", error);
    if (!wish_apply(&wish, &spec->policy, &spec->policy, error)) {
        snprintf(error->param, sizeof error->param, "policies");
        return error_prefix(error, "'%s'", part);
    }
    if (is_given(spec, "recent") && selection->recent != asked.recent)
        return refuse(part, "says another recent range than recent does", error);
    if (is_given(spec, "bypass")) selection->bypass = asked.bypass;
    if (is_given(spec, "early_keep")) selection->early_keep_tokens = asked.early_keep_tokens;
    return true;
}

/* Fields that change nothing would let two names stand for one policy. */
static bool check_needs(const PolicySpec *spec, Error *error)
{
    const AttnPolicy *policy = &spec->policy;
    const Wavelength *wave = &policy->wavelength;
    bool has_window = wavelength_cuts(wave, wave->k_prefill) || wavelength_cuts(wave, wave->k_decode);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!(spec->given & bit_of(&fields[i]))) continue;
        if (fields[i].need == NEEDS_SELECTION && !policy->selection.n_stages)
            return refuse(fields[i].name, "needs a preset that selects", error);
        if (fields[i].need >= NEEDS_WINDOW && fields[i].need <= NEEDS_RATIO && !has_window)
            return refuse(fields[i].name, "needs a wavelength window (k)", error);
        if (fields[i].need == NEEDS_RATIO && (wave->k_ratio == 0 || wave->k_ratio == 1))
            return refuse(fields[i].name, "needs a k_ratio other than 1", error);
        if (fields[i].need == NEEDS_ROLES && !spec->roles[0]) return refuse(fields[i].name, "needs roles", error);
        if (fields[i].need == NEEDS_GROUPS && policy->positions != POSITIONS_GROUPED)
            return refuse(fields[i].name, "needs positions=grouped", error);
    }
    return true;
}

/* The one part that waits for all others. */
typedef struct LastPart {
    const char *part; /* "budget=VALUE", or NULL */
    uint32_t budget;
} LastPart;

/* "FIELD=VALUE" */
static bool apply(char *part, PolicySpec *spec, LastPart *ret_last, Error *error)
{
    char *equals = strchr(part, '=');
    const Field *field = equals ? find_field(part, (size_t)(equals - part)) : NULL;
    if (!equals) return refuse(part, "is not FIELD=VALUE", error);
    if (!field) return refuse(part, "names no field of a policy (docs/eval.md lists them)", error);
    if (spec->given & bit_of(field)) return refuse(part, "is there twice", error);
    spec->given |= bit_of(field);
    double real = 0;
    uint32_t count = 0;
    if (field->kind == FIELD_ROLES) {
        if (!equals[1] || strlen(equals + 1) >= sizeof spec->roles) return refuse(part, "names no roles", error);
        snprintf(spec->roles, sizeof spec->roles, "%s", equals + 1);
        return true;
    }
    if (!read_value(field, part, equals + 1, &real, &count, error)) return false;
    AttnPolicy *policy = &spec->policy;
    if (field->kind == FIELD_BUDGET) {
        *ret_last = (LastPart){part, count};
        return true;
    }
    for (uint32_t i = 0; field->of_stages && i < policy->selection.n_stages; i++)
        store(field, field->offset, real, count, &policy->selection.stages[i]);
    if (!field->of_stages) store(field, field->offset, real, count, policy);
    if (field->second) store(field, field->second, real, count, policy);
    return true;
}

bool policy_spec_parse(const char *text, size_t n, PolicySpec *ret_spec, Error *error)
{
    if (n >= POLICY_SPEC_MAX || !n || memchr(text, '\0', n))
        return error_set_param(error, ERR_INVALID, "policies", "a policy is a name and fields of up to %d bytes",
                               POLICY_SPEC_MAX - 1);
    PolicySpec spec = {0};
    char parts[POLICY_SPEC_MAX], *rest = NULL;
    memcpy(spec.text, text, n);
    memcpy(parts, spec.text, sizeof parts);
    char *part = strtok_r(parts, ":", &rest);
    if (!part) return refuse(spec.text, "has no name", error);
    const AttnPolicy *preset = preset_find(part);
    if (!preset) return refuse_preset(part, error);
    spec.preset = preset;
    spec.policy = *preset;
    LastPart last = {0};
    while ((part = strtok_r(NULL, ":", &rest)))
        if (!apply(part, &spec, &last, error)) return false;
    if (last.part && !set_budget(last.part, last.budget, &spec, error)) return false;
    if (!check_needs(&spec, error)) return false;
    *ret_spec = spec;
    return true;
}

bool policy_spec_next(const char **list, PolicySpec *ret_spec, Error *error)
{
    size_t n = strcspn(*list, ",");
    if (!policy_spec_parse(*list, n, ret_spec, error)) return false;
    *list = (*list)[n] ? *list + n + 1 : NULL;
    return true;
}

const char *policy_specs_moving_preset(const char *list)
{
    PolicySpec spec;
    Error error; /* of what is no policy its user will tell */
    while (list && policy_spec_next(&list, &spec, &error)) {
        const AttnPolicy *preset = preset_find(spec.policy.name);
        if (preset && policy_reach(preset, ANY_CONTEXT) > ANY_CONTEXT) return preset->name;
    }
    return NULL;
}

const char *policy_specs_longest(const char *list, PolicySpec *ret_spec)
{
    PolicySpec spec;
    Error error; /* the same */
    uint32_t most = 0;
    while (list && policy_spec_next(&list, &spec, &error)) {
        uint32_t n = spec.policy.selection.n_stages ? selector_device_list(&spec.policy.selection) : 0;
        if (n <= most) continue;
        most = n;
        *ret_spec = spec;
    }
    return most ? ret_spec->text : NULL;
}

bool policy_specs_on_device(const char *list, Error *error)
{
    PolicySpec spec;
    Error ignored; /* the same */
    while (list && policy_spec_next(&list, &spec, &ignored))
        if (!selector_device_takes(&spec.policy))
            return error_set_param(error, ERR_UNSUPPORTED, "device",
                                   "a GPU does not have the policy '%s'; --device cpu does", spec.text);
    return true;
}

bool policy_spec_take_roles(PolicySpec *spec, const AttnPolicy *policies, uint32_t n, Error *error)
{
    const AttnPolicy *from = NULL;
    AttnPolicy *policy = &spec->policy;
    if (!spec->roles[0]) return true;
    for (uint32_t i = 0; i < n && !from; i++)
        if (policies[i].roles && !strcmp(policies[i].roles->name, spec->roles)) from = &policies[i];
    if (!from)
        return error_set_param(error, ERR_INVALID, "policies", "'%s': no file of roles is called '%s'", spec->text,
                               spec->roles);
    policy->roles = from->roles;
    if (!is_given(spec, "roles_sink")) policy->sink = from->sink;
    bool both = is_given(spec, "roles_recent");
    if (!both && !is_given(spec, "recent_prefill")) policy->recent_prefill = from->recent_prefill;
    if (!both && !is_given(spec, "recent_decode")) policy->recent_decode = from->recent_decode;
    return true;
}
