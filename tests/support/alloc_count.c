/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/alloc_count.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

static atomic_uint_fast64_t count;

/* The linker turns a call of f into one of __wrap_f, and __real_f into f (link_args in tests/meson.build). */
#define WRAP(type, name, params, args)                                                                                \
    type __real_##name params;                                                                                        \
    type __wrap_##name params;                                                                                        \
    type __wrap_##name params                                                                                         \
    {                                                                                                                 \
        atomic_fetch_add(&count, 1);                                                                                  \
        return __real_##name args;                                                                                    \
    }

WRAP(void *, malloc, (size_t n), (n))
WRAP(void *, calloc, (size_t count_, size_t n), (count_, n))
WRAP(void *, realloc, (void *p, size_t n), (p, n))
WRAP(void *, aligned_alloc, (size_t alignment, size_t n), (alignment, n))
WRAP(int, posix_memalign, (void **p, size_t alignment, size_t n), (p, alignment, n))
WRAP(void *, mmap64, (void *p, size_t n, int protection, int flags, int fd, off_t offset),
     (p, n, protection, flags, fd, offset))

uint64_t alloc_count(void)
{
    return atomic_load(&count);
}
