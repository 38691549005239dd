/* SPDX-License-Identifier: Apache-2.0 */
/* Schemas in tests: compiled from text, asked for texts. Fails the test where something breaks that should not. */
#pragma once
#include "engine/sample/grammar/matcher.h"
#include "engine/sample/schema/schema.h"

/* false: refused, and *error tells why. The caller releases. */
bool schema_rig_compile(const char *schema, const SchemaOptions *options, Grammar **ret_grammar, Error *error);
bool schema_rig_accepts(Grammar *grammar, const char *text);
/* Compiles it; every text of yes [until NULL] is of the grammar and none of no is. */
void schema_rig_check(const char *schema, const char *const *yes, const char *const *no);
/* It is refused, with this in the message. */
void schema_rig_refuses(const char *schema, const char *part);

#define TEXTS(...)                                                                                                     \
    (const char *const[])                                                                                              \
    {                                                                                                                  \
        __VA_ARGS__, NULL                                                                                              \
    }
#define NO_TEXTS                                                                                                       \
    (const char *const[])                                                                                              \
    {                                                                                                                  \
        NULL                                                                                                           \
    }
