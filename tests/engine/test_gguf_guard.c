/* SPDX-License-Identifier: Apache-2.0 */
/* Each test is a process of its own, so that each has a handler of its own. */
#include "engine/model/gguf_guard.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 16, N_READERS = 4 };

typedef struct Mapped {
    int fd;
    size_t page, n;
    volatile const unsigned char *base;
} Mapped;

static Mapped map_ones(void)
{
    char path[] = "/tmp/lw-guard-XXXXXX";
    Mapped mapped = {.fd = mkstemp(path), .page = (size_t)sysconf(_SC_PAGESIZE)};
    mapped.n = PAGES * mapped.page - 100;
    unsigned char *ones = malloc(mapped.n);
    cr_assert(mapped.fd >= 0 && ones);
    memset(ones, 1, mapped.n);
    cr_assert_eq(write(mapped.fd, ones, mapped.n), (ssize_t)mapped.n);
    free(ones);
    unlink(path);
    void *base = mmap(NULL, mapped.n, PROT_READ, MAP_SHARED, mapped.fd, 0);
    cr_assert_neq(base, MAP_FAILED);
    mapped.base = base;
    return mapped;
}

static void *read_all(void *arg)
{
    const Mapped *mapped = arg;
    size_t ones = 0;
    for (size_t i = mapped->n; i-- > 0;) ones += mapped->base[i]; /* backwards: each page faults */
    return (void *)ones;
}

Test(gguf_guard, what_is_cut_reads_as_zeros_on_all_threads)
{
    Mapped cut = map_ones(), whole = map_ones();
    pthread_t readers[N_READERS];
    void *ones;
    gguf_guard_install();
    gguf_guard_add((const void *)whole.base, whole.n);
    gguf_guard_add((const void *)cut.base, cut.n);
    cr_expect_eq((size_t)read_all(&cut), cut.n);
    cr_expect_not(gguf_guard_is_hit((const void *)cut.base));
    cr_assert_eq(ftruncate(cut.fd, (off_t)(3 * cut.page)), 0);
    for (int i = 0; i < N_READERS; i++) cr_assert_eq(pthread_create(&readers[i], NULL, read_all, &cut), 0);
    for (int i = 0; i < N_READERS; i++) {
        cr_assert_eq(pthread_join(readers[i], &ones), 0);
        cr_expect_eq((size_t)ones, 3 * cut.page);
    }
    cr_expect(gguf_guard_is_hit((const void *)cut.base));
    cr_expect_not(gguf_guard_is_hit((const void *)whole.base));
    cr_expect_eq((size_t)read_all(&whole), whole.n);
    gguf_guard_remove((const void *)cut.base);
    cr_expect_not(gguf_guard_is_hit((const void *)cut.base));
}

static int status_of_fault(bool is_watched)
{
    Mapped mapped = map_ones();
    pid_t child = fork();
    if (!child) {
        gguf_guard_install();
        if (is_watched) gguf_guard_add((const void *)mapped.base, mapped.n);
        _exit(ftruncate(mapped.fd, 0) ? 2 : mapped.base[0]);
    }
    int status = -1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    return status;
}

Test(gguf_guard, a_fault_elsewhere_ends_the_process)
{
    int status = status_of_fault(true);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    status = status_of_fault(false);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

Test(gguf_guard, places_are_used_again_and_their_end_is_no_error)
{
    static char bytes[2000];
    gguf_guard_install();
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof bytes; i++) gguf_guard_add(bytes + i, 1);
        for (size_t i = 0; i < sizeof bytes; i++) cr_expect_not(gguf_guard_is_hit(bytes + i));
        for (size_t i = 0; i < sizeof bytes; i++) gguf_guard_remove(bytes + i);
    }
    cr_expect_eq(status_of_fault(true), 0);
}
