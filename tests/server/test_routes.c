/* SPDX-License-Identifier: Apache-2.0 */
/* Routes beside generation, over sockets with the fake worker: text and sessions. */
#include "tests/server/expect.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static void expect_delete(Fixture *fixture, const char *path, unsigned status, const char *needle)
{
    Buffer in;
    char request[256];
    snprintf(request, sizeof request, "DELETE %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    http_ask(fixture_port(fixture), request, &in);
    cr_expect(http_status(&in) == status && strstr(in.data, needle), "%s: wanted %u, got: %s", path, status, in.data);
    buffer_done(&in);
}

Test(routes, sessions_are_saved_restored_and_deleted)
{
    FixtureOptions options = fixture_defaults();
    options.session_dir = "/nowhere";
    Fixture *fixture = fixture_start(&options);
    expect_post(fixture, "/v1/sessions/a-B_9/save", "{\"prompt\":\"abc\"}", 200,
                "{\"id\":\"a-B_9\",\"object\":\"session\",\"saved\":true,\"tokens\":3,\"bytes\":30}");
    expect_post(fixture, "/v1/sessions/s/save", "{\"tokens\":[5,6],\"cache_salt\":\"x\"}", 200, "\"tokens\":2");
    expect_post(fixture, "/v1/sessions/s/save", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", 200,
                "\"saved\":true");
    expect_post(fixture, "/v1/sessions/s/restore", "", 200, "\"restored\":true,\"tokens\":5,\"bytes\":50}");
    expect_delete(fixture, "/v1/sessions/s", 200, "{\"id\":\"s\",\"object\":\"session\",\"deleted\":true}");
    expect_post(fixture, "/v1/sessions/none/restore", "{}", 404, "\"code\":\"not_found\"");
    expect_delete(fixture, "/v1/sessions/none", 404, "not_found");
    expect_post(fixture, "/v1/sessions/a.b/restore", "{}", 400, "\"param\":\"id\"");
    expect_post(fixture, "/v1/sessions/%2e%2e/restore", "{}", 400, "\"param\":\"id\"");
    expect_post(fixture, "/v1/sessions/s/save", "{}", 400, "\"param\":\"messages\"");
    expect_post(fixture, "/v1/sessions/s/save", "{\"prompt\":\"a\",\"tokens\":[1]}", 400, "\"param\":\"prompt\"");
    expect_post(fixture, "/v1/sessions/s/save", "{\"prompt\":\"\"}", 400, "there are 0 tokens");
    expect_post(fixture, "/v1/sessions/s/save", "{\"tokens\":[99999]}", 400, "\"param\":\"tokens[0]\"");
    expect_post(fixture, "/v1/sessions/s/move", "{}", 404, "unknown_url");
    expect_post(fixture, "/v1/sessions/s/save/now", "{\"prompt\":\"a\"}", 404, "unknown_url");
    expect_post(fixture, "/v1/sessions/s", "{}", 404, "unknown_url");
    expect_delete(fixture, "/v1/sessions/s/save", 404, "unknown_url");
    Buffer in;
    http_ask(fixture_port(fixture), "GET /v1/sessions/s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", &in);
    cr_expect(http_status(&in) == 405 && strstr(in.data, "Allow: POST, DELETE, OPTIONS\r\n"), "%s", in.data);
    buffer_done(&in);
    fixture_stop(fixture);
}

Test(routes, sessions_need_a_folder)
{
    FixtureOptions options = fixture_defaults();
    Fixture *fixture = fixture_start(&options);
    expect_post(fixture, "/v1/sessions/s/save", "{\"prompt\":\"abc\"}", 403, "\"type\":\"permission_error\"");
    expect_delete(fixture, "/v1/sessions/s", 403, "\"code\":\"forbidden\"");
    fixture_stop(fixture);
}

Test(routes, text_routes_answer)
{
    FixtureOptions options = fixture_defaults();
    Fixture *fixture = fixture_start(&options);
    expect_post(fixture, "/tokenize", "{\"content\":\"ab<|im_end|>\"}", 200, "{\"tokens\":[");
    expect_post(fixture, "/tokenize", "{\"content\":\"<|im_end|>\"}", 200, "\"count\":1,\"max_model_len\":512}");
    expect_post(fixture, "/tokenize", "{\"content\":\"<|im_end|>\",\"parse_special\":false}", 200, "\"tokens\":[");
    expect_post(fixture, "/tokenize", "{\"content\":7}", 400, "\"param\":\"content\"");
    expect_post(fixture, "/tokenize", "{}", 400, "\"param\":\"content\"");
    expect_post(fixture, "/detokenize", "{\"tokens\":[1,2]}", 200, "{\"content\":\"<|im_start|><|im_end|>\"}");
    expect_post(fixture, "/detokenize", "{\"tokens\":[1,99999]}", 400, "\"param\":\"tokens[1]\"");
    expect_post(fixture, "/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", 200,
                "<|im_start|>user\\nhi<|im_end|>\\n<|im_start|>assistant\\n");
    expect_post(fixture, "/apply-template", "{\"messages\":[]}", 400, "\"param\":\"messages\"");
    fixture_stop(fixture);
}
