/* SPDX-License-Identifier: Apache-2.0 */
/* What a request to a fixture must be answered with. Test code; asserts with Criterion. */
#pragma once
#include "tests/support/http_client.h"
#include "tests/support/server_fixture.h"

/* The answer has the status, and the needle somewhere in it. */
void expect_post(Fixture *fixture, const char *path, const char *body, unsigned status, const char *needle);
/* The whole number of the first sample with this name at /metrics. */
int read_metric(Fixture *fixture, const char *name);
/* Until it has come to that; a minute is for ever. */
void await_metric(Fixture *fixture, const char *name, int wanted);
