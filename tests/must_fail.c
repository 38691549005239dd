/* SPDX-License-Identifier: Apache-2.0 */
/* A test that passes, one that fails, one that crashes: check_must_fail.py sees that the runner tells them apart. */
#include <criterion/criterion.h>
#include <stdlib.h>

Test(must_fail, passes)
{
    cr_assert(true);
}

Test(must_fail, fails)
{
    cr_assert(false);
}

Test(must_fail, crashes)
{
    abort();
}
