/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of which kinds the members of a schema's objects may be, by what its keywords plainly say: never too few kinds,
 * perhaps too many. Whoever writes values without quotes and whoever reads them need the same answer. Any thread.
 */
#pragma once
#include "base/arena.h"
#include "engine/text/value_kinds.h"
#include <cjson/cJSON.h>

/* Looks: at the members of an object for the one of a name, and at what a reference may mean. */
enum { KINDS_MAX_STEPS = 1 << 20, KINDS_MAX_LOOKS = 1 << 22, KINDS_MAX_NESTED = 32, KINDS_WHOLE_SCHEMAS = 16 };

/*
 * Names are borrowed from the schema. What is beyond the limits, or refers to nothing, may be of any kind. n_schemas:
 * how many a request has; where there are more than KINDS_WHOLE_SCHEMAS, they share what so many may take.
 */
LW_CHECK bool schema_member_kinds(const cJSON *schema, uint32_t n_schemas, Arena *arena, ObjectKinds *ret_kinds,
                                  Error *error);
