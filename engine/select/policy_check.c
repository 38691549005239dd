/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/policy_check.h"

#include "engine/select/wavelength.h"

#include <string.h>

#define ATTENTION "longwave.attention"
enum { MAX_UNIT_TOKENS = 4096, MAX_REFRESH = 1 << 20, MAX_K = 1 << 20, MAX_GROUP = 1 << 12 };

static bool refuse(const char *field, const char *why, Error *error)
{
    return error_set_param(error, ERR_INVALID, field, "'%s' %s", field, why);
}

static bool check_stages(const Selection *selection, Error *error)
{
    for (uint32_t i = 0; i < selection->n_stages; i++) {
        const SelectStage *stage = &selection->stages[i];
        uint32_t unit = stage->unit_tokens;
        if (stage->scan >= SCAN_N_KINDS || unit < KV_SECTOR_TOKENS || unit > MAX_UNIT_TOKENS || unit & (unit - 1) ||
            (i > 0 && unit > selection->stages[i - 1].unit_tokens))
            return refuse(ATTENTION ".preset", "has a stage of units that are no power of two from 16 on, or that grow",
                          error);
        if (stage->refresh < 1 || stage->refresh > MAX_REFRESH)
            return refuse(ATTENTION ".refresh", "must be at least 1, at most 1048576", error);
        if (i > 0 && stage->refresh > selection->stages[i - 1].refresh)
            return refuse(ATTENTION ".refresh", "must not grow from stage to stage", error);
    }
    return true;
}

/*
 * The ranges with a unit beside them; and the ranges as they are before the next refresh: the recent one begins at a
 * multiple of a unit, and grows until then.
 */
static uint32_t least_budget(const Selection *selection)
{
    uint32_t unit = selection->stages[0].unit_tokens, step = unit > KV_PAGE_TOKENS ? unit : KV_PAGE_TOKENS;
    uint32_t least = unit + KV_PAGE_TOKENS, grown = step + selection->stages[0].refresh - 2;
    return selection->sink + selection->recent + (least > grown ? least : grown);
}

static bool check_selection(const Selection *selection, Error *error)
{
    if (selection->n_stages > SELECT_MAX_STAGES || !selection->planner)
        return refuse(ATTENTION ".preset", "has no planner, or too many stages", error);
    if (!check_stages(selection, error)) return false;
    if (selection->sink % KV_PAGE_TOKENS || selection->recent % KV_PAGE_TOKENS || !selection->recent ||
        selection->sink > PLAN_ALL / 4 || selection->recent > PLAN_ALL / 4)
        return refuse(ATTENTION ".preset", "has ranges that are no multiples of 64 tokens", error);
    /* The recent range grows from one refresh to the next. */
    if (selection->stages[0].refresh > selection->recent)
        return refuse(ATTENTION ".refresh", "is longer than the recent range", error);
    if (selection->budget && selection->budget < least_budget(selection))
        return error_set_param(error, ERR_INVALID, ATTENTION ".budget",
                               "'" ATTENTION
                               ".budget' is %u tokens, of which sink, recent range, what comes before the "
                               "next refresh and one unit take %u",
                               selection->budget, least_budget(selection));
    if (selection->bypass < selection->budget)
        return refuse(ATTENTION ".budget", "is more than the contexts that are dense anyway", error);
    if (selection->n_probes > SELECT_MAX_PROBES || !(selection->max_missing_mass >= 0) ||
        !(selection->max_missing_mass < 1) || (selection->max_missing_mass > 0 && !selection->n_probes))
        return refuse(ATTENTION ".preset", "has a missing mass that nothing measures", error);
    if (selection->delta_stride && KV_PAGE_TOKENS % selection->delta_stride)
        return refuse(ATTENTION ".preset", "has a delta stride that does not divide 64", error);
    return true;
}

static bool check_wavelength(const Wavelength *wavelength, Error *error)
{
    const double numbers[] = {wavelength->k_prefill, wavelength->k_decode, wavelength->k_ratio, wavelength->gamma,
                              wavelength->linear};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!(numbers[i] >= 0 && numbers[i] <= MAX_K))
            return refuse(ATTENTION ".wavelength", "must be numbers from 0 to 1048576", error);
    return true;
}

