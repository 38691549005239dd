/* SPDX-License-Identifier: Apache-2.0 */
#include "server/account.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MINUTE_USEC 60e6

enum { MAX_RETRY_S = 86400 };

Account *account_new(const char *name, const AccountLimits *limits)
{
    Account *account = calloc(1, sizeof *account);
    if (!account) return NULL;
    snprintf(account->name, sizeof account->name, "%s", name);
    account->limits = *limits;
    account->n_refs = 1;
    return account;
}

Account *account_ref(Account *account)
{
    if (account) account->n_refs++;
    return account;
}

void account_unref(Account *account)
{
    if (account && --account->n_refs == 0) free(account);
}

/* ---- what flows off ---- */

static double use_now(const AccountUse *use, uint64_t limit, uint64_t now_usec)
{
    double gone = now_usec > use->usec ? (double)(now_usec - use->usec) * (double)limit / MINUTE_USEC : 0;
    return use->used > gone ? use->used - gone : 0;
}

static void use_add(AccountUse *use, uint64_t limit, double n, uint64_t now_usec)
{
    use->used = limit ? use_now(use, limit, now_usec) + n : 0;
    use->usec = now_usec;
}

static void use_return(AccountUse *use, uint64_t limit, double n, uint64_t now_usec)
{
    double used = use_now(use, limit, now_usec);
    use->used = used > n ? used - n : 0;
    use->usec = now_usec;
}

/* Until so much has flowed off; whole seconds, at least one. */
static int wait_seconds(double n, uint64_t limit)
{
    double seconds = ceil(n / (double)limit * 60);
    return seconds < 1 ? 1 : seconds > MAX_RETRY_S ? MAX_RETRY_S : (int)seconds;
}

/* May n more be used? */
static bool use_check(const AccountUse *use, uint64_t limit, double n, uint64_t now_usec, int *ret_retry_s)
{
    double over = use_now(use, limit, now_usec) + n - (double)limit;
    if (!limit || over <= 1e-6) return true; /* what should be exactly there may be short by rounding */
    *ret_retry_s = wait_seconds(over, limit);
    return false;
}

static bool limited(Account *account, Error *error, const char *what, uint64_t limit)
{
    account->n_limited++;
    return error_set(error, ERR_BUSY, "the key '%s' is limited to %llu %s; try again later", account->name,
                     (unsigned long long)limit, what);
}

bool account_enter(Account *account, uint64_t now_usec, int *ret_retry_s, Error *error)
{
    if (!account) return true;
    const AccountLimits *limits = &account->limits;
    if (limits->concurrent && account->n_open >= limits->concurrent) {
        *ret_retry_s = 1;
        return limited(account, error, "requests at once", limits->concurrent);
    }
    if (!use_check(&account->requests, limits->requests, 1, now_usec, ret_retry_s))
        return limited(account, error, "requests a minute", limits->requests);
    /* One token at least is going to be asked for. */
    if (!use_check(&account->tokens, limits->tokens, 1, now_usec, ret_retry_s))
        return limited(account, error, "tokens a minute", limits->tokens);
    use_add(&account->requests, limits->requests, 1, now_usec);
    account->n_requests++;
    account->n_open++;
    return true;
}

void account_leave(Account *account)
{
    if (account) account->n_open--;
}

bool account_take_prompt(Account *account, uint64_t n_tokens, uint64_t now_usec, int *ret_retry_s, Error *error)
{
    if (!account) return true;
    uint64_t limit = account->limits.tokens;
    if (limit && n_tokens > limit) {
        *ret_retry_s = -1;
        account->n_limited++;
        return error_set(error, ERR_BUSY,
                         "the request has %llu prompt tokens, but the key '%s' is limited to %llu "
                         "tokens a minute",
                         (unsigned long long)n_tokens, account->name, (unsigned long long)limit);
    }
    if (!use_check(&account->tokens, limit, (double)n_tokens, now_usec, ret_retry_s))
        return limited(account, error, "tokens a minute", limit);
    use_add(&account->tokens, limit, (double)n_tokens, now_usec);
    account->n_prompt_tokens += n_tokens;
    return true;
}

void account_return(Account *account, uint64_t n_requests, uint64_t n_tokens, uint64_t now_usec)
{
    if (!account) return;
    use_return(&account->requests, account->limits.requests, (double)n_requests, now_usec);
    use_return(&account->tokens, account->limits.tokens, (double)n_tokens, now_usec);
    account->n_prompt_tokens -= n_tokens;
}

void account_add_generated(Account *account, uint64_t n_tokens, uint64_t now_usec)
{
    if (!account) return;
    use_add(&account->tokens, account->limits.tokens, (double)n_tokens, now_usec);
    account->n_generated_tokens += n_tokens;
}

/* ---- headers ---- */

/* As OpenAI writes a duration: 0s, 12ms, 8.64s, 6m0s, 1h0m0s. */
static void write_duration(double seconds, char *text, size_t n)
{
    uint64_t ms = (uint64_t)ceil(seconds * 1000);
    unsigned long long s = ms / 1000;
    if (ms > 0 && ms < 1000)
        snprintf(text, n, "%llums", (unsigned long long)ms);
    else if (ms < 60000)
        snprintf(text, n, "%gs", (double)ms / 1000);
    else if (s < 3600)
        snprintf(text, n, "%llum%llus", s / 60, s % 60);
    else
        snprintf(text, n, "%lluh%llum%llus", s / 3600, s / 60 % 60, s % 60);
}

static size_t add_headers(const AccountUse *use, uint64_t limit, const char *const names[static 3], uint64_t now_usec,
                          AccountHeader *headers)
{
    if (!limit) return 0;
    double used = use_now(use, limit, now_usec), left = (double)limit - used;
    for (size_t i = 0; i < 3; i++) headers[i].name = names[i];
    snprintf(headers[0].value, sizeof headers[0].value, "%llu", (unsigned long long)limit);
    snprintf(headers[1].value, sizeof headers[1].value, "%.0f", left > 0 ? floor(left + 1e-6) : 0);
    write_duration(used / (double)limit * 60, headers[2].value, sizeof headers[2].value);
    return 3;
}

size_t account_headers(const Account *account, uint64_t now_usec, AccountHeader headers[static ACCOUNT_MAX_HEADERS])
{
    static const char *const of_requests[] = {"x-ratelimit-limit-requests", "x-ratelimit-remaining-requests",
                                              "x-ratelimit-reset-requests"};
    static const char *const of_tokens[] = {"x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens",
                                            "x-ratelimit-reset-tokens"};
    if (!account) return 0;
    size_t n = add_headers(&account->requests, account->limits.requests, of_requests, now_usec, headers);
    return n + add_headers(&account->tokens, account->limits.tokens, of_tokens, now_usec, headers + n);
}
