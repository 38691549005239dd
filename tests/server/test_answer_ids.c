/* SPDX-License-Identifier: Apache-2.0 */
/* Over sockets, with the fake worker. */
#include "tests/support/http_client.h"
#include "tests/support/server_fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define HI "{\"role\":\"user\",\"content\":\"hi\"}"
#define HEY "{\"role\":\"user\",\"content\":\"hey\"}"
#define THE(role) ",{\"role\":\"" role "\",\"content\":\"the\"}"
#define SPELLED ",119,107,104,2," /* the letters, <|im_end|> */

static bool is_spelled(Fixture *fixture, const char *members)
{
    char body[400];
    Buffer in;
    snprintf(body, sizeof body, "{%s}", members);
    http_post(fixture_port(fixture), "/tokenize", body, &in);
    cr_expect_eq(http_status(&in), 200, "%s", in.data);
    bool found = strstr(in.data, SPELLED) != NULL;
    buffer_done(&in);
    return found;
}

/* The model spells "the" letter by letter; so does the prompt, where that answer comes back. */
Test(answer_ids, an_answer_that_comes_back_has_the_ids_it_had)
{
    static const uint32_t letters[] = {119, 107, 104};
    static const char *const forms[] = {"", ",\"stream\":true", ",\"n\":2"};
    FixtureOptions options = fixture_defaults();
    options.step_usec = 50;
    for (size_t i = 0; i < 3; i++) {
        Buffer in;
        Fixture *fixture = fixture_start(&options);
        char body[400];
        fake_worker_speak(letters, 3);
        snprintf(body, sizeof body, "{\"messages\":[" HI "],\"cache_salt\":\"a\",\"max_tokens\":3%s}", forms[i]);
        cr_expect_not(is_spelled(fixture, "\"messages\":[" HI THE("assistant") "],\"cache_salt\":\"a\""));
        http_post(fixture_port(fixture), "/v1/chat/completions", body, &in);
        cr_expect_eq(http_status(&in), 200, "%s", in.data);
        buffer_done(&in);
        cr_expect(is_spelled(fixture, "\"messages\":[" HI THE("assistant") "],\"cache_salt\":\"a\""));
        cr_expect(is_spelled(fixture, "\"messages\":[" HI THE("assistant") "," HI "],\"cache_salt\":\"a\""));
        cr_expect_not(is_spelled(fixture, "\"messages\":[" HI THE("assistant") "]"));
        cr_expect_not(is_spelled(fixture, "\"messages\":[" HI THE("user") "],\"cache_salt\":\"a\""));
        cr_expect_not(is_spelled(fixture, "\"messages\":[" HEY THE("assistant") "],\"cache_salt\":\"a\""));
        fake_worker_speak(NULL, 0);
        fixture_stop(fixture);
    }
}
