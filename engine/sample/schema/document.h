/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A schema's whole text: which identifiers its parts have, what a '$ref' points at, and where a part stands, for
 * messages. Borrows the tree, lives in the arena. One thread at a time.
 */
#pragma once
#include "base/arena.h"
#include <cjson/cJSON.h>

enum { SCHEMA_MAX_DEPTH = 128, SCHEMA_MAX_SCHEMAS = 20000 };

typedef struct SchemaDocument SchemaDocument;

LW_CHECK bool schema_document_open(const cJSON *root, Arena *arena, SchemaDocument **ret_document, Error *error);
/* The schema that the reference in this schema object points at. */
LW_CHECK bool schema_document_resolve(SchemaDocument *document, const cJSON *schema, const char *reference,
                                      const cJSON **ret_target, Error *error);
/* Where an item of the tree stands, "#/properties/a"; cut where n ends. */
void schema_path(const cJSON *root, const cJSON *item, char *out, size_t n);
uint64_t schema_count_items(const cJSON *item); /* with itself and all below it */
const cJSON *schema_document_root(const SchemaDocument *document);
