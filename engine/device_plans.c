/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/device_plans.h"

#include <stdlib.h>
#include <string.h>

enum { N_BANDS = sizeof((PolicySlot *)NULL)->bands / sizeof(AttnBand) }; /* of a policy */

static size_t heads_of(const Engine *engine)
{
    return (size_t)engine->shape.n_layers * engine->shape.n_kv_heads;
}

uint64_t device_plans_bytes(const Engine *engine)
{
    const uint64_t plans = 2 * N_ROW_KINDS * heads_of(engine) * sizeof(AttnPlan);
    return POLICY_MAX_SLOTS * (plans + heads_of(engine) * sizeof(KvHead) + N_BANDS * sizeof(AttnBand));
}

void device_plans_place(const Engine *engine, DevicePlans *plans, char *at)
{
    plans->plans = (AttnPlan *)(void *)at;
    plans->heads = (KvHead *)(void *)(plans->plans + POLICY_MAX_SLOTS * 2 * N_ROW_KINDS * heads_of(engine));
    plans->bands = (AttnBand *)(void *)(plans->heads + POLICY_MAX_SLOTS * heads_of(engine));
}

static AttnPlan *place_of(const Engine *engine, const DevicePlans *plans, uint32_t slot, bool is_cut, RowKind kind)
{
    return plans->plans + ((slot * 2 + !is_cut) * N_ROW_KINDS + kind) * heads_of(engine);
}

bool device_plans_cut(const Engine *engine, const PieceSpan *span)
{
    if (engine->device->is_host || span->seq == SEQ_NONE) return false;
    uint32_t slot = policy_slot(kv_seq_policy(engine->seqs, span->seq));
    return engine->policies[slot].has_bands[span->kind] &&
           !select_state_seq(selector_state(engine->selector), span->seq)->is_dense;
}

const AttnPlan *device_plans_of(const Engine *engine, const DevicePlans *plans, const PieceSpan *span)
{
    uint32_t slot = policy_slot(kv_seq_policy(engine->seqs, span->seq));
    return place_of(engine, plans, slot, device_plans_cut(engine, span), span->kind);
}

const KvHead *device_plans_heads(const Engine *engine, const DevicePlans *plans, uint32_t slot)
{
    return plans->heads + slot * heads_of(engine);
}

const AttnBand *device_plans_bands(const Engine *engine, const DevicePlans *plans, uint32_t slot, const AttnBand *bands)
{
    return bands ? plans->bands + slot * N_BANDS + (bands - &engine->policies[slot].bands[0][0][0]) : NULL;
}

/* Both forms of a policy's plans. */
static bool send_plans(Engine *engine, const DevicePlans *plans, uint32_t slot)
{
    const size_t n = N_ROW_KINDS * heads_of(engine), bytes = n * sizeof(AttnPlan);
    AttnPlan *copy = malloc(bytes);
    bool ok = copy;
    for (int is_cut = 1; ok && is_cut >= 0; is_cut--) {
        memcpy(copy, engine_plans(engine, slot, 0), bytes);
        for (size_t i = 0; i < n; i++) {
            copy[i].bands = is_cut ? device_plans_bands(engine, plans, slot, copy[i].bands) : NULL;
            copy[i].n_bands = is_cut ? copy[i].n_bands : 0;
        }
        ok = device_copy(engine->device, place_of(engine, plans, slot, is_cut, 0), copy, bytes) &&
             device_sync(engine->device);
    }
    free(copy);
    return ok;
}

bool device_plans_send(Engine *engine, const DevicePlans *plans, uint32_t slot)
{
    const PolicySlot *from = &engine->policies[slot];
    return device_copy(engine->device, plans->heads + slot * heads_of(engine), engine->classes.policies[slot].heads,
                       heads_of(engine) * sizeof *plans->heads) &&
           device_copy(engine->device, plans->bands + slot * N_BANDS, from->bands, sizeof from->bands) &&
           send_plans(engine, plans, slot);
}

void device_plans_look(const Engine *engine, const PieceSpan *span, uint32_t layer, const AttnPlan *own,
                       AttnPlan *ret_plans)
{
    const uint32_t n_kv_heads = engine->shape.n_kv_heads, slot = policy_slot(kv_seq_policy(engine->seqs, span->seq));
    const AttnPlan *of_policy = engine_plans(engine, slot, span->kind) + (size_t)layer * n_kv_heads;
    const bool is_cut = device_plans_cut(engine, span);
    for (uint32_t h = 0; h < n_kv_heads; h++) {
        ret_plans[h] = own ? own[h] : of_policy[h];
        ret_plans[h].bands = is_cut ? of_policy[h].bands : NULL;
        ret_plans[h].n_bands = is_cut ? of_policy[h].n_bands : 0;
    }
}
