/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies as eval and bench take them on the command line: a preset and what is to be changed in it,
 *   NAME[:FIELD=VALUE...], as in lserve-4k:budget=1024:k_decode=2. Any thread.
 */
#pragma once
#include "base/arena.h"
#include "engine/select/policy.h"

enum { POLICY_SPEC_MAX = 128 };

typedef struct PolicySpec {
    char text[POLICY_SPEC_MAX]; /* as it was asked for */
    char roles[64];             /* the file of head roles that it names; "": none */
    const AttnPolicy *preset;   /* that it changes */
    uint64_t given;             /* bits of the fields that it names */
    AttnPolicy policy;          /* its roles are for the caller to find; text is its name */
} PolicySpec;

/* One of n bytes, presets.h has the names. An error names policies. */
LW_CHECK bool policy_spec_parse(const char *text, size_t n, PolicySpec *ret_spec, Error *error);
/* The next of a comma-separated list, which moves on behind it and is NULL at the end. */
LW_CHECK bool policy_spec_next(const char **list, PolicySpec *ret_spec, Error *error);
/* The first preset of a list that tells queries beyond the trained context of no positions beyond it; NULL: none. */
const char *policy_specs_moving_preset(const char *list);
/*
 * The one of a list whose lists are the longest on a device: what an engine is opened with has room for those of the
 * others too. Its text; NULL: none selects.
 */
const char *policy_specs_longest(const char *list, PolicySpec *ret_spec);
/* Has a device all policies of a list? The error names the first that it lacks, and the CPU. */
LW_CHECK bool policy_specs_on_device(const char *list, Error *error);
/* The roles that it names, of one of the policies [n]; ranges that it does not set itself come with them. */
LW_CHECK bool policy_spec_take_roles(PolicySpec *spec, const AttnPolicy *policies, uint32_t n, Error *error);
