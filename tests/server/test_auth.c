/* SPDX-License-Identifier: Apache-2.0 */
#include "server/auth.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void write_file(char *path, const char *text, size_t n)
{
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    cr_assert_eq(write(fd, text, n), (ssize_t)n);
    close(fd);
}

static bool load_text(const char *text, size_t n, const char *key, Auth **ret_auth, Error *error)
{
    char path[] = "/tmp/lw-keys-XXXXXX";
    write_file(path, text, n);
    bool ok = auth_load(path, key, ret_auth, error);
    unlink(path);
    return ok;
}

static Auth *load(const char *text)
{
    Auth *auth;
    Error error;
    cr_assert(load_text(text, strlen(text), NULL, &auth, &error), "%s", error.text);
    return auth;
}

static bool knows(const Auth *auth, const char *header)
{
    AuthGrant grant;
    return auth_check(auth, header, &grant);
}

static AuthGrant grant_of(const Auth *auth, const char *header)
{
    AuthGrant grant = {0};
    cr_assert(auth_check(auth, header, &grant), "%s", header);
    return grant;
}

Test(auth, what_cannot_be_read_is_no_file_without_keys)
{
    Auth *auth;
    Error error;
    cr_expect_not(auth_load("/tmp", NULL, &auth, &error));
    cr_expect(eq(str, error.param, "api_key_file"));
    cr_expect(strstr(error.text, "Is a directory") != NULL, "%s", error.text);
}

Test(auth, without_keys_everyone_may_do_everything)
{
    Auth *auth;
    Error error;
    cr_assert(auth_load(NULL, NULL, &auth, &error));
    cr_expect(knows(auth, NULL));
    AuthGrant grant = grant_of(auth, "Bearer x");
    cr_expect(grant.rights == (RIGHT_USE | RIGHT_WATCH | RIGHT_ADMIN) && !grant.account);
    cr_expect_null(auth_account(auth, 0));
    auth_free(auth);
}

Test(auth, files_that_the_service_manager_passes)
{
    char path[] = "/tmp/lw-keys-XXXXXX", name[64], text[64];
    Auth *auth;
    Error error;
    write_file(path, "k\n", 2);
    snprintf(name, sizeof name, "credential:%s", path + strlen("/tmp/"));
    unsetenv("CREDENTIALS_DIRECTORY");
    cr_assert_not(auth_load(name, NULL, &auth, &error));
    cr_expect_not_null(strstr(error.text, "no credentials"), "%s", error.text);
    setenv("CREDENTIALS_DIRECTORY", "/tmp", 1);
    cr_assert(auth_load(name, NULL, &auth, &error));
    cr_expect(knows(auth, "Bearer k") && !knows(auth, "Bearer"));
    auth_free(auth);
    snprintf(text, sizeof text, "credential:../tmp/%s", path + strlen("/tmp/"));
    static const char *const wrong[] = {"credential:", "credential:..", "credential:none-of-this-name"};
    cr_expect_not(auth_load(text, NULL, &auth, &error));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect_not(auth_load(wrong[i], NULL, &auth, &error), "%s", wrong[i]);
        cr_expect_str_eq(error.param, "api_key_file");
    }
    unlink(path);
}

Test(auth, keys_are_compared_whole)
{
    Auth *auth;
    Error error;
    cr_assert(auth_load(NULL, "secret", &auth, &error));
    cr_expect(knows(auth, "bearer  secret"));
    cr_expect(grant_of(auth, "Bearer secret").rights == (RIGHT_USE | RIGHT_WATCH | RIGHT_ADMIN));
    cr_expect_str_eq(grant_of(auth, "Bearer secret").account->name, "api-key");
    static const char *const wrong[] = {
        "secret",         "Basic secret",        "Bearer",        "Bearer ", "Bearer secre",
        "Bearer secrets", "Bearer secretsecret", "Bearer Secret", "",        "Bearer secret "};
    cr_expect_not(knows(auth, NULL));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) cr_expect_not(knows(auth, wrong[i]), "%s", wrong[i]);
    auth_free(auth);
}

Test(auth, files_have_names_comments_and_blanks)
{
    static const char text[] = "# keys\n\nalice:a1\r\n  b2 \t\r\nbob:with:colon\n";
    Auth *auth;
    Error error;
    cr_assert(load_text(text, sizeof text - 1, "extra", &auth, &error), "%s", error.text);
    static const char *const right[] = {"Bearer a1", "Bearer b2", "Bearer with:colon", "Bearer extra"};
    static const char *const names[] = {"alice", "key-2", "bob", "api-key"};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        cr_expect_str_eq(grant_of(auth, right[i]).account->name, names[i]);
        cr_expect(auth_account(auth, i) == grant_of(auth, right[i]).account);
    }
    cr_expect_null(auth_account(auth, 4));
    cr_expect_not(knows(auth, "Bearer alice"));
    cr_expect_not(knows(auth, "Bearer alice:a1"));
    auth_free(auth);
}

