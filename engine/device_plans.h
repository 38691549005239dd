/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device's copies of what policies see: plans, their bands, and where heads have their keys. Written when a policy
 * comes; kernels of later steps read them. The engine's thread.
 */
#pragma once
#include "engine/engine_state.h"

typedef struct DevicePlans {
    AttnPlan *plans; /* [POLICY_MAX_SLOTS, 2, N_ROW_KINDS, n_layers, n_kv_heads]: as Engine.plans; without bands */
    KvHead *heads;   /* [POLICY_MAX_SLOTS, n_layers, n_kv_heads] */
    AttnBand *bands; /* [POLICY_MAX_SLOTS] PolicySlot.bands */
} DevicePlans;

uint64_t device_plans_bytes(const Engine *engine);
/* at: device memory of device_plans_bytes. */
void device_plans_place(const Engine *engine, DevicePlans *plans, char *at);
/* Of one policy; false: the device failed. */
bool device_plans_send(Engine *engine, const DevicePlans *plans, uint32_t slot);

/* Whether bands cut scores of a span's rows in any layer. */
bool device_plans_cut(const Engine *engine, const PieceSpan *span);
/* Of a span's rows in layer 0; further layers follow. */
const AttnPlan *device_plans_of(const Engine *engine, const DevicePlans *plans, const PieceSpan *span);
const KvHead *device_plans_heads(const Engine *engine, const DevicePlans *plans, uint32_t slot);
/* Where the device has bands of PolicySlot.bands; NULL: NULL. */
const AttnBand *device_plans_bands(const Engine *engine, const DevicePlans *plans, uint32_t slot,
                                   const AttnBand *bands);
/* What a span's rows see in a layer, with tables of the host. own: its plans that went over; NULL: its policy's. */
void device_plans_look(const Engine *engine, const PieceSpan *span, uint32_t layer, const AttnPlan *own,
                       AttnPlan *ret_plans); /* [n_kv_heads] */
