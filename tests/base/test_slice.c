/* SPDX-License-Identifier: Apache-2.0 */
#include "base/slice.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct Attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_nsec, deadline_nsec, period_nsec;
} Attr;

static Attr attr_of_this_thread(void)
{
    Attr attr = {0};
    cr_assert_eq(syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0), 0);
    return attr;
}

static void *read_attr(void *arg)
{
    *(Attr *)arg = attr_of_this_thread();
    return NULL;
}

Test(slice, a_thread_gets_it_where_the_kernel_knows_it_and_nothing_else_changes)
{
    cr_assert_eq(setpriority(PRIO_PROCESS, 0, 3), 0);
    Attr before = attr_of_this_thread();
    slice_set(700);
    Attr after = attr_of_this_thread();
    cr_expect_eq(after.policy, before.policy);
    cr_expect_eq(after.nice, 3);
    cr_expect_eq(after.runtime_nsec, before.runtime_nsec ? 700000 : 0, "0 before Linux 6.12");
    Attr child;
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, read_attr, &child), 0);
    pthread_join(thread, NULL);
    cr_expect_eq(child.runtime_nsec, before.runtime_nsec, "its threads begin as others do");
    cr_expect_eq(child.nice, 3);
}

Test(slice, a_thread_that_is_scheduled_otherwise_is_left_alone)
{
    struct sched_param param = {0};
    cr_assert_eq(sched_setscheduler(0, SCHED_BATCH, &param), 0);
    Attr before = attr_of_this_thread();
    slice_set(700);
    Attr after = attr_of_this_thread();
    cr_expect_eq(after.policy, SCHED_BATCH);
    cr_expect_eq(after.runtime_nsec, before.runtime_nsec);
}
