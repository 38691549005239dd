/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Untrusted JSON. json_parse is strict RFC 8259 with bounds and says where a text breaks; it also refuses what readers
 * disagree about: duplicate keys, NUL in strings, lone surrogates, numbers beyond double. The getters name the field in
 * their errors; null means absent; a wrong type is an error and never a silent default. Any thread.
 */
#pragma once
#include "base/error.h"
#include <cjson/cJSON.h>
#include <stdint.h>

enum { JSON_MAX_DEPTH = 128, JSON_MAX_NUMBER_CHARS = 60 };
#define JSON_MAX_VALUES (UINT32_C(1) << 21)

/* text: n bytes and a NUL behind them. The caller ends the tree with cJSON_Delete. */
LW_CHECK bool json_parse(const char *text, size_t n, cJSON **ret_json, Error *error);
/* what: how errors call the text, which json_parse calls "the request body". */
LW_CHECK bool json_parse_as(const char *what, const char *text, size_t n, cJSON **ret_json, Error *error);

/* The member, or NULL when it is absent or null. */
const cJSON *json_member(const cJSON *object, const char *key);
/* "boolean", "string", ...: for messages. */
const char *json_type_name(const cJSON *item);

/* path: how the error names the item. All of them want an item that is there. */
LW_CHECK bool json_get_bool(const cJSON *item, const char *path, bool *ret_value, Error *error);
LW_CHECK bool json_get_real(const cJSON *item, const char *path, double min, double max, double *ret_value,
                            Error *error);
/* Whole numbers only. */
LW_CHECK bool json_get_int(const cJSON *item, const char *path, int64_t min, int64_t max, int64_t *ret_value,
                           Error *error);
LW_CHECK bool json_get_string(const cJSON *item, const char *path, const char **ret_value, Error *error);
LW_CHECK bool json_get_array(const cJSON *item, const char *path, size_t max_items, size_t *ret_n, Error *error);
LW_CHECK bool json_get_object(const cJSON *item, const char *path, Error *error);
