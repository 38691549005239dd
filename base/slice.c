/* SPDX-License-Identifier: Apache-2.0 */
#include "base/slice.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RESET_ON_FORK = 1 };

/* struct sched_attr of the kernel, in its first version; glibc 2.36 has none. */
typedef struct SchedAttr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_nsec, deadline_nsec, period_nsec;
} SchedAttr;

void slice_set(uint32_t usec)
{
    SchedAttr attr = {0};
    if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) || attr.policy != SCHED_OTHER) return;
    attr.size = sizeof attr;
    attr.flags = RESET_ON_FORK;
    attr.runtime_nsec = usec * UINT64_C(1000);
    (void)syscall(SYS_sched_setattr, 0, &attr, 0);
}
