/* SPDX-License-Identifier: Apache-2.0 */
#include "server/aborted.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

Test(aborted, an_id_counts_for_what_arrived_before)
{
    AbortedIds ids = {0};
    cr_expect_not(aborted_has(&ids, "a", "me", 1));
    aborted_add(&ids, "a", "me", 1000);
    cr_expect(aborted_has(&ids, "a", "me", 999));
    cr_expect_not(aborted_has(&ids, "a", "me", 1001));
    cr_expect_not(aborted_has(&ids, "b", "me", 999));
    aborted_add(&ids, "a", "me", 2000);
    cr_expect(aborted_has(&ids, "a", "me", 1500));
}

Test(aborted, requests_without_an_id_are_not_meant)
{
    AbortedIds ids = {0};
    aborted_add(&ids, "", "me", 1000);
    cr_expect_not(aborted_has(&ids, "", "me", 0));
}

Test(aborted, the_oldest_makes_room_and_long_ids_are_nobodys)
{
    AbortedIds ids = {0};
    char id[ABORTED_ID_BYTES + 1];
    for (int i = 0; i <= ABORTED_MAX; i++) {
        snprintf(id, sizeof id, "id-%d", i);
        aborted_add(&ids, id, "me", 1000);
    }
    cr_expect_not(aborted_has(&ids, "id-0", "me", 1));
    cr_expect(aborted_has(&ids, "id-1", "me", 1) && aborted_has(&ids, id, "me", 1));
    memset(id, 'x', ABORTED_ID_BYTES);
    id[ABORTED_ID_BYTES] = '\0';
    aborted_add(&ids, id, "me", 1000);
    cr_expect_not(aborted_has(&ids, id, "me", 1));
    cr_expect(aborted_has(&ids, "id-1", "me", 1), "what cannot be kept takes no place");
}

Test(aborted, only_an_administrator_means_all)
{
    AbortedIds ids = {0};
    aborted_add(&ids, "a", "me", 1000);
    cr_expect_not(aborted_has(&ids, "a", "you", 1));
    cr_expect_not(aborted_has(&ids, "a", "", 1));
    aborted_add(&ids, "b", "", 1000);
    cr_expect(aborted_has(&ids, "b", "", 1));
    cr_expect_not(aborted_has(&ids, "b", "me", 1));
    aborted_add(&ids, "c", NULL, 1000);
    cr_expect(aborted_has(&ids, "c", "you", 1) && aborted_has(&ids, "c", "", 1));
}
