/* SPDX-License-Identifier: Apache-2.0 */
/* API keys: "Authorization: Bearer KEY", compared in constant time. Immutable after loading; no key is ever logged. */
#pragma once
#include "base/error.h"

typedef struct Auth Auth;

/* key_file: lines "name:key" or "key", '#' comments, of a path or of credential:NAME; key: one more. Both NULL:
 * everyone may. */
LW_CHECK bool auth_load(const char *key_file, const char *key, Auth **ret_auth, Error *error);
void auth_free(Auth *auth); /* NULL is fine */
/* header: value of Authorization, or NULL. */
bool auth_allows(const Auth *auth, const char *header);
