/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LeakSanitizer looks at the processes of tests, not at Criterion's runner, which at the end of a long run may still
 * hold a few bytes of its own. must_fail shows that leaks of tests are found.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int __lsan_is_turned_off(void);

/* The runner starts each test as a process of this name. */
int __lsan_is_turned_off(void)
{
    static const char worker[] = "boxfort-worker";
    char name[sizeof worker] = "";
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, name, sizeof name);
    (void)close(fd);
    return n != (ssize_t)sizeof name || memcmp(name, worker, sizeof worker) != 0;
}
