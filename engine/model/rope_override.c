/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/rope_override.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FACTOR = 1024, MAX_STRETCHED_CONTEXT = 1 << 28 };

static const char *const names[ROPE_N_OVERRIDES] = {"plain", "linear", "ntk", "yarn"};

bool rope_override_parse(const char *text, RopeOverride *ret_override, Error *error)
{
    const char *equals = strchr(text, '=');
    size_t n = equals ? (size_t)(equals - text) : strlen(text);
    RopeOverrideKind kind = ROPE_PLAIN;
    while (kind < ROPE_N_OVERRIDES && (strlen(names[kind]) != n || memcmp(names[kind], text, n) != 0)) kind++;
    char *end = NULL;
    double factor = equals ? strtod(equals + 1, &end) : 0;
    bool is_number = end && end != equals + 1 && !*end && factor >= 1 && factor <= MAX_FACTOR;
    if (kind == ROPE_N_OVERRIDES || !is_number)
        return error_set_param(error, ERR_INVALID, "rope",
                               "rope is '%.60s'; it must be plain, linear, ntk or yarn, '=' and a factor from 1 to %d",
                               text, MAX_FACTOR);
    *ret_override = (RopeOverride){kind, factor};
    return true;
}

static bool refuse(const ModelShape *shape, RopeOverrideKind kind, const char *why, Error *error)
{
    return error_set_param(error, ERR_UNSUPPORTED, "rope", "rope '%s' does not go with '%s', %s", names[kind],
                           shape->name, why);
}

static bool set_yarn(double factor, ModelShape *shape, Error *error)
{
    if (shape->rope_yarn.factor != 0) return refuse(shape, ROPE_YARN, "which has YaRN already", error);
    if (shape->window_rope_base != 0)
        return refuse(shape, ROPE_YARN, "whose sliding windows rotate by a base of their own", error);
    shape->rope_yarn = (RopeYarn){.factor = factor, .beta_fast = 32, .beta_slow = 1};
    shape->rope_original_context = shape->train_context;
    shape->rope_magnitude *= (float)(1 + 0.1 * log(factor));
    return true;
}

static bool set_ntk(double factor, ModelShape *shape, Error *error)
{
    if (shape->rope_dim <= 2) return refuse(shape, ROPE_NTK, "which rotates no more than one pair", error);
    shape->rope_base *= pow(factor, shape->rope_dim / (shape->rope_dim - 2.0));
    return true;
}

bool rope_override_apply(const RopeOverride *override, ModelShape *shape, Error *error)
{
    if (!override) return true;
    ModelShape changed = *shape;
    double context = override->factor * shape->train_context;
    if (override->kind == ROPE_YARN && !set_yarn(override->factor, &changed, error)) return false;
    if (override->kind == ROPE_NTK && !set_ntk(override->factor, &changed, error)) return false;
    if (override->kind == ROPE_LINEAR) changed.rope_linear_factor *= override->factor;
    changed.train_context = context < MAX_STRETCHED_CONTEXT ? (uint32_t)context : MAX_STRETCHED_CONTEXT;
    changed.rope_context = changed.train_context;
    *shape = changed;
    return true;
}
