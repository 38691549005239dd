/* SPDX-License-Identifier: Apache-2.0 */
#include "server/account.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#define SECOND UINT64_C(1000000)

static Account *make(uint64_t requests, uint64_t tokens, uint64_t concurrent)
{
    const AccountLimits limits = {.requests = requests, .tokens = tokens, .concurrent = concurrent};
    Account *account = account_new("alice", &limits);
    cr_assert_not_null(account);
    return account;
}

static const char *header(const Account *account, uint64_t now, const char *name, AccountHeader *headers)
{
    size_t n = account_headers(account, now, headers);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(headers[i].name, name)) return headers[i].value;
    return NULL;
}

static void expect_header(const Account *account, uint64_t now, const char *name, const char *value)
{
    AccountHeader headers[ACCOUNT_MAX_HEADERS];
    const char *got = header(account, now, name, headers);
    cr_expect(got && !strcmp(got, value), "%s: wanted %s, got %s", name, value, got ? got : "none");
}

Test(account, requests_flow_off_evenly)
{
    Account *account = make(60, 0, 0);
    Error error;
    int retry = 0;
    for (int i = 0; i < 60; i++) cr_assert(account_enter(account, 5 * SECOND, &retry, &error), "%d", i);
    cr_expect_not(account_enter(account, 5 * SECOND, &retry, &error));
    cr_expect(eq(int, (int)error.code, ERR_BUSY));
    cr_expect(strstr(error.text, "'alice'") && strstr(error.text, "60 requests a minute"), "%s", error.text);
    cr_expect(eq(int, retry, 1));
    expect_header(account, 5 * SECOND, "x-ratelimit-limit-requests", "60");
    expect_header(account, 5 * SECOND, "x-ratelimit-remaining-requests", "0");
    expect_header(account, 5 * SECOND, "x-ratelimit-reset-requests", "1m0s");
    expect_header(account, 15 * SECOND, "x-ratelimit-remaining-requests", "10");
    expect_header(account, 15 * SECOND, "x-ratelimit-reset-requests", "50s");
    cr_expect(account_enter(account, 6 * SECOND, &retry, &error));
    cr_expect_not(account_enter(account, 6 * SECOND, &retry, &error));
    expect_header(account, 500 * SECOND, "x-ratelimit-remaining-requests", "60");
    expect_header(account, 500 * SECOND, "x-ratelimit-reset-requests", "0s");
    cr_expect(account->n_requests == 61 && account->n_limited == 2 && account->n_open == 61);
    account_unref(account);
}

Test(account, tokens_of_answers_may_be_owed)
{
    Account *account = make(0, 600, 0);
    Error error;
    int retry = 0;
    cr_assert(account_enter(account, SECOND, &retry, &error));
    cr_expect(account_take_prompt(account, 500, SECOND, &retry, &error));
    cr_expect_not(account_take_prompt(account, 101, SECOND, &retry, &error));
    cr_expect(eq(int, retry, 1));
    cr_expect(account_take_prompt(account, 100, SECOND, &retry, &error));
    account_add_generated(account, 600, SECOND);
    expect_header(account, SECOND, "x-ratelimit-limit-tokens", "600");
    expect_header(account, SECOND, "x-ratelimit-remaining-tokens", "0");
    expect_header(account, SECOND, "x-ratelimit-reset-tokens", "2m0s");
    cr_expect_not(account_enter(account, SECOND, &retry, &error));
    cr_expect(eq(int, retry, 61), "%d", retry);
    cr_expect_not(account_enter(account, 60 * SECOND, &retry, &error));
    cr_expect(account_enter(account, 63 * SECOND, &retry, &error));
    cr_expect(account->n_prompt_tokens == 600 && account->n_generated_tokens == 600);
    cr_expect_null(header(account, SECOND, "x-ratelimit-limit-requests", (AccountHeader[ACCOUNT_MAX_HEADERS]){{0}}));
    account_unref(account);
}

Test(account, what_was_charged_is_returned)
{
    Account *account = make(60, 600, 0);
    Error error;
    int retry = 0;
    for (int i = 0; i < 2; i++) cr_assert(account_enter(account, SECOND, &retry, &error));
    cr_assert(account_take_prompt(account, 500, SECOND, &retry, &error));
    account_return(account, 1, 500, SECOND);
    expect_header(account, SECOND, "x-ratelimit-remaining-requests", "59");
    expect_header(account, SECOND, "x-ratelimit-remaining-tokens", "600");
    cr_expect(account->n_requests == 2 && account->n_open == 2 && account->n_prompt_tokens == 0);
    cr_assert(account_take_prompt(account, 600, SECOND, &retry, &error));
    account_return(account, 1, 600, 31 * SECOND); /* half of it has flowed off: no more than all is there */
    expect_header(account, 31 * SECOND, "x-ratelimit-remaining-requests", "60");
    expect_header(account, 31 * SECOND, "x-ratelimit-remaining-tokens", "600");
    account_unref(account);
}

Test(account, a_prompt_that_never_fits_is_not_worth_a_retry)
{
    Account *account = make(0, 100, 0);
    Error error;
    int retry = 0;
    cr_expect_not(account_take_prompt(account, 101, SECOND, &retry, &error));
    cr_expect(eq(int, retry, -1));
    cr_expect(strstr(error.text, "101 prompt tokens") && strstr(error.text, "100 tokens a minute"), "%s", error.text);
    cr_expect(account_take_prompt(account, 100, SECOND, &retry, &error));
    account_unref(account);
}

Test(account, requests_at_once)
{
    Account *account = make(0, 0, 2);
    Error error;
    int retry = 0;
    cr_assert(account_enter(account, 0, &retry, &error) && account_enter(account, 0, &retry, &error));
    cr_expect_not(account_enter(account, 0, &retry, &error));
    cr_expect(eq(int, retry, 1));
    account_leave(account);
    cr_expect(account_enter(account, 0, &retry, &error));
    cr_expect(account_headers(account, 0, (AccountHeader[ACCOUNT_MAX_HEADERS]){{0}}) == 0);
    account_unref(account);
}

Test(account, without_limits_or_without_an_account_everything_passes)
{
    Account *account = make(0, 0, 0);
    Error error;
    int retry = 0;
    for (int i = 0; i < 10000; i++) cr_assert(account_enter(account, 0, &retry, &error));
    cr_expect(account_take_prompt(account, UINT64_C(1) << 50, 0, &retry, &error));
    account_add_generated(account, UINT64_C(1) << 50, 0);
    cr_expect(account_enter(account, 0, &retry, &error));
    cr_expect(account_enter(NULL, 0, &retry, &error) && account_take_prompt(NULL, 5, 0, &retry, &error));
    account_leave(NULL);
    account_add_generated(NULL, 5, 0);
    account_return(NULL, 1, 5, 0);
    cr_expect_null(account_ref(NULL));
    account_unref(NULL);
    account_unref(account);
}

Test(account, durations_are_written_as_openai_does)
{
    static const struct {
        uint64_t used;
        const char *text;
    } rows[] = {{1, "1ms"},      {17, "17ms"},     {1500, "1.5s"},      {8640, "8.64s"},    {59999, "59.999s"},
                {60000, "1m0s"}, {360000, "6m0s"}, {3600000, "1h0m0s"}, {3725000, "1h2m5s"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Account *account = make(0, 60000, 0); /* one token a millisecond */
        account_add_generated(account, rows[i].used, SECOND);
        expect_header(account, SECOND, "x-ratelimit-reset-tokens", rows[i].text);
        account_unref(account);
    }
}
