/* SPDX-License-Identifier: Apache-2.0 */
#include "server/hosts.h"
#include "tests/server/expect.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool allows(const char *list, const char *host, bool is_guarded)
{
    Hosts *hosts;
    Error error;
    cr_assert(hosts_new(list, &hosts, &error), "%s", error.text);
    bool result = hosts_allow(hosts, host, is_guarded);
    hosts_free(hosts);
    return result;
}

static const char *const own[] = {"localhost",    "LOCALHOST:8080", "localhost.", "a.localhost", "127.0.0.1",
                                  "127.0.0.1:80", "10.0.0.11:8080", "[::1]:8080", "[::1]",       "[fd00::1]:9"};
static const char *const foreign[] = {
    "evil.com", "evil.com:8080", "localhost.evil.com", "notlocalhost", ".localhost",    "127.0.0.1.evil.com", "1.2.3",
    "",         "[evil.com]:80", "127.0.0.1@evil.com", "::1",          "localhost evil"};

Test(hosts, without_a_list_a_guarded_server_has_addresses_and_localhost_alone)
{
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) cr_expect(allows(NULL, own[i], true), "%s", own[i]);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        cr_expect_not(allows(NULL, foreign[i], true), "%s", foreign[i]);
        cr_expect(allows(NULL, foreign[i], false), "%s", foreign[i]);
    }
    cr_expect(allows(NULL, NULL, true), "HTTP/1.0 without a Host: no browser");
}

Test(hosts, a_list_holds_everywhere_and_names_are_compared_whole)
{
    static const char list[] = "llm.example.org, box1";
    static const char *const listed[] = {"llm.example.org", "LLM.example.org:443", "llm.example.org.", "box1:8080"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) cr_expect(allows(list, own[i], false), "%s", own[i]);
    for (size_t i = 0; i < sizeof listed / sizeof *listed; i++)
        cr_expect(allows(list, listed[i], true), "%s", listed[i]);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        cr_expect_not(allows(list, foreign[i], false), "%s", foreign[i]);
    cr_expect_not(allows(list, "a.llm.example.org", false));
    cr_expect(allows("*", "evil.com", true));
    char name[400];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    cr_expect_not(allows(list, name, true));
}

Test(hosts, mistakes_are_named)
{
    static const char *const wrong[] = {"llm.example.org:443", "http://a",     "a/b", "*.example.org", "[::1]", "ä",
                                        "llm.example.org.",    ".example.org", "."};
    Hosts *hosts;
    Error error;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_assert_not(hosts_new(wrong[i], &hosts, &error), "%s", wrong[i]);
        cr_expect_str_eq(error.param, "allowed_hosts");
        cr_expect(strstr(error.text, wrong[i]) != NULL, "%s", error.text);
    }
    char many[65 * 2 + 1];
    for (size_t i = 0; i < 65; i++) memcpy(many + 2 * i, "a,", 3);
    cr_expect_not(hosts_new(many, &hosts, &error));
}

static void expect_status(Fixture *fixture, const char *path, const char *head, unsigned status)
{
    char request[400];
    Buffer in;
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n%sConnection: close\r\n\r\n", path, head);
    http_ask(fixture_port(fixture), request, &in);
    cr_expect_eq(http_status(&in), status, "%s%s", head, in.data);
    if (status == 403) cr_expect(strstr(in.data, "\"code\":\"host_not_allowed\"") != NULL, "%s", in.data);
    buffer_done(&in);
}

static const char *const paths[] = {"/", "/v1/models", "/metrics", "/readyz", "/nowhere"};

Test(hosts, a_page_of_another_name_gets_nothing_of_a_server_without_keys)
{
    FixtureOptions options = fixture_defaults();
    Fixture *fixture = fixture_start(&options);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        expect_status(fixture, paths[i], "Host: evil.com:8080\r\n", 403);
    expect_status(fixture, "/v1/models", "Host: localhost:8080\r\n", 200);
    expect_status(fixture, "/v1/models", "Host: 127.0.0.1\r\n", 200);
    fixture_stop(fixture);
    options = fixture_defaults();
    options.params.access.allowed_hosts = "llm.example.org";
    fixture = fixture_start(&options);
    expect_status(fixture, "/v1/models", "Host: llm.example.org\r\n", 200);
    expect_status(fixture, "/v1/models", "Host: evil.com\r\n", 403);
    fixture_stop(fixture);
}

/* Other machines know it by names that it cannot know. */
Test(hosts, on_other_addresses_any_name_will_do)
{
    FixtureOptions options = fixture_defaults();
    options.params.host = "0.0.0.0";
    Fixture *fixture = fixture_start(&options);
    expect_status(fixture, "/v1/models", "Host: box1:8080\r\n", 200);
    fixture_stop(fixture);
}

/* It has no key, and no way to one; a proxy on this machine may pass any name on. */
Test(hosts, with_keys_any_name_will_do_unless_there_is_a_list)
{
    FixtureOptions options = fixture_defaults();
    options.params.access.api_key = "k";
    Fixture *fixture = fixture_start(&options);
    expect_status(fixture, "/v1/models", "Host: llm.example.org\r\nAuthorization: Bearer k\r\n", 200);
    expect_status(fixture, "/v1/models", "Host: evil.com\r\n", 401);
    fixture_stop(fixture);
    options.params.access.allowed_hosts = "llm.example.org";
    fixture = fixture_start(&options);
    expect_status(fixture, "/v1/models", "Host: evil.com\r\nAuthorization: Bearer k\r\n", 403);
    fixture_stop(fixture);
}
