/* SPDX-License-Identifier: Apache-2.0 */
#include "server/process_stats.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static uint64_t read_resident(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file) return 0;
    if (fscanf(file, "%*u %llu", &pages) != 1) pages = 0;
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* jemalloc's, where the program is linked with it. */
int mallctl(const char *name, void *ret_old, size_t *old_bytes, void *new, size_t new_bytes) __attribute__((weak));

static size_t allocator_figure(const char *name)
{
    size_t figure = 0, n = sizeof figure;
    return mallctl(name, &figure, &n, NULL, 0) ? 0 : figure;
}

static uint64_t read_heap(void)
{
    if (!mallctl) {
        struct mallinfo2 info = mallinfo2();
        return info.uordblks + info.hblkhd;
    }
    uint64_t epoch = 1; /* writing one makes the figures new */
    if (mallctl("epoch", NULL, NULL, &epoch, sizeof epoch)) return 0;
    /* What was freed and waits in a thread's cache counts as allocated; 4096 are all arenas. */
    size_t allocated = allocator_figure("stats.allocated");
    size_t cached = allocator_figure("stats.arenas.4096.tcache_bytes");
    return allocated > cached ? allocated - cached : 0;
}

static uint64_t count_fds(void)
{
    uint64_t n = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (!folder) return 0;
    for (const struct dirent *entry; (entry = readdir(folder));) n += entry->d_name[0] != '.';
    closedir(folder);
    return n ? n - 1 : 0; /* the folder's own */
}

void process_stats_read(ProcessStats *ret_stats)
{
    struct rusage usage = {0};
    struct rlimit limit = {0};
    (void)getrusage(RUSAGE_SELF, &usage);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    *ret_stats = (ProcessStats){.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime),
                                .resident_bytes = read_resident(),
                                .heap_bytes = read_heap(),
                                .open_fds = count_fds(),
                                .max_fds = limit.rlim_cur};
}

uint64_t process_machine_bytes(void)
{
    long n_pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return n_pages > 0 && page_bytes > 0 ? (uint64_t)n_pages * (uint64_t)page_bytes : 0;
}
