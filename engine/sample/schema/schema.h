/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON schemas as grammars: every text of the grammar is a JSON value that is valid against the schema. A keyword that
 * would change what is valid and is not supported is refused, with its place, never passed over. Any thread.
 */
#pragma once
#include "engine/sample/grammar/grammar.h"
#include <cjson/cJSON.h>

typedef struct SchemaOptions {
    /* Properties come in the order of the schema, as OpenAI's strict mode has it; else small objects take any order. */
    bool keeps_order;
    /* What stands beside a '$ref' does not count, as up to draft 7; a '$schema' in the schema overrides it. */
    bool ref_stands_alone;
} SchemaOptions;

/*
 * options NULL: any order, all counts. ERR_SCHEMA: not valid, not supported, or no value at all is valid (then
 * *ret_is_empty, if given, is set too); ERR_TOO_LARGE: over a limit. The tree is borrowed for the call.
 */
LW_CHECK bool schema_compile(const cJSON *schema, const SchemaOptions *options, GrammarBuilder *builder,
                             GrammarNode *ret_node, bool *ret_is_empty, Error *error);
/* Any JSON object: response_format json_object. */
GrammarNode schema_any_object(GrammarBuilder *builder);
/* What OpenAI asks of a schema for strict mode: objects closed, all properties required, the root an object. */
LW_CHECK bool schema_check_strict(const cJSON *schema, Error *error);
