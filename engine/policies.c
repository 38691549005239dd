/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/device_step.h"
#include "engine/engine_state.h"
#include "engine/eval/certificate.h"
#include "engine/select/planner.h"
#include "engine/select/policy_check.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { LEAST_LIST = 8192 / KV_SECTOR_TOKENS };

static bool check_device(const Engine *engine, const AttnPolicy *policy, Error *error)
{
    return engine->device->is_host || selector_device_takes(policy) ||
           error_set_param(error, ERR_UNSUPPORTED, "longwave.attention", "'%s' needs the CPU: device = cpu",
                           policy->name);
}

/* Of a list: no more sectors than the context has. */
static uint32_t cut_list(const Engine *engine, uint32_t n)
{
    uint32_t most = engine->params.context / KV_SECTOR_TOKENS + KV_PAGE_SECTORS;
    return n < most ? n : most;
}

/* Sectors of a policy's longest list on a device. */
static uint32_t longest_list(const Engine *engine, const AttnPolicy *policy)
{
    return policy->selection.n_stages ? cut_list(engine, selector_device_list(&policy->selection)) : 0;
}

/* What the engine was not opened for a later policy does not get. */
static bool check_list(const Engine *engine, const AttnPolicy *policy, Error *error)
{
    uint32_t n = longest_list(engine, policy);
    if (engine->device->is_host || n <= engine->max_list) return true;
    if (!engine->max_list)
        return error_set_param(error, ERR_UNSUPPORTED, "longwave.attention",
                               "'%s' selects, but no policy that this was started with on %s does: attention = %s",
                               policy->name, engine->device->name, policy->name);
    return error_set_param(error, ERR_UNSUPPORTED, "longwave.attention.budget",
                           "'%s' selects %u tokens, but lists on %s have room for %u", policy->name,
                           n * KV_SECTOR_TOKENS, engine->device->name, engine->max_list * KV_SECTOR_TOKENS);
}

/* ---- tables ---- */

/* Bands of the rows of a kind: of the layers that see everything, and of those with a window. */
static uint32_t fill_bands(const Engine *engine, PolicySlot *slot, RowKind kind, bool of_windows)
{
    const Wavelength *wavelength = &slot->policy.wavelength;
    const RopeOrder *rope = of_windows ? &engine->weights.window_rope : &engine->weights.rope;
    const WaveHead head = {rope->theta, engine->shape.rope_dim / 2, engine->shape.head_dim};
    if (of_windows && !wavelength->in_window_layers) return 0;
    double k = kind == ROWS_PREFILL ? wavelength->k_prefill : wavelength->k_decode;
    return wavelength_bands(wavelength, k, &head, slot->bands[kind][of_windows]);
}

static void fill_plans(Engine *engine, uint32_t index)
{
    const ModelShape *shape = &engine->shape;
    PolicySlot *slot = &engine->policies[index];
    for (RowKind kind = 0; kind < N_ROW_KINDS; kind++) {
        AttnPlan *plans = engine_plans(engine, index, kind);
        uint32_t n_bands[2] = {fill_bands(engine, slot, kind, false), fill_bands(engine, slot, kind, true)};
        planner_fill(shape, &slot->policy, kind, plans);
        slot->has_bands[kind] = n_bands[0] || n_bands[1];
        for (size_t i = 0; i < (size_t)shape->n_layers * shape->n_kv_heads; i++) {
            bool has_window = shape_layer_window(shape, (uint32_t)(i / shape->n_kv_heads));
            if (!n_bands[has_window]) continue;
            plans[i].bands = slot->bands[kind][has_window];
            plans[i].n_bands = n_bands[has_window];
        }
    }
}

void policies_fill(Engine *engine)
{
    for (uint32_t i = 0; i < engine->n_policies; i++) fill_plans(engine, i);
}

/* The policies [*n] and the one that is the default behind them. */
static bool append_default(Engine *engine, const AttnPolicy *policy, const AttnPolicy **policies, uint32_t *n,
                           Error *error)
{
    AttnPolicy *all = arena_array(&engine->arena, (size_t)*n + 1, sizeof *all);
    if (!all) return error_set(error, ERR_NO_MEMORY, "no memory for attention policies");
    memcpy(all, *policies, *n * sizeof *all);
    all[*n] = *policy;
    engine->default_policy = (*n)++;
    *policies = all;
    return true;
}

/* Are all its rows up to the bypass dense, whatever comes behind them? */
static bool is_dense_before(const AttnPolicy *policy)
{
    const Wavelength *wave = &policy->wavelength;
    return policy->selection.n_stages && !policy->roles && !wavelength_cuts(wave, wave->k_prefill) &&
           !wavelength_cuts(wave, wave->k_decode);
}