Test(auth, lines_have_scopes_and_limits)
{
    Auth *auth = load("a:ka scope=admin\nm:km \t scope=monitor\nu:ku requests=60 tokens=100000\tconcurrent=4\nv:kv "
                      "scope=user\n");
    cr_expect(eq(u32, grant_of(auth, "Bearer ka").rights, RIGHT_USE | RIGHT_WATCH | RIGHT_ADMIN));
    cr_expect(eq(u32, grant_of(auth, "Bearer km").rights, RIGHT_WATCH));
    cr_expect(eq(u32, grant_of(auth, "Bearer ku").rights, RIGHT_USE));
    cr_expect(eq(u32, grant_of(auth, "Bearer kv").rights, RIGHT_USE));
    const AccountLimits *limits = &grant_of(auth, "Bearer ku").account->limits;
    cr_expect(limits->requests == 60 && limits->tokens == 100000 && limits->concurrent == 4);
    auth_free(auth);
}

Test(auth, keys_of_one_name_share_its_limits)
{
    Auth *auth = load("a:old requests=5\na:new requests=5 scope=admin\n");
    cr_expect(grant_of(auth, "Bearer old").account == grant_of(auth, "Bearer new").account);
    cr_expect(eq(u32, grant_of(auth, "Bearer old").rights, RIGHT_USE));
    cr_expect(grant_of(auth, "Bearer new").rights == (RIGHT_USE | RIGHT_WATCH | RIGHT_ADMIN));
    cr_expect_null(auth_account(auth, 1));
    auth_free(auth);
}

Test(auth, digests_stand_for_keys)
{
    /* of "abc" */
    Auth *auth = load("a:sha256=ba7816bf8f01cfea414140de5dae2223B00361A396177A9CB410FF61F20015AD\n");
    cr_expect(knows(auth, "Bearer abc"));
    cr_expect_not(knows(auth, "Bearer sha256=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    auth_free(auth);
}

Test(auth, files_that_are_wrong_name_their_line)
{
    static const struct {
        const char *text, *needle;
    } rows[] = {
        {"#\n", "has no key"},
        {"ok:key\nname:\n", "line 2"},
        {":key\n", "line 1: a key's name"},
        {"a b:c\n", "line 1: what follows the key"},
        {"a\"b:c\n", "line 1: a key's name"},
        {"a:k scope=root\n", "scope=monitor"},
        {"a:k scope\n", "scope=monitor"},
        {"a:k requests=\n", "'requests=' is no whole number"},
        {"a:k requests=0\n", "'requests=0' is no whole number"},
        {"a:k requests=-1\n", "no whole number"},
        {"a:k tokens=1e5\n", "no whole number"},
        {"a:k tokens=99999999999999999999\n", "no whole number"},
        {"a:k concurrent=5x\n", "no whole number"},
        {"a:k speed=5\n", "concurrent=N"},
        {"a:k requests=1\na:l requests=2\n", "line 2: 'a' has other limits"},
        {"a:k\nb:k\n", "line 2: the key of 'b' is there twice"},
        {"a:sha256=12\n", "64 hex digits"},
        {"a:sha256=ga7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n", "64 hex digits"},
        {"0123456789012345678901234567890123456789012345678901234567890123456789:k\n", "a key's name"},
    };
    Auth *auth;
    Error error;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_expect_not(load_text(rows[i].text, strlen(rows[i].text), NULL, &auth, &error), "%s", rows[i].text);
        cr_expect(strstr(error.text, rows[i].needle) != NULL, "%s: %s", rows[i].text, error.text);
    }
    char text[3000];
    memset(text, 'k', sizeof text);
    cr_expect_not(load_text(text, sizeof text, NULL, &auth, &error));
    cr_expect(strstr(error.text, "line 1 is too long") != NULL, "%s", error.text);
    cr_expect_not(load_text(text, 600, NULL, &auth, &error));
    cr_expect(strstr(error.text, "1 to 512 bytes, not 600") != NULL, "%s", error.text);
    cr_expect_not(auth_load("/nonexistent/keys", NULL, &auth, &error));
    cr_expect(eq(int, (int)error.code, ERR_IO));
}

Test(auth, there_is_a_most_of_keys)
{
    enum { N = 1025, BYTES = 16 };
    char *text = malloc(N * BYTES);
    Auth *auth;
    Error error;
    size_t n = 0;
    cr_assert_not_null(text);
    for (int i = 0; i < N; i++) n += (size_t)sprintf(text + n, "k%d\n", i);
    cr_expect_not(load_text(text, n, NULL, &auth, &error));
    cr_expect(strstr(error.text, "more than 1024 API keys") != NULL, "%s", error.text);
    free(text);
}

Test(auth, what_was_used_outlives_a_reload)
{
    Auth *old = load("a:k1 requests=1\nb:k2\n"), *auth = load("c:k3\na:k4 requests=2\n");
    Error error;
    int retry;
    Account *account = account_ref(grant_of(old, "Bearer k1").account);
    Account *gone = account_ref(grant_of(old, "Bearer k2").account);
    cr_assert(account_enter(account, 0, &retry, &error) && !account_enter(account, 0, &retry, &error));
    auth_take_over(auth, old);
    auth_free(old);
    cr_expect(grant_of(auth, "Bearer k4").account == account && auth_account(auth, 1) == account);
    cr_expect_not(knows(auth, "Bearer k1"));
    cr_expect(account_enter(account, 0, &retry, &error)); /* one of two is left */
    cr_expect_not(account_enter(account, 0, &retry, &error));
    auth_free(auth);
    cr_expect_str_eq(account->name, "a");
    account_unref(account);
    account_unref(gone);
}
