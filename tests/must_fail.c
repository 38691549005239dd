/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests that pass, fail, crash and leak: check_must_fail.py sees that the runner tells them apart, and tests/run.sh
 * that the leak is found where AddressSanitizer is built in.
 */
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

Test(must_fail, leaks)
{
    char *volatile lost = malloc(4711);
    lost = NULL;
    cr_assert_null(lost);
}