/* The certified policy with the roles that it names, as it was measured; false: it cannot be followed. */
static bool read_certificate(Engine *engine, const AttnPolicy *policies, uint32_t n, PolicySpec *ret_spec, Error *error)
{
    Certificate certificate;
    KvTypes types;
    if (!certificate_load(engine->params.model_path, engine_model_fingerprint(engine), &certificate, error) ||
        !certificate_policy(&certificate, ret_spec, error))
        return false;
    if (!kv_types_parse(certificate.kv_type, &types, error) || memcmp(&types, &engine->params.kv_types, sizeof types))
        return error_set(error, ERR_INVALID, "the certificate is of kv_type '%s', which is not what is served",
                         certificate.kv_type);
    if (!policy_spec_take_roles(ret_spec, policies, n, error)) return error_prefix(error, "the certificate");
    const HeadRoles *roles = ret_spec->policy.roles;
    if ((roles ? roles->hash : 0) != certificate.roles)
        return error_set(error, ERR_INVALID, "the certificate is of other head roles than those of '%.64s'",
                         ret_spec->roles);
    if (engine->params.rope)
        return error_set(error, ERR_INVALID, "the certificate is of the model's own positions, without rope");
    engine->certified_tokens = certificate.length;
    engine->certified_from = is_dense_before(&ret_spec->policy) ? 0 : certificate.crossover;
    return policy_check(&ret_spec->policy, error) && check_device(engine, &ret_spec->policy, error);
}

static bool append_spec(Engine *engine, PolicySpec *spec, const AttnPolicy **policies, uint32_t *n, Error *error)
{
    char *name = arena_strdup(&engine->arena, spec->text);
    if (!name) return error_set(error, ERR_NO_MEMORY, "no memory for attention policies");
    spec->policy.name = name;
    return append_default(engine, &spec->policy, policies, n, error);
}

/* Whatever is wrong with a certificate, the model can be served: dense. */
static bool add_certified(Engine *engine, const AttnPolicy **policies, uint32_t *n, Error *error)
{
    PolicySpec spec;
    Error *why = &engine->certificate_error;
    if (!read_certificate(engine, *policies, *n, &spec, why)) {
        if (why->code == ERR_NOT_FOUND) why->code = ERR_NONE;
        return true;
    }
    return append_spec(engine, &spec, policies, n, error);
}

static bool add_default(Engine *engine, const AttnPolicy **policies, uint32_t *n, Error *error)
{
    const char *name = engine->params.attention;
    if (!name || !strcmp(name, "dense")) return true;
    if (!strcmp(name, "auto")) return add_certified(engine, policies, n, error);
    const AttnPolicy *preset = preset_find(name);
    if (preset) return append_default(engine, preset, policies, n, error);
    PolicySpec spec;
    if (!policy_spec_parse(name, strlen(name), &spec, error) || !policy_spec_take_roles(&spec, *policies, *n, error)) {
        snprintf(error->param, sizeof error->param, "attention");
        return error_prefix(error, "attention");
    }
    return append_spec(engine, &spec, policies, n, error);
}

/* Who looks at a policy changes nothing in what it computes: it is still the same one. */
static void set_audit(const Engine *engine, AttnPolicy *policy)
{
    if (policy->selection.n_stages && engine->params.audit_interval)
        policy->selection.audit_interval = engine->params.audit_interval;
}

/* Those that may come later share the classes, so their lists get some room beside that of the engine's own. */
static void set_max_list(Engine *engine, const AttnPolicy *policies, uint32_t n)
{
    for (uint32_t i = 0; i < n && !engine->device->is_host; i++) {
        uint32_t list = longest_list(engine, &policies[i]);
        if (list && list < LEAST_LIST) list = cut_list(engine, LEAST_LIST);
        if (list > engine->max_list) engine->max_list = list;
    }
}

static bool open_classes(Engine *engine, const AttnPolicy *policies, uint32_t n, Error *error)
{
    const KvTypes *types = &engine->params.kv_types;
    if (!engine->device->is_host)
        return kv_classes_init_shared(&engine->shape, policies, n, types, &engine->classes, error);
    return kv_classes_init(&engine->shape, policies, n, types, &engine->classes, error) &&
           kv_classes_add_bounded(&engine->shape, policies, types, &engine->classes, error);
}

bool policies_open(Engine *engine, const AttnPolicy *policies, uint32_t n, Error *error)
{
    if (!add_default(engine, &policies, &n, error)) return false;
    if (n < 1 || n > ROLES_MAX_POLICIES || policies[0].roles)
        return error_set_param(error, ERR_INVALID, "roles", "%u attention policies: from 1 to %d, the first dense", n,
                               ROLES_MAX_POLICIES);
    for (uint32_t i = 0; i < n; i++)
        if (!policy_check(&policies[i], error) || !check_device(engine, &policies[i], error)) return false;
    engine->policies = arena_array(&engine->arena, POLICY_MAX_SLOTS, sizeof *engine->policies);
    if (!engine->policies) return error_set(error, ERR_NO_MEMORY, "no memory for attention policies");
    for (uint32_t i = 0; i < n; i++)
        engine->policies[i] = (PolicySlot){.policy = policies[i], .id = i, .is_used = true};
    for (uint32_t i = 0; i < n; i++) set_audit(engine, &engine->policies[i].policy);
    engine->n_policies = engine->n_own_policies = n;
    set_max_list(engine, policies, n);
    return open_classes(engine, policies, n, error);
}

