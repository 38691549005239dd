/* SPDX-License-Identifier: Apache-2.0 */
#include "base/threads.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* CPUs that a quota of so many microseconds a period is worth, rounded up; 0 when there is no quota. */
static uint32_t quota_cpus(int64_t quota, int64_t period)
{
    if (quota <= 0 || period <= 0) return 0;
    int64_t cpus = (quota - 1) / period + 1;
    return cpus > THREADS_MAX ? THREADS_MAX : (uint32_t)cpus;
}

static uint32_t read_quota_v2(const char *folder)
{
    char path[600];
    int64_t quota = 0, period = 0;
    if (snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", folder) >= (int)sizeof path) return 0;
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    int n = fscanf(file, "%" SCNd64 " %" SCNd64, &quota, &period); /* "max 100000" matches nothing: no quota */
    fclose(file);
    return n == 2 ? quota_cpus(quota, period) : 0;
}

static int64_t read_number(const char *path)
{
    int64_t value = 0;
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    if (fscanf(file, "%" SCNd64, &value) != 1) value = 0;
    fclose(file);
    return value;
}

static uint32_t smaller_quota(uint32_t a, uint32_t b)
{
    if (a == 0 || b == 0) return a + b;
    return a < b ? a : b;
}

/* The tightest quota from this process's cgroup up to the root. */
static uint32_t cgroup_cpus(void)
{
    char line[512] = "", folder[512] = "/";
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (file) {
        while (fgets(line, sizeof line, file)) {
            if (strncmp(line, "0::", 3) != 0) continue;
            line[strcspn(line, "\n")] = '\0';
            memcpy(folder, line + 3, strlen(line + 3) + 1);
        }
        fclose(file);
    }
    uint32_t cpus = quota_cpus(read_number("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
                               read_number("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
    for (;;) {
        cpus = smaller_quota(cpus, read_quota_v2(folder));
        char *slash = strrchr(folder, '/');
        if (!slash) return cpus;
        *slash = '\0';
    }
}

uint32_t threads_available(void)
{
    cpu_set_t set;
    int allowed = 0;
    if (sched_getaffinity(0, sizeof set, &set) == 0) allowed = CPU_COUNT(&set);
    if (allowed < 1) allowed = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (allowed < 1) allowed = 1;
    if (allowed > THREADS_MAX) allowed = THREADS_MAX;
    return smaller_quota((uint32_t)allowed, cgroup_cpus());
}
