/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON schemas as grammars: every text of the grammar is a JSON value that is valid against the schema. A keyword that
 * would change what is valid and is not supported is refused, with its place, never passed over. Any thread.
 */
#pragma once
#include "engine/sample/grammar/grammar.h"
#include <cjson/cJSON.h>

/* How values are written. */
typedef enum SchemaForm {
    SCHEMA_JSON,
    SCHEMA_PYTHON, /* Python's literals; of the root name=value, ... without brackets */
    SCHEMA_MARKED, /* JSON's signs, but strings raw between marks and keys bare */
    SCHEMA_TAGGED, /* members of the root between tags, raw if they are strings, else JSON */
} SchemaForm;

/*
 * All but JSON write an object. A raw string that reads as another kind of value, where such a value may stand too, is
 * written in JSON's quotes. All is borrowed for the call.
 */
typedef struct SchemaWriter {
    SchemaForm form;
    GrammarNode mark; /* MARKED: before and behind a string */
    const char *end;  /* MARKED, TAGGED: what no raw string has in it; NULL: any text */
    const char *before_key, *behind_key, *behind_value; /* TAGGED */
    const cJSON *kinds_of; /* TAGGED: the schema by which its reader tells texts (schema_member_kinds) */
    uint32_t n_kinds_of;   /* TAGGED: how many such schemas the request has */
} SchemaWriter;

typedef struct SchemaOptions {
    const SchemaWriter *writer; /* NULL: JSON */
    bool is_object;             /* nothing but objects counts */
    /* Properties come in the order of the schema, as OpenAI's strict mode has it; else small objects take any order. */
    bool keeps_order;
    /* What stands beside a '$ref' does not count, as up to draft 7; a '$schema' in the schema overrides it. */
    bool ref_stands_alone;
} SchemaOptions;

/*
 * options NULL: any order, all counts. ERR_SCHEMA: not valid, not supported, or no value at all is valid (then
 * *ret_is_empty, if given, is set too); ERR_UNSUPPORTED: a key or a value that the writer's form cannot tell;
 * ERR_TOO_LARGE: over a limit. The tree is borrowed for the call.
 */
LW_CHECK bool schema_compile(const cJSON *schema, const SchemaOptions *options, GrammarBuilder *builder,
                             GrammarNode *ret_node, bool *ret_is_empty, Error *error);
/* Any JSON object: response_format json_object. */
GrammarNode schema_any_object(GrammarBuilder *builder);
/* What OpenAI asks of a schema for strict mode: objects closed, all properties required, the root an object. */
LW_CHECK bool schema_check_strict(const cJSON *schema, Error *error);
