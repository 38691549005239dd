/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/server/expect.h"

#include <criterion/criterion.h>
#include <string.h>

void expect_post(Fixture *fixture, const char *path, const char *body, unsigned status, const char *needle)
{
    Buffer in;
    http_post(fixture_port(fixture), path, body, &in);
    cr_expect(http_status(&in) == status, "%s: wanted %u, got: %s", body, status, in.data);
    cr_expect(strstr(in.data, needle) != NULL, "%s: no '%s' in: %s", body, needle, in.data);
    buffer_done(&in);
}
