/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/device_budget.h"

#include "engine/device_step.h"

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

/* Of each class, what the policy that takes most of it needs for one context. */
static void need_of_context(const Engine *engine, uint32_t n_tokens, KvShare *ret_needs)
{
    for (uint32_t i = 0; i < engine->classes.n_classes; i++) ret_needs[i] = (KvShare){0};
    for (PolicyId policy = 0; policy < engine->n_policies; policy++)
        for (uint32_t c = 0; c < engine->classes.policies[policy].n_classes; c++) {
            KvShare need = kv_class_need(&engine->classes, policy, c, n_tokens, engine->params.max_batch_rows);
            KvShare *most = &ret_needs[engine->classes.policies[policy].classes[c].class_id];
            if (need.n_pages > most->n_pages) most->n_pages = need.n_pages;
            if (need.n_images > most->n_images) most->n_images = need.n_images;
        }
}

/* Passes of prefill that are open at once fill pages each; every sequence that decodes has an open page besides. */
static void need_of_all(const Engine *engine, uint32_t n_tokens, uint32_t n_passes, KvShare *ret_needs)
{
    need_of_context(engine, n_tokens, ret_needs);
    for (uint32_t i = 0; i < engine->classes.n_classes; i++)
        if (ret_needs[i].n_images)
            ret_needs[i].n_images = n_passes * ret_needs[i].n_images + engine->params.max_sequences;
}

typedef struct Needs {
    uint64_t pages, images; /* bytes */
} Needs;

static Needs bytes_of(const Engine *engine, const KvShare *needs)
{
    Needs bytes = {0};
    for (uint32_t i = 0; i < engine->classes.n_classes; i++) {
        bytes.pages += needs[i].n_pages * engine->classes.classes[i].page_bytes;
        bytes.images += needs[i].n_images * engine->classes.classes[i].image_bytes;
    }
    return bytes;
}

/* The longest context whose pages fit. */
static uint32_t fitting_context(const Engine *engine, uint64_t room, KvShare *needs)
{
    uint32_t fits = 0, too_long = engine->params.context;
    while (too_long - fits > 1) {
        uint32_t middle = fits + (too_long - fits) / 2;
        need_of_all(engine, middle, 1, needs);
        Needs bytes = bytes_of(engine, needs);
        if (bytes.pages + bytes.images <= room)
            fits = middle;
        else
            too_long = middle;
    }
    return fits;
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
    ret->buffers += device_step_bytes(engine);
    ret->buffers += kv_seqs_device_bytes(&engine->classes, engine->params.context, engine->params.max_sequences);
    return true;
}

static bool tell_too_large(Engine *engine, uint64_t total, const Fixed *fixed, KvShare *needs, Error *error)
{
    uint64_t taken = fixed->weights + fixed->buffers;
    need_of_all(engine, engine->params.context, 1, needs);
    Needs need = bytes_of(engine, needs);
    uint32_t fits = total > taken ? fitting_context(engine, total - taken, needs) : 0;
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

/* Images of as many passes as may be open, of fewer where that leaves no room for a context: those take turns. */
static Needs need_of_passes(const Engine *engine, const Fixed *fixed, uint64_t total, KvShare *ret_needs)
{
    uint32_t n_passes = engine->params.max_passes;
    for (;; n_passes--) {
        need_of_all(engine, engine->params.context, n_passes, ret_needs);
        Needs need = bytes_of(engine, ret_needs);
        if (n_passes <= 1 || fixed->weights + fixed->buffers + need.images + need.pages <= total) return need;
    }
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
    Needs need = need_of_passes(engine, &fixed, total, ret_shares);
    uint64_t taken = fixed.weights + fixed.buffers + need.images;
    if (taken > total || need.pages > total - taken) return tell_too_large(engine, total, &fixed, ret_shares, error);
    uint64_t room = total - taken, enough = p->kv_bytes;
    if (!enough && __builtin_mul_overflow(need.pages, p->max_sequences, &enough)) enough = UINT64_MAX;
    if (enough < room) room = enough < need.pages ? need.pages : enough;
    for (uint32_t i = 0; i < engine->classes.n_classes; i++)
        ret_shares[i].n_pages =
            (uint64_t)((long double)ret_shares[i].n_pages * (long double)room / (long double)need.pages);
    return true;
}
