/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/device_budget.h"

#include "engine/device_logits.h"
#include "engine/device_step.h"
#include "engine/kv/kv_budget.h"

#include <stdio.h>

enum { MAX_PAIRS = 65536, DEFAULT_TENTHS = 9 }; /* of sequence and KV head in one launch; of the device's memory */

static bool check_head(const ModelShape *shape, Error *error)
{
    static const uint32_t dims[] = {64, 96, 128, 256};
    bool found = false;
    for (uint32_t i = 0; i < sizeof dims / sizeof *dims; i++) found |= shape->head_dim == dims[i];
    return (found && shape->head_dim == shape->v_dim) ||
           error_set_param(error, ERR_UNSUPPORTED, "device",
                           "CUDA attention has heads of 64, 96, 128 and 256 channels, not of %u and %u",
                           shape->head_dim, shape->v_dim);
}

bool device_budget_check(const Engine *engine, Error *error)
{
    if (!check_head(&engine->shape, error)) return false;
    for (uint32_t i = 0; i < engine->classes.n_classes; i++)
        if (engine->classes.classes[i].type == KV_F32)
            return error_set_param(error, ERR_UNSUPPORTED, "kv_type", "kv_type f32 is for the CPU alone");
    if ((uint64_t)engine->params.max_sequences * engine->shape.n_kv_heads > MAX_PAIRS)
        return error_set_param(error, ERR_TOO_LARGE, "max_batch",
                               "%u sequences of %u KV heads are too many, at most %u", engine->params.max_sequences,
                               engine->shape.n_kv_heads, MAX_PAIRS / engine->shape.n_kv_heads);
    return true;
}

static KvBudget budget_of(const Engine *engine)
{
    const EngineParams *p = &engine->params;
    return (KvBudget){&engine->classes, engine->n_policies, p->max_batch_rows, p->max_passes, p->max_sequences};
}

static unsigned long long mib(uint64_t bytes)
{
    return (bytes + (1 << 20) - 1) >> 20;
}

typedef struct Fixed {
    uint64_t weights, buffers;
} Fixed;

static bool measure_fixed(const Engine *engine, Fixed *ret, Error *error)
{
    if (!device_weights_bytes(&engine->shape, &engine->weights, &ret->weights, error) ||
        !buffers_device_bytes(engine, &ret->buffers, error))
        return false;
    ret->buffers += device_step_bytes(engine) + device_logits_bytes(engine);
    ret->buffers += kv_seqs_device_bytes(&engine->classes, engine->params.context, engine->params.max_sequences);
    ret->buffers += engine_lists_device_bytes(engine);
    return true;
}

static bool tell_too_large(Engine *engine, uint64_t total, const Fixed *fixed, KvShare *needs, Error *error)
{
    uint64_t taken = fixed->weights + fixed->buffers;
    const KvBudget budget = budget_of(engine);
    KvBytes need = kv_budget_need(&budget, engine->params.context, 1, needs);
    uint32_t fits = total > taken ? kv_budget_longest(&budget, engine->params.context - 1, total - taken, needs) : 0;
    char instead[64] = "";
    engine->fitting_context = fits;
    if (fits) snprintf(instead, sizeof instead, "a ctx of %u fits, or ", fits);
    return error_set_param(error, ERR_NO_MEMORY, "gpu_memory",
                           "gpu_memory is %llu MiB, but weights take %llu, buffers %llu, and keys and values of %u "
                           "tokens %llu: %sgpu_memory of %llu MiB does, or a smaller prefill_chunk or kv_type",
                           (unsigned long long)(total >> 20), mib(fixed->weights), mib(fixed->buffers),
                           engine->params.context, mib(need.pages + need.images), instead,
                           mib(taken + need.pages + need.images));
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What is left goes to the classes in the proportions of one whole context. */
bool device_budget_share(Engine *engine, KvShare *ret_shares, Error *error)
{
    const EngineParams *p = &engine->params;
    uint64_t total = p->device_bytes, most = engine->device->free_bytes;
    Fixed fixed;
    if (!total) total = least(engine->device->total_bytes / 10 * DEFAULT_TENTHS, most);
    if (total > most)
        return error_set_param(error, ERR_INVALID, "gpu_memory", "gpu_memory is %llu MiB, but %s has %llu MiB free",
                               (unsigned long long)(total >> 20), engine->device->name,
                               (unsigned long long)(most >> 20));
    if (!measure_fixed(engine, &fixed, error)) return false;
    const KvBudget budget = budget_of(engine);
    uint64_t taken = fixed.weights + fixed.buffers;
    KvBytes need = kv_budget_need_in(&budget, p->context, total > taken ? total - taken : 0, ret_shares);
    taken += need.images;
    if (taken > total || need.pages > total - taken) return tell_too_large(engine, total, &fixed, ret_shares, error);
    uint64_t room = total - taken, enough = p->kv_bytes;
    if (!enough && __builtin_mul_overflow(need.pages, p->max_sequences, &enough)) enough = UINT64_MAX;
    if (enough < room) room = enough < need.pages ? need.pages : enough;
    kv_budget_scale(&budget, need.pages, room, ret_shares);
    return true;
}
