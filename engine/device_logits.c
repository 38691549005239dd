/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/device_logits.h"

#include "engine/device_step.h"
#include "kernels/sample/token_weight.h"

#include <stdlib.h>
#include <string.h>

enum { CHANGES_BYTES = 4 << 20, ALIGN = 16 }; /* of masks and edits of a step: more than 64 masks of 262,144 ids */

struct DeviceLogits {
    uint32_t max_rows, n_digests; /* n_digests: rows of the step that ended last, if it had digests */
    bool *is_digest;              /* [max_rows] of the step that was put together last */
    bool some, has_edits;         /* of these */
    char *changes;                /* [CHANGES_BYTES] pinned: masks and edits */
    char *device_changes;         /* the same on the device, in front of the scratch */
    size_t n_change_bytes;
    RowDigest *digests; /* [max_rows] pinned, and so are the lists */
    DigestItem *items;  /* [max_rows, DIGEST_LIST] */
    void *scratch;      /* of the device */
    uint64_t device_bytes;
};

static uint64_t logits_bytes(const Engine *engine)
{
    return (uint64_t)engine->params.max_logit_rows * engine->shape.n_vocab * sizeof(float);
}

static uint64_t digests_bytes(uint32_t max_rows)
{
    return max_rows * sizeof(RowDigest);
}

static uint64_t items_bytes(uint32_t max_rows)
{
    return (uint64_t)max_rows * DIGEST_LIST * sizeof(DigestItem);
}

uint64_t device_logits_bytes(const Engine *engine)
{
    return CHANGES_BYTES + engine->device->ops->digest_scratch(device_step_max_rows(engine), engine->shape.n_vocab);
}

bool device_logits_new(Engine *engine, Error *error)
{
    Device *device = engine->device;
    DeviceLogits *logits = engine->device_logits = calloc(1, sizeof *logits);
    engine->host_logits = NULL;
    if (!logits) return error_set(error, ERR_NO_MEMORY, "no memory for the logits of a device");
    logits->max_rows = device_step_max_rows(engine);
    logits->device_bytes = device_logits_bytes(engine);
    logits->is_digest = calloc(logits->max_rows, sizeof *logits->is_digest);
    engine->host_logits = device->ops->pin(device, logits_bytes(engine));
    logits->digests = device->ops->pin(device, digests_bytes(logits->max_rows));
    logits->items = device->ops->pin(device, items_bytes(logits->max_rows));
    logits->changes = device->ops->pin(device, CHANGES_BYTES);
    logits->device_changes = device->ops->alloc(device, logits->device_bytes);
    logits->scratch = logits->device_changes ? logits->device_changes + CHANGES_BYTES : NULL;
    return (logits->is_digest && engine->host_logits && logits->digests && logits->items && logits->changes &&
            logits->scratch) ||
           error_set(error, ERR_NO_MEMORY, "no memory that %s and the host share for logits", device->name);
}

void device_logits_free(Engine *engine)
{
    DeviceLogits *logits = engine->device_logits;
    Device *device = engine->device;
    if (!logits) return;
    device->ops->unpin(device, engine->host_logits, logits_bytes(engine));
    device->ops->unpin(device, logits->digests, digests_bytes(logits->max_rows));
    device->ops->unpin(device, logits->items, items_bytes(logits->max_rows));
    device->ops->unpin(device, logits->changes, CHANGES_BYTES);
    device->ops->free(device, logits->device_changes, logits->device_bytes);
    free(logits->is_digest);
    free(logits);
    engine->device_logits = NULL;
}

