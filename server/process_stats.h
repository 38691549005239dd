/* SPDX-License-Identifier: Apache-2.0 */
/* What the system says of this process, for /metrics. Loop thread; a few small files of /proc are read. */
#pragma once
#include <stdint.h>

typedef struct ProcessStats {
    double cpu_seconds; /* of all threads, in user and system mode */
    uint64_t resident_bytes;
    uint64_t heap_bytes; /* allocated and not freed; exact while the other threads are at rest */
    uint64_t open_fds, max_fds;
} ProcessStats;

/* What cannot be told is 0. */
void process_stats_read(ProcessStats *ret_stats);
/* Memory of the machine; 0: not told. Any thread. */
uint64_t process_machine_bytes(void);
