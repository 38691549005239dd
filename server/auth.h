/* SPDX-License-Identifier: Apache-2.0 */
/*
 * API keys: "Authorization: Bearer KEY". Of keys only SHA-256 digests are kept, and all of them are compared, whatever
 * is given. A key belongs to the account of its name and has the rights of its scope. Loop thread.
 */
#pragma once
#include "server/account.h"

typedef struct Auth Auth;

/* Bits. */
typedef enum AuthRight {
    RIGHT_WATCH = 1, /* metrics, those of all accounts too */
    RIGHT_USE = 2,   /* what needs a model */
    RIGHT_ADMIN = 4, /* sessions; requests of others */
} AuthRight;

/*
 * key_file: a path or credential:NAME; a line each of "[NAME:]KEY [scope=user|monitor|admin] [requests=N] [tokens=N]
 * [concurrent=N]", '#' comments; KEY may be "sha256=" and 64 hex digits. Lines of one name share its limits. key: one
 * more, with all rights. Both NULL: everyone may do everything.
 */
LW_CHECK bool auth_load(const char *key_file, const char *key, Auth **ret_auth, Error *error);
/* What old accounts have used counts on for those of the same name. */
void auth_take_over(Auth *auth, const Auth *old);
void auth_free(Auth *auth); /* NULL is fine */

typedef struct AuthGrant {
    Account *account; /* NULL: there are no keys; borrowed */
    unsigned rights;
} AuthGrant;

/* header: value of Authorization, or NULL. False: no key of ours. */
LW_CHECK bool auth_check(const Auth *auth, const char *header, AuthGrant *ret_grant);
/* Account i in the order of the file, or NULL behind the last. */
const Account *auth_account(const Auth *auth, size_t i);
