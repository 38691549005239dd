/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of head roles: which KV heads stream, and how far they look back. One JSON object:
 *   {"sink": 128, "recent": 256, "recent_prefill": 2048, "streaming": [{"layer": 0, "heads": [0, 2]}, ...]}
 * in tokens, multiples of KV_PAGE_TOKENS; recent_prefill is for the rows of prompts. Those three numbers are what is
 * taken where one is missing (LServe 3.3; recent_prefill: at least recent). What `calibrate` writes has more members;
 * of those only "model" counts, the fingerprint. In place of a file "50%" is that share of all KV heads, spread evenly,
 * with these ranges: for measuring speed, since which heads may stream only `calibrate` can tell.
 */
#pragma once
#include "base/arena.h"
#include "engine/model/family.h"
#include "engine/select/policy.h"

enum { ROLES_MAX_POLICIES = 16, ROLES_MAX_FILE_BYTES = 4 << 20, ROLES_MAX_NAME_BYTES = 64 };

/* What they are for. */
typedef struct RolesModel {
    const ModelShape *shape;
    uint64_t fingerprint; /* engine_model_fingerprint */
} RolesModel;

/*
 * Dense attention, then what the files of "NAME=PATH[,NAME=PATH...]" make of it, in this order; list NULL: none. All
 * lives in the arena. An error names roles and the file.
 */
LW_CHECK bool roles_load(const char *list, const RolesModel *model, Arena *arena, const AttnPolicy **ret_policies,
                         uint32_t *ret_n, Error *error);
/* One file's text [n bytes]; name is kept. */
LW_CHECK bool roles_parse(const char *text, size_t n, const char *name, const RolesModel *model, Arena *arena,
                          AttnPolicy *ret_policy, Error *error);
