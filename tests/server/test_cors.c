/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cors.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static char seen[4096];

static void add(void *arg, const char *name, const char *value)
{
    size_t n = strlen(seen);
    (void)arg;
    snprintf(seen + n, sizeof seen - n, "%s: %s\n", name, value);
}

/* All headers of an answer, one a line. */
static const char *answer(const char *list, CorsAsk ask)
{
    Cors *cors;
    Error error;
    cr_assert(cors_new(list, &cors, &error), "%s", error.text);
    *seen = '\0';
    cors_answer(cors, &ask, "POST, OPTIONS", add, NULL);
    cors_free(cors);
    return seen;
}

Test(cors, nothing_without_a_list_or_an_origin)
{
    cr_expect_str_eq(answer(NULL, (CorsAsk){.origin = "https://a.org"}), "");
    cr_expect_str_eq(answer("", (CorsAsk){.origin = "https://a.org"}), "");
    cr_expect_str_eq(answer("*", (CorsAsk){.origin = NULL}), "");
    cr_expect_str_eq(answer("https://a.org", (CorsAsk){.origin = NULL}), "Vary: Origin\n");
}

Test(cors, origins_are_compared_whole)
{
    static const char list[] = "https://a.org, http://localhost:3000,app://x";
    static const char *const right[] = {"https://a.org", "HTTPS://A.org", "http://localhost:3000", "app://x"};
    static const char *const wrong[] = {
        "https://a.org.evil.com", "http://a.org", "https://a.org:443", "null", "", "http://localhost", "*"};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        char wanted[200];
        snprintf(wanted, sizeof wanted, "Vary: Origin\nAccess-Control-Allow-Origin: %s\n", right[i]);
        cr_expect(!strncmp(answer(list, (CorsAsk){.origin = right[i]}), wanted, strlen(wanted)), "%s", seen);
        cr_expect_null(strstr(seen, "Allow-Methods"));
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect_str_eq(answer(list, (CorsAsk){.origin = wrong[i]}), "Vary: Origin\n", "%s", wrong[i]);
}

Test(cors, preflights_are_answered)
{
    const CorsAsk ask = {.origin = "https://a.org", .method = "POST", .headers = "authorization,content-type, x-a_b"};
    cr_expect(!strncmp(answer("*", ask), "Access-Control-Allow-Origin: *\n", 31), "%s", seen);
    cr_expect(strstr(seen, "Access-Control-Allow-Methods: POST, OPTIONS\n") != NULL, "%s", seen);
    cr_expect(strstr(seen, "Access-Control-Allow-Headers: authorization,content-type, x-a_b\n") != NULL, "%s", seen);
    cr_expect(strstr(seen, "Access-Control-Max-Age: 600\n") != NULL, "%s", seen);
    cr_expect_str_eq(answer("https://b.org", ask), "Vary: Origin\n");
    static const char *const strange[] = {"", "a\x01", "a: b", "\xc3\xa9", "a;b"};
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        answer("*", (CorsAsk){.origin = "https://a.org", .method = "POST", .headers = strange[i]});
        cr_expect_null(strstr(seen, "Allow-Headers"), "%s", seen);
    }
}

Test(cors, lists_that_are_wrong_are_refused)
{
    static const char *const wrong[] = {"a.org",           "https://",           "://a",
                                        "https://a.org/",  "https://a.org/path", "https://*.org",
                                        "https://a.org?x", "https://a.org,b",    "\"https://a.org\""};
    Cors *cors;
    Error error;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect_not(cors_new(wrong[i], &cors, &error), "%s", wrong[i]);
        cr_expect_str_eq(error.param, "cors_origins");
    }
    char many[2000] = "";
    for (int i = 0; i < 65; i++) snprintf(many + strlen(many), sizeof many - strlen(many), "https://h%d,", i);
    cr_expect_not(cors_new(many, &cors, &error));
    cr_expect(strstr(error.text, "more than 64 origins") != NULL, "%s", error.text);
}