/* Where the device will find these bytes; NULL: there is no room. */
static const void *put_change(DeviceLogits *logits, const void *from, size_t n)
{
    size_t at = (logits->n_change_bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (at > CHANGES_BYTES || n > CHANGES_BYTES - at) return NULL;
    memcpy(logits->changes + at, from, n);
    logits->n_change_bytes = at + n;
    return logits->device_changes + at;
}

static bool put_ask(const Engine *engine, const DigestAsk *from, DigestAsk *ask)
{
    DeviceLogits *logits = engine->device_logits;
    *ask = *from;
    if (from->mask) ask->mask = put_change(logits, from->mask, (engine->shape.n_vocab + 63) / 64 * sizeof *from->mask);
    if (from->n_edits) ask->edits = put_change(logits, from->edits, from->n_edits * sizeof *from->edits);
    return from->is_wanted && !from->mask == !ask->mask && (!from->n_edits || ask->edits);
}

void device_logits_ask(Engine *engine, const Pass *pass, DigestAsk *asks)
{
    DeviceLogits *logits = engine->device_logits;
    logits->n_change_bytes = 0;
    logits->some = logits->has_edits = false;
    for (uint32_t i = 0; pass->asks && i < pass->n_rows; i++) {
        logits->is_digest[i] = put_ask(engine, &pass->asks[i], &asks[i]);
        asks[i].is_wanted = logits->is_digest[i];
        logits->some |= asks[i].is_wanted;
        logits->has_edits |= asks[i].is_wanted && asks[i].n_edits;
    }
}

static bool copy_rows(const Engine *engine, uint32_t first, uint32_t n)
{
    size_t row = engine->shape.n_vocab;
    return device_copy(engine->device, engine->host_logits + first * row, engine->logits + first * row,
                       n * row * sizeof(float));
}

/* Rows [0, n_rows) that have no digest: those that lie together in one piece. */
static bool copy_others(const Engine *engine, uint32_t n_rows)
{
    const bool *is_digest = engine->device_logits->is_digest;
    for (uint32_t first = 0, end; first < n_rows; first = end + 1) {
        for (end = first; end < n_rows && !is_digest[end];) end++;
        if (end > first && !copy_rows(engine, first, end - first)) return false;
    }
    return true;
}

static bool make_digests(const Engine *engine, uint32_t n_rows)
{
    const DeviceLogits *logits = engine->device_logits;
    const DigestParams params = {.logits = engine->logits,
                                 .n_rows = n_rows,
                                 .n_vocab = engine->shape.n_vocab,
                                 .max_rows = logits->max_rows,
                                 .has_edits = logits->has_edits,
                                 .asks = device_step_asks(engine),
                                 .digests = logits->digests,
                                 .items = logits->items,
                                 .scratch = logits->scratch};
    return device_copy(engine->device, logits->device_changes, logits->changes, logits->n_change_bytes) &&
           engine->kernels->digest(&params, engine->stream);
}

bool device_logits_bring(Engine *engine, const Pass *pass, uint32_t n_rows)
{
    DeviceLogits *logits = engine->device_logits;
    logits->n_digests = 0;
    if (n_rows == 0) return true;
    if (!pass->has_logits || !pass->asks) return copy_rows(engine, 0, n_rows) && device_sync(engine->device);
    logits->n_digests = n_rows;
    return (!logits->some || make_digests(engine, n_rows)) && copy_others(engine, n_rows) &&
           device_sync(engine->device);
}

bool engine_makes_digests(const Engine *engine)
{
    return engine->device_logits && engine->kernels->digest && engine->shape.n_vocab <= TOKEN_MAX_VOCAB;
}

const RowDigest *engine_digest(const Engine *engine, uint32_t row, const DigestItem **ret_items)
{
    const DeviceLogits *logits = engine->device_logits;
    if (!logits || row >= logits->n_digests || !logits->is_digest[row]) return NULL;
    *ret_items = logits->items + (size_t)row * DIGEST_LIST;
    return &logits->digests[row];
}

bool engine_bring_rows(Engine *engine, const uint32_t *rows, uint32_t n, Error *error)
{
    device_use(engine->device);
    for (uint32_t i = 0; i < n; i++)
        if (!copy_rows(engine, rows[i], 1)) return error_set(error, ERR_DEVICE, "%s failed", engine->device->name);
    return device_sync(engine->device) || error_set(error, ERR_DEVICE, "%s failed", engine->device->name);
}
