/* SPDX-License-Identifier: Apache-2.0 */
/* What changes single logits before all else, as one edit for each id: a device can make them too. */
#include "engine/sample/sampler_impl.h"

#include <math.h>
#include <stdlib.h>

static void bias_edit(Sampler *sampler)
{
    const SamplingParams *p = &sampler->params;
    for (uint32_t i = 0; i < p->n_bias; i++) edit_of(sampler, p->bias[i].id)->bias += p->bias[i].bias;
}

static void bans_edit(Sampler *sampler)
{
    for (uint32_t i = 0; i < sampler->n_banned; i++)
        if (sampler->banned[i] < sampler->space->n_vocab) edit_of(sampler, sampler->banned[i])->bias = -INFINITY;
}

DigestEdit *edit_of(Sampler *sampler, uint32_t id)
{
    uint32_t *slot = &sampler->space->slots[id];
    if (!*slot) {
        sampler->edits[sampler->n_edits] = (DigestEdit){.id = id, .repetition = 1};
        *slot = ++sampler->n_edits;
    }
    return &sampler->edits[*slot - 1];
}

static bool reserve(Sampler *sampler, Error *error)
{
    const History *history = &sampler->history;
    size_t most = (size_t)sampler->params.n_bias + sampler->n_banned + history->n_counted;
    if (dry_applies_to(sampler)) most += history->n_ring;
    if (most <= sampler->max_edits) return true;
    DigestEdit *edits = realloc(sampler->edits, most * sizeof *edits);
    if (!edits) return error_set(error, ERR_NO_MEMORY, "no memory to change %zu logits", most);
    sampler->edits = edits;
    sampler->max_edits = most;
    return true;
}

bool sampler_edits(const Sampler *sampler)
{
    return sampler->params.n_bias || sampler->n_banned || penalties_apply_to(sampler) || dry_applies_to(sampler);
}

bool edits_find(Sampler *sampler, Error *error)
{
    sampler->n_edits = 0;
    if (!reserve(sampler, error)) return false;
    bias_edit(sampler);
    bans_edit(sampler);
    if (penalties_apply_to(sampler)) penalties_edit(sampler);
    if (dry_applies_to(sampler)) dry_edit(sampler);
    for (uint32_t i = 0; i < sampler->n_edits; i++) sampler->space->slots[sampler->edits[i].id] = 0;
    return true;
}

void edits_apply(const Sampler *sampler, float *logits)
{
    for (uint32_t i = 0; i < sampler->n_edits; i++) {
        float *l = &logits[sampler->edits[i].id];
        *l = digest_edited(*l, &sampler->edits[i]);
    }
}
