/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/table.h"

#if LW_CPU_ROWS > 1
#include <cpuid.h>
#endif
#if LW_CPU_ROWS > 3
#include <sys/syscall.h>
#include <unistd.h>
#endif

const KernelTable *kernels_table_scalar(void);
const KernelTable *kernels_table_avx2(void);
const KernelTable *kernels_table_avx512(void);
const KernelTable *kernels_table_amx(void);

#if LW_CPU_ROWS > 1
static bool has_avx2(void)
{
    unsigned eax, ebx, ecx = 0, edx;
    bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
    return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

#if LW_CPU_ROWS > 2
static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}
#endif

#if LW_CPU_ROWS > 3
/* The kernel gives the tiles' registers only to processes that ask: then to all of their threads. */
static bool has_amx(void)
{
    enum { REQUEST = 0x1023, TILE_DATA = 18, HAS_TILES = 1 << 24, HAS_INT8 = 1 << 25 };
    unsigned eax, ebx, ecx, edx;
    return has_avx512() && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & HAS_TILES) && (edx & HAS_INT8) &&
           syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}
#endif

static bool always(void)
{
    return true;
}

/* Best first. */
static const struct {
    bool (*supported)(void);
    const KernelTable *(*table)(void);
} rows[] = {
#if LW_CPU_ROWS > 3
    {has_amx, kernels_table_amx},
#endif
#if LW_CPU_ROWS > 2
    {has_avx512, kernels_table_avx512},
#endif
#if LW_CPU_ROWS > 1
    {has_avx2, kernels_table_avx2},
#endif
    {always, kernels_table_scalar},
};

const KernelTable *kernels_cpu_row(size_t i)
{
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++)
        if (rows[row].supported() && i-- == 0) return rows[row].table();
    return NULL;
}

const KernelTable *kernels_cpu(void)
{
    return kernels_cpu_row(0);
}