static bool check_grouped(const AttnPolicy *policy, Error *error)
{
    const Wavelength *wave = &policy->wavelength;
    if (policy->group < 1 || policy->group > MAX_GROUP || policy->near < policy->group || policy->near % KV_PAGE_TOKENS)
        return refuse(ATTENTION ".positions", "are grouped by nothing, too much, or no multiple of 64 near tokens",
                      error);
    if (policy->selection.n_stages || policy->roles || wavelength_cuts(wave, wave->k_prefill) ||
        wavelength_cuts(wave, wave->k_decode))
        return refuse(ATTENTION ".positions", "are grouped, which goes with dense attention alone", error);
    return true;
}

bool policy_check(const AttnPolicy *policy, Error *error)
{
    if (policy->selection.n_stages && !check_selection(&policy->selection, error)) return false;
    return (policy->positions != POSITIONS_GROUPED || check_grouped(policy, error)) &&
           check_wavelength(&policy->wavelength, error);
}

/* ---- identity ---- */

enum { MAX_FIELDS = 64 };

typedef struct Fields {
    uint64_t number[MAX_FIELDS];
    size_t n;
} Fields;

static void add(Fields *fields, uint64_t number)
{
    fields->number[fields->n++] = number;
}

static void add_real(Fields *fields, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    add(fields, bits);
}

static void add_selection(Fields *fields, const Selection *selection)
{
    for (uint32_t i = 0; i < selection->n_stages; i++) {
        const SelectStage *stage = &selection->stages[i];
        add(fields, (uint64_t)stage->scan << 32 | stage->unit_tokens);
        add(fields, (uint64_t)stage->keep_tokens << 32 | stage->refresh);
    }
    add(fields, (uint64_t)selection->sink << 32 | selection->recent);
    add(fields, (uint64_t)selection->budget << 32 | selection->bypass);
    add(fields, (uint64_t)selection->prefill_from << 32 | selection->scan_positions);
    add(fields, (uint64_t)selection->early_scan_positions << 32 | selection->early_keep_tokens);
    add(fields, selection->early_layers);
    add(fields, (uint64_t)selection->row_stride << 32 | selection->n_probes);
    add(fields, selection->dense_tail_rows);
    add(fields, selection->delta_stride);
    add_real(fields, selection->max_missing_mass);
}

/* Everything that keys and values depend on, but names and roles. */
static Fields fields_of(const AttnPolicy *policy)
{
    const Wavelength *wave = &policy->wavelength;
    const double numbers[] = {wave->k_prefill, wave->k_decode, wave->k_ratio, wave->gamma, wave->linear};
    Fields fields = {.n = 0};
    add(&fields, policy->selection.n_stages);
    if (policy->selection.n_stages) add_selection(&fields, &policy->selection);
    add(&fields, policy->roles ? policy->sink : 0);
    add(&fields, policy->roles ? (uint64_t)policy->recent_prefill << 32 | policy->recent_decode : 0);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) add_real(&fields, numbers[i]);
    add(&fields, (uint64_t)wave->profile << 32 | wave->in_window_layers);
    add(&fields, (uint64_t)wave->floor << 32 | wave->ceiling);
    add(&fields, (uint64_t)policy->positions << 32 | policy->group);
    add(&fields, policy->near);
    return fields;
}

static const char *planner_of_policy(const AttnPolicy *policy)
{
    return policy->selection.n_stages ? policy->selection.planner : "";
}

uint64_t policy_hash(const AttnPolicy *policy)
{
    const uint64_t prime = 1099511628211u;
    uint64_t hash = 14695981039346656037u; /* FNV-1a, 64 bits */
    Fields fields = fields_of(policy);
    for (size_t i = 0; i < fields.n; i++)
        for (int byte = 0; byte < 8; byte++) hash = (hash ^ (uint8_t)(fields.number[i] >> 8 * byte)) * prime;
    for (const char *at = planner_of_policy(policy); *at; at++) hash = (hash ^ (uint8_t)*at) * prime;
    return hash;
}

bool policy_equals(const AttnPolicy *a, const AttnPolicy *b)
{
    Fields x = fields_of(a), y = fields_of(b);
    return a->roles == b->roles && a->selection.audit_interval == b->selection.audit_interval && x.n == y.n &&
           !memcmp(x.number, y.number, x.n * sizeof *x.number) && !strcmp(planner_of_policy(a), planner_of_policy(b));
}
