/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/calibrate.h"
#include "engine/select/policy_check.h"

#include <string.h>

bool crossovers_parse(const char *text, size_t n, const RolesModel *model, Arena *arena, Crossovers *ret_crossovers,
                      Error *error)
{
    Crossovers crossovers = {0};
    if (!calibration_parse_cells(text, n, model->fingerprint, &crossovers.of, error)) return false;
    if (roles_parse(text, n, CALIBRATE_ROLES, model, arena, &crossovers.roles, error)) {
        *ret_crossovers = crossovers;
        return true;
    }
    crossovers_done(&crossovers);
    return false;
}

void crossovers_done(Crossovers *crossovers)
{
    calibration_done(&crossovers->of);
}

/* Roles count by what they are, not by what a run calls them. */
static bool is_same(const Crossovers *crossovers, const char *text, const AttnPolicy *wanted)
{
    PolicySpec spec;
    Error unused;
    AttnPolicy other = *wanted;
    const HeadRoles *roles;
    if (!policy_spec_parse(text, strlen(text), &spec, &unused) ||
        !policy_spec_take_roles(&spec, &crossovers->roles, 1, &unused))
        return false;
    roles = spec.policy.roles;
    if (!roles != !wanted->roles || (roles && roles->hash != wanted->roles->hash)) return false;
    spec.policy.roles = other.roles = NULL;
    bool same_ranges = !roles || (spec.policy.sink == other.sink && spec.policy.recent_decode == other.recent_decode &&
                                  spec.policy.recent_prefill == other.recent_prefill);
    return same_ranges && policy_equals(&spec.policy, &other);
}

bool crossovers_find(const Crossovers *crossovers, const PolicySpec *spec, uint32_t *ret_from, Error *error)
{
    const Calibration *c = &crossovers->of;
    for (uint32_t i = 0; i < c->n_cells; i++) {
        if (!is_same(crossovers, c->cells[i].policy, &spec->policy)) continue;
        *ret_from = calibration_crossover(c, c->cells[i].policy);
        return true;
    }
    return error_set(error, ERR_NOT_FOUND, "the calibration has no crossover of '%s'", spec->text);
}
