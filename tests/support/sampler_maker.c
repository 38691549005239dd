/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/sampler_maker.h"

#include <stdlib.h>

enum { MAX_MADE = 16 };

static struct {
    Sampler *sampler;
    SamplerSpace *space;
} made[MAX_MADE];

Sampler *sampler_maker_new(uint32_t n_vocab, TokenText text)
{
    Error error;
    size_t i = 0;
    while (i < MAX_MADE && made[i].sampler) i++;
    if (i == MAX_MADE || !sampler_space_new(n_vocab, text, &made[i].space, &error) ||
        !sampler_new(made[i].space, &made[i].sampler, &error))
        abort();
    return made[i].sampler;
}

void sampler_maker_free(Sampler *sampler)
{
    for (size_t i = 0; i < MAX_MADE; i++) {
        if (made[i].sampler != sampler) continue;
        sampler_free(sampler);
        sampler_space_free(made[i].space);
        made[i].sampler = NULL;
        return;
    }
    abort();
}
