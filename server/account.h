/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose keys they are: the limits of one name, what is used of them, and what was used in all. What is used of a limit
 * "a minute" flows off evenly, so a minute's worth may come at once. Loop thread. now_usec: monotonic.
 */
#pragma once
#include "base/error.h"
#include <stdint.h>

enum { ACCOUNT_NAME_BYTES = 64, ACCOUNT_MAX_HEADERS = 6 };

/* 0: none */
typedef struct AccountLimits {
    uint64_t requests, tokens; /* a minute */
    uint64_t concurrent;       /* requests that are under way at once */
} AccountLimits;

/* Flows off; at usec it was that much. */
typedef struct AccountUse {
    double used;
    uint64_t usec;
} AccountUse;

typedef struct Account {
    char name[ACCOUNT_NAME_BYTES + 1];
    AccountLimits limits;
    uint32_t n_refs;
    uint64_t n_open; /* requests */
    AccountUse requests, tokens;
    uint64_t n_requests, n_limited, n_prompt_tokens, n_generated_tokens; /* since the start */
} Account;

/* With one reference. NULL when memory is out. */
LW_CHECK Account *account_new(const char *name, const AccountLimits *limits);
Account *account_ref(Account *account); /* NULL is fine, here and below */
void account_unref(Account *account);

/*
 * A request comes, and is charged: account_leave is due. ERR_BUSY: it has to wait *ret_retry_s, and nothing is charged.
 */
LW_CHECK bool account_enter(Account *account, uint64_t now_usec, int *ret_retry_s, Error *error);
void account_leave(Account *account);
/* The prompt of a request that came; as account_enter. *ret_retry_s -1: it is larger than the limit, waiting is no use.
 */
LW_CHECK bool account_take_prompt(Account *account, uint64_t n_tokens, uint64_t now_usec, int *ret_retry_s,
                                  Error *error);
/*
 * Nothing was served: takes back so much of what account_enter and account_take_prompt charged. A request that came
 * stays counted; n_tokens in the turn of the loop in which they were taken, so that no count is seen to fall.
 */
void account_return(Account *account, uint64_t n_requests, uint64_t n_tokens, uint64_t now_usec);
/* Tokens of answers, as they are written: more may be used than the limit, and has to flow off then. */
void account_add_generated(Account *account, uint64_t n_tokens, uint64_t now_usec);

/* x-ratelimit-..., of what is limited. */
typedef struct AccountHeader {
    const char *name;
    char value[32];
} AccountHeader;
size_t account_headers(const Account *account, uint64_t now_usec, AccountHeader headers[static ACCOUNT_MAX_HEADERS]);
