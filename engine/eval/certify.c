/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/certify.h"

#include "engine/select/presets.h"

#include <stdio.h>
#include <string.h>

static double read_share(const PolicySummary *policy)
{
    const KvCounts *counts = &policy->counts;
    return counts->dense_bytes ? (double)(counts->kv_bytes + counts->select_bytes) / (double)counts->dense_bytes : 1;
}

static bool refuse(const char *name, const char *why, Error *error)
{
    return error_set(error, ERR_NOT_FOUND, "'%s' %s", name, why);
}

/* The next of its measurements behind the i-th; NULL: there is none. */
static const PolicySummary *next_of(const CertifyParams *params, uint32_t *i)
{
    while (*i < params->summary->n_policies) {
        const PolicySummary *policy = &params->summary->policies[(*i)++];
        if (!strcmp(policy->policy, params->name)) return policy;
    }
    return NULL;
}

static bool check_one(const CertifyParams *params, const PolicySummary *p, Error *error)
{
    if (p->n_counted < CERTIFICATE_MIN_TASKS || p->n_questions < CERTIFICATE_MIN_QUESTIONS)
        return error_set(error, ERR_NOT_FOUND,
                         "'%s' was asked %u questions in each of %u tasks that count at %u tokens: it takes %d in %d",
                         params->name, p->n_questions, p->n_counted, p->length, CERTIFICATE_MIN_QUESTIONS,
                         CERTIFICATE_MIN_TASKS);
    return summary_passes(p, params->rules) ||
           error_set(error, ERR_NOT_FOUND,
                     "'%s' loses %.2f points on average and %.2f on the worst task at %u tokens: %g and %g may be",
                     params->name, -100 * p->mean_change, -100 * p->worst_change, p->length,
                     100 * params->rules->max_mean, 100 * params->rules->max_worst);
}

/* Its weakest measurement, at the longest length what it reads. */
static bool judge(const CertifyParams *params, Certificate *certificate, Error *error)
{
    const PolicySummary *p;
    bool any = false;
    for (uint32_t i = 0; (p = next_of(params, &i)); any = true) {
        if (!check_one(params, p, error)) return false;
        if (!any || -p->mean_change > certificate->mean_loss) certificate->mean_loss = -p->mean_change;
        if (!any || -p->worst_change > certificate->worst_loss) certificate->worst_loss = -p->worst_change;
        if (!any || p->n_questions < certificate->questions) certificate->questions = p->n_questions;
        if (!any || p->n_counted < certificate->tasks) certificate->tasks = p->n_counted;
        if (p->length <= certificate->length) continue;
        certificate->length = p->length;
        certificate->kv_share = read_share(p);
    }
    if (!any) return refuse(params->name, "was not measured", error);
    return certificate->kv_share < 1 || refuse(params->name, "reads no less than dense", error);
}

/* The shortest length from which on no gap is wider than a doubling. */
static uint32_t shortest_length(const CertifyParams *params, uint32_t longest)
{
    const PolicySummary *p;
    for (uint32_t shortest = longest;;) {
        uint32_t next = shortest;
        for (uint32_t i = 0; (p = next_of(params, &i));)
            if (p->length < next && p->length >= shortest / 2) next = p->length;
        if (next == shortest) return shortest;
        shortest = next;
    }
}

static bool find_crossover(const CertifyParams *params, Certificate *certificate, Error *error)
{
    uint32_t pays_from = 0, from = shortest_length(params, certificate->length) / 2 + 1;
    const Selection *selection = &params->spec->policy.selection;
    if (selection->n_stages && selection->bypass > from) from = selection->bypass;
    if (params->crossovers) {
        if (!crossovers_find(params->crossovers, params->spec, &pays_from, error)) return false;
        if (!pays_from) return refuse(params->name, "pays at none of the lengths it was calibrated at", error);
        if (pays_from > from) from = pays_from;
    }
    certificate->crossover = from;
    return from <= certificate->length ||
           refuse(params->name, "was measured only where it is dense, or does not pay", error);
}

bool certify(const CertifyParams *params, Certificate *ret_certificate, Error *error)
{
    const HeadRoles *roles = params->spec->policy.roles;
    Certificate certificate = {.model = params->model, .roles = roles ? roles->hash : 0};
    PolicySpec followed;
    if (!judge(params, &certificate, error) || !find_crossover(params, &certificate, error)) return false;
    snprintf(certificate.policy, sizeof certificate.policy, "%s", params->spec->text);
    snprintf(certificate.kv_type, sizeof certificate.kv_type, "%s", params->kv_type);
    if (!certificate_policy(&certificate, &followed, error)) return false;
    *ret_certificate = certificate;
    return true;
}
