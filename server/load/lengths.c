/* SPDX-License-Identifier: Apache-2.0 */
#include "server/load/lengths.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SIGMA 4.0

static bool refuse(const char *text, Error *error)
{
    return error_set(error, ERR_INVALID, "'%s' is none of N, A-B, exp:MEAN and lognormal:MEDIAN:SIGMA", text);
}

/* Digits with K or M behind them; *at moves to what follows. */
static bool read_number(const char *text, const char **at, const Lengths *bounds, double *ret_value, Error *error)
{
    char *end;
    if (**at < '0' || **at > '9') return refuse(text, error);
    double value = (double)strtoull(*at, &end, 10);
    if (*end == 'K' || *end == 'M') value *= *end++ == 'K' ? 1 << 10 : 1 << 20;
    if (value < bounds->min || value > bounds->max)
        return error_set(error, ERR_INVALID, "'%s': %.0f is not between %u and %u", text, value, bounds->min,
                         bounds->max);
    *at = end;
    *ret_value = value;
    return true;
}

static bool read_sigma(const char *text, const char *at, double *ret_sigma, Error *error)
{
    char *end;
    if (strspn(at, "0123456789.") != strlen(at)) return refuse(text, error);
    double sigma = strtod(at, &end);
    if (end == at || *end) return refuse(text, error);
    if (sigma > MAX_SIGMA) return error_set(error, ERR_INVALID, "'%s': a sigma is between 0 and %g", text, MAX_SIGMA);
    *ret_sigma = sigma;
    return true;
}

static bool begins_with(const char **at, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(*at, word, n) != 0) return false;
    *at += n;
    return true;
}

bool lengths_parse(const char *text, uint32_t min, uint32_t max, Lengths *ret_lengths, Error *error)
{
    Lengths found = {.kind = LENGTHS_UNIFORM, .min = min, .max = max};
    const char *at = text;
    if (begins_with(&at, "exp:"))
        found.kind = LENGTHS_EXPONENTIAL;
    else if (begins_with(&at, "lognormal:"))
        found.kind = LENGTHS_LOGNORMAL;
    if (!read_number(text, &at, &found, &found.a, error)) return false;
    found.b = found.a;
    if (found.kind == LENGTHS_LOGNORMAL) {
        if (*at++ != ':') return refuse(text, error);
        if (!read_sigma(text, at, &found.b, error)) return false;
        at += strlen(at);
    } else if (found.kind == LENGTHS_UNIFORM && *at == '-') {
        at++;
        if (!read_number(text, &at, &found, &found.b, error)) return false;
        if (found.b < found.a) return error_set(error, ERR_INVALID, "'%s': the second number is the smaller one", text);
    }
    if (*at) return refuse(text, error);
    *ret_lengths = found;
    return true;
}

double lengths_draw_gap(Rng *rng)
{
    return -log(1 - rng_unit(rng));
}

/* Box and Muller's. */
static double draw_normal(Rng *rng)
{
    double radius = sqrt(2 * lengths_draw_gap(rng));
    return radius * cos(6.283185307179586 * rng_unit(rng));
}

uint32_t lengths_draw(const Lengths *lengths, Rng *rng)
{
    double value = 0;
    switch (lengths->kind) {
    case LENGTHS_UNIFORM:
        value = lengths->a + floor(rng_unit(rng) * (lengths->b - lengths->a + 1));
        break;
    case LENGTHS_EXPONENTIAL:
        value = round(lengths->a * lengths_draw_gap(rng));
        break;
    case LENGTHS_LOGNORMAL:
        value = round(lengths->a * exp(lengths->b * draw_normal(rng)));
        break;
    }
    return value < lengths->min ? lengths->min : value > lengths->max ? lengths->max : (uint32_t)value;
}
