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

Test(auth, without_keys_everyone_may)
{
    Auth *auth;
    Error error;
    cr_assert(auth_load(NULL, NULL, &auth, &error));
    cr_expect(auth_allows(auth, NULL));
    cr_expect(auth_allows(auth, "Bearer x"));
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
    cr_expect(auth_allows(auth, "Bearer k") && !auth_allows(auth, "Bearer"));
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
    cr_expect(auth_allows(auth, "Bearer secret"));
    cr_expect(auth_allows(auth, "bearer  secret"));
    static const char *const wrong[] = {
        "secret",         "Basic secret",        "Bearer",        "Bearer ", "Bearer secre",
        "Bearer secrets", "Bearer secretsecret", "Bearer Secret", ""};
    cr_expect_not(auth_allows(auth, NULL));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect_not(auth_allows(auth, wrong[i]), "%s", wrong[i]);
    auth_free(auth);
}

Test(auth, files_have_names_comments_and_blanks)
{
    char path[] = "/tmp/lw-keys-XXXXXX";
    static const char text[] = "# keys\n\nalice:a1\r\n  b2 \t\r\nbob:with:colon\n";
    Auth *auth;
    Error error;
    write_file(path, text, sizeof text - 1);
    cr_assert(auth_load(path, "extra", &auth, &error), "%s", error.text);
    static const char *const right[] = {"Bearer a1", "Bearer b2", "Bearer with:colon", "Bearer extra"};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) cr_expect(auth_allows(auth, right[i]), "%s", right[i]);
    cr_expect_not(auth_allows(auth, "Bearer alice"));
    cr_expect_not(auth_allows(auth, "Bearer alice:a1"));
    auth_free(auth);
    unlink(path);
}

Test(auth, files_that_are_wrong_name_their_line)
{
    Auth *auth;
    Error error;
    char empty[] = "/tmp/lw-keys-XXXXXX", blank[] = "/tmp/lw-keys-XXXXXX", lengthy[] = "/tmp/lw-keys-XXXXXX",
         text[3000];
    cr_expect_not(auth_load("/nonexistent/keys", NULL, &auth, &error));
    cr_expect(eq(int, (int)error.code, ERR_IO));
    write_file(empty, "#\n", 2);
    cr_expect_not(auth_load(empty, NULL, &auth, &error));
    write_file(blank, "name:\n", 6);
    cr_expect_not(auth_load(blank, NULL, &auth, &error));
    cr_expect(strstr(error.text, "line 1") != NULL, "%s", error.text);
    memset(text, 'k', sizeof text);
    write_file(lengthy, text, sizeof text);
    cr_expect_not(auth_load(lengthy, NULL, &auth, &error));
    cr_expect(strstr(error.text, "line 1 is too long") != NULL, "%s", error.text);
    unlink(empty);
    unlink(blank);
    unlink(lengthy);
}