/* ---- policies of requests ---- */

static bool is_id(const Engine *engine, PolicyId id)
{
    uint32_t index = policy_slot(id);
    return index < engine->n_policies && engine->policies[index].is_used && engine->policies[index].id == id;
}

const AttnPolicy *engine_policy(const Engine *engine, PolicyId id)
{
    return is_id(engine, id) ? &engine->policies[policy_slot(id)].policy : NULL;
}

/* One of the engine's own with the same roles: its classes are those of the new one. */
static uint32_t find_base(const Engine *engine, const AttnPolicy *policy)
{
    for (uint32_t i = 0; i < engine->n_own_policies; i++) {
        const AttnPolicy *own = &engine->policies[i].policy;
        if (own->roles == policy->roles &&
            (!own->roles || (own->sink == policy->sink && own->recent_prefill == policy->recent_prefill &&
                             own->recent_decode == policy->recent_decode)))
            return i;
    }
    return UINT32_MAX;
}

/* A place that is free, or that nobody has used for longest; the engine's own are not for others. */
static uint32_t find_place(const Engine *engine)
{
    uint32_t best = UINT32_MAX;
    if (engine->n_policies < POLICY_MAX_SLOTS) return engine->n_policies;
    for (uint32_t i = engine->n_own_policies; i < POLICY_MAX_SLOTS; i++) {
        const PolicySlot *slot = &engine->policies[i];
        if (slot->n_users == 0 && (best == UINT32_MAX || slot->last_use < engine->policies[best].last_use)) best = i;
    }
    return best;
}

const Error *engine_certificate_error(const Engine *engine)
{
    return engine->certificate_error.code == ERR_NONE ? NULL : &engine->certificate_error;
}

uint32_t engine_certified_tokens(const Engine *engine)
{
    return engine->default_policy ? engine->certified_tokens : 0;
}

uint32_t engine_certified_from(const Engine *engine)
{
    return engine->default_policy ? engine->certified_from : 0;
}

PolicyId engine_default_policy(const Engine *engine)
{
    return engine->default_policy;
}

bool engine_policy_intern(Engine *engine, const AttnPolicy *wanted, PolicyId *ret_policy, Error *error)
{
    AttnPolicy policy = *wanted;
    uint32_t index = 0;
    set_audit(engine, &policy);
    while (index < engine->n_policies && !policy_equals(&engine->policies[index].policy, &policy)) index++;
    if (index == engine->n_policies) {
        uint32_t base = find_base(engine, &policy);
        if (!policy_check(&policy, error) || !check_device(engine, &policy, error) ||
            !check_list(engine, &policy, error))
            return false;
        if (base == UINT32_MAX)
            return error_set_param(
                error, ERR_INVALID, "longwave.attention.roles",
                "the engine was not opened with these head roles, or not with these ranges of theirs");
        index = find_place(engine);
        if (index == UINT32_MAX)
            return error_set(error, ERR_BUSY, "%d attention policies are in use", POLICY_MAX_SLOTS);
        PolicySlot *slot = &engine->policies[index];
        PolicyId id = slot->is_used ? slot->id + (1u << POLICY_SLOT_BITS) : index + (1u << POLICY_SLOT_BITS);
        *slot = (PolicySlot){.policy = policy, .id = id, .is_used = true};
        if (index == engine->n_policies) engine->n_policies++;
        kv_classes_set(&engine->classes, index, base, &policy);
        fill_plans(engine, index);
        device_use(engine->device);
        if (engine->step && !device_step_policy(engine, index))
            return error_set(error, ERR_DEVICE, "%s failed", engine->device->name);
    }
    PolicySlot *slot = &engine->policies[index];
    slot->n_users++;
    slot->last_use = ++engine->policy_clock;
    *ret_policy = slot->id;
    return true;
}

void engine_policy_release(Engine *engine, PolicyId id)
{
    assert(is_id(engine, id) && engine->policies[policy_slot(id)].n_users > 0);
    engine->policies[policy_slot(id)].n_users--;
}

void engine_limit_head(Engine *engine, PolicyId id, uint32_t layer, uint32_t kv_head, uint32_t sink, uint32_t recent)
{
    uint32_t slot = policy_slot(id);
    assert(is_id(engine, id) && !engine->policies[slot].policy.roles);
    fill_plans(engine, slot);
    for (RowKind kind = 0; kind < N_ROW_KINDS && recent != PLAN_ALL; kind++) {
        AttnPlan *plan = engine_plans(engine, slot, kind) + (size_t)layer * engine->shape.n_kv_heads + kv_head;
        plan->sink = sink;
        plan->recent = recent;
    }
    if (!engine->step) return;
    device_use(engine->device);
    if (!device_step_policy(engine, slot)) engine->device->has_failed = true;
}
