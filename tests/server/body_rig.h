/* SPDX-License-Identifier: Apache-2.0 */
/* A body of a request as it is read, and as it is refused. */
#pragma once
#include "server/api_params.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

enum { N_VOCAB = 1000 };

typedef struct Body {
    cJSON *json;
    ApiParams params;
    Error error;
    bool ok;
} Body;

static inline Body read_body(const char *text, ApiRoute route)
{
    Body body = {0};
    cr_assert(json_parse(text, strlen(text), &body.json, &body.error), "%s", body.error.text);
    body.ok = api_params_read(body.json, route, N_VOCAB, &body.params, &body.error);
    return body;
}

static inline void refuse(const char *text, ApiRoute route, ErrorCode code, const char *param)
{
    Body body = read_body(text, route);
    cr_expect_not(body.ok, "accepted: %s", text);
    cr_expect(eq(int, (int)body.error.code, (int)code), "%s: %s", text, body.error.text);
    cr_expect(eq(str, body.error.param, (char *)param), "%s: %s", text, body.error.text);
    cJSON_Delete(body.json);
}
