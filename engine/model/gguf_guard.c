/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/gguf_guard.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_MAPPINGS = 1024 };

/* A place is taken by its base, and counts once n is there too. */
typedef struct Mapping {
    atomic_uintptr_t base;
    atomic_size_t n;
    atomic_bool is_hit;
} Mapping;

static Mapping mappings[MAX_MAPPINGS];
static uintptr_t page_bytes;

static Mapping *find(uintptr_t base)
{
    for (size_t i = 0; i < MAX_MAPPINGS; i++)
        if (atomic_load(&mappings[i].base) == base) return &mappings[i];
    return NULL;
}

/* All behind the fault: a file that was cut lacks all of it. */
static bool replace_by_zeros(Mapping *mapping, uintptr_t address)
{
    uintptr_t base = atomic_load(&mapping->base), first = address - address % page_bytes;
    size_t n = atomic_load(&mapping->n);
    if (!base || address < base || address - base >= n) return false;
    atomic_store(&mapping->is_hit, true);
    return mmap((void *)first, base + n - first, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
           MAP_FAILED;
}

static void on_bus(int number, siginfo_t *info, void *context)
{
    (void)context;
    for (size_t i = 0; i < MAX_MAPPINGS; i++)
        if (replace_by_zeros(&mappings[i], (uintptr_t)info->si_addr)) return;
    signal(number, SIG_DFL); /* the instruction runs again, and ends the process */
}

void gguf_guard_install(void)
{
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_NODEFER};
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

void gguf_guard_add(const void *base, size_t n)
{
    for (size_t i = 0; i < MAX_MAPPINGS; i++) {
        uintptr_t none = 0;
        if (!atomic_compare_exchange_strong(&mappings[i].base, &none, (uintptr_t)base)) continue;
        atomic_store(&mappings[i].is_hit, false);
        atomic_store(&mappings[i].n, n);
        return;
    }
}

void gguf_guard_remove(const void *base)
{
    Mapping *mapping = find((uintptr_t)base);
    if (!mapping) return;
    atomic_store(&mapping->n, 0);
    atomic_store(&mapping->base, 0);
}

bool gguf_guard_is_hit(const void *base)
{
    const Mapping *mapping = find((uintptr_t)base);
    return mapping && atomic_load(&mapping->is_hit);
}
