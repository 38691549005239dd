/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/sampler_maker.h"

#include <math.h>
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

double draws_deviation(const double *prob, const uint32_t *got, uint32_t n, int n_draws)
{
    enum { LEAST = 8 };
    double chi = 0, rest_want = 0, rest_got = 0;
    uint32_t freedom = 0;
    for (uint32_t i = 0; i < n; i++) {
        double want = prob[i] * n_draws;
        if (want == 0 && got[i]) return INFINITY;
        if (want < LEAST) {
            rest_want += want;
            rest_got += got[i];
            continue;
        }
        chi += (got[i] - want) * (got[i] - want) / want;
        freedom++;
    }
    if (rest_want >= LEAST) {
        chi += (rest_got - rest_want) * (rest_got - rest_want) / rest_want;
        freedom++;
    }
    return freedom > 1 ? (chi - (freedom - 1)) / sqrt(2.0 * (freedom - 1)) : 0;
}
