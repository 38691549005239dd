/* SPDX-License-Identifier: Apache-2.0 */
#include "server/throughput.h"

#include <criterion/criterion.h>

enum { SECOND = 1000000 };

Test(throughput, nothing_known_is_one_second)
{
    Throughput throughput = {0};
    cr_expect_eq(throughput_retry_after(&throughput, 100, 100000, 5 * SECOND), 1);
    throughput_queued(&throughput, 0, 5 * SECOND);
    cr_expect_eq(throughput_retry_after(&throughput, 100, 100000, 9 * SECOND), 1);
}

Test(throughput, follows_requests_and_tokens)
{
    Throughput throughput = {0};
    uint64_t now = 1000 * (uint64_t)SECOND;
    throughput_queued(&throughput, 0, now);
    for (int i = 0; i < 100; i++) throughput_started(&throughput, 50, now += SECOND / 2); /* 2 requests, 100 tokens */
    cr_expect_eq(throughput_retry_after(&throughput, 1, 10, now), 1);
    cr_expect_eq(throughput_retry_after(&throughput, 20, 10, now), 10);
    cr_expect_eq(throughput_retry_after(&throughput, 20, 3000, now), 30);
    cr_expect_eq(throughput_retry_after(&throughput, 1 << 30, 0, now), THROUGHPUT_MAX_RETRY_S);
    /* Half a minute without a start: the past counts less. */
    cr_expect_gt(throughput_retry_after(&throughput, 20, 10, now + 30 * (uint64_t)SECOND), 15);
}

Test(throughput, idle_time_does_not_count)
{
    Throughput throughput = {0};
    uint64_t now = SECOND;
    for (int i = 0; i < 10; i++) {
        throughput_queued(&throughput, 0, now);
        throughput_started(&throughput, 100, now + SECOND);
        now += 3600 * (uint64_t)SECOND;
    }
    throughput_queued(&throughput, 0, now);
    cr_expect_eq(throughput_retry_after(&throughput, 10, 0, now), 10);
}

Test(throughput, one_start_far_ahead_of_all_is_fast)
{
    Throughput throughput = {0};
    throughput_queued(&throughput, 0, SECOND);
    throughput_started(&throughput, 1, SECOND); /* at once */
    cr_expect_eq(throughput_retry_after(&throughput, 1000, 1000, SECOND), 1);
}
