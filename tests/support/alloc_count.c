/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/alloc_count.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <errno.h>
#include <pcre2.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>

enum { MAX_WATCHED = 1 << 16 }; /* a power of two */

static atomic_uint_fast64_t count, fail_at;
static _Atomic(const char *) failed;
static atomic_bool watching;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const void *watched[MAX_WATCHED]; /* open addressing by address, linear; under lock */
static size_t n_watched;

/* ---- what is allocated ---- */

static size_t home(const void *p)
{
    return (size_t)(((uintptr_t)p >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 40) % MAX_WATCHED;
}

static size_t find(const void *p)
{
    size_t at = home(p);
    while (watched[at] && watched[at] != p) at = (at + 1) % MAX_WATCHED;
    return at;
}

static void watch(const void *p)
{
    if (!p || !atomic_load(&watching)) return;
    pthread_mutex_lock(&lock);
    size_t at = find(p);
    if (!watched[at]) n_watched++;
    watched[at] = p;
    if (n_watched > MAX_WATCHED / 2) abort();
    pthread_mutex_unlock(&lock);
}

/* Those behind it may have been displaced by it: each is put in again. Was it there? */
static bool forget(const void *p)
{
    if (!p || !atomic_load(&watching)) return false;
    pthread_mutex_lock(&lock);
    size_t at = find(p);
    bool was = watched[at] != NULL;
    if (was) {
        watched[at] = NULL;
        n_watched--;
        for (size_t i = (at + 1) % MAX_WATCHED; watched[i]; i = (i + 1) % MAX_WATCHED) {
            const void *moved = watched[i];
            watched[i] = NULL;
            watched[find(moved)] = moved;
        }
    }
    pthread_mutex_unlock(&lock);
    return was;
}

void alloc_watch(void)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < MAX_WATCHED; i++) watched[i] = NULL;
    n_watched = 0;
    pthread_mutex_unlock(&lock);
    atomic_store(&watching, true);
}

size_t alloc_watch_end(void)
{
    atomic_store(&watching, false);
    return n_watched;
}

/* ---- counting and failing ---- */

uint64_t alloc_count(void)
{
    return atomic_load(&count);
}

void alloc_fail_at(uint64_t n)
{
    atomic_store(&failed, NULL);
    atomic_store(&fail_at, n ? atomic_load(&count) + n : 0);
}

const char *alloc_failed(void)
{
    return atomic_load(&failed);
}

static bool fails(const char *name)
{
    uint64_t at = atomic_fetch_add(&count, 1) + 1;
    if (at != atomic_load(&fail_at)) return false;
    atomic_store(&failed, name);
    errno = ENOMEM;
    return true;
}

/* The linker turns a call of f into one of __wrap_f, and __real_f into f (alloc_link_args in
 * tests/support/meson.build). */
#define DECLARE(type, name, params)                                                                                    \
    type __real_##name params;                                                                                         \
    type __wrap_##name params;                                                                                         \
    type __wrap_##name params

#define WRAP_MAKER(type, name, params, args, refusal)                                                                  \
    DECLARE(type *, name, params)                                                                                      \
    {                                                                                                                  \
        if (fails(#name)) return refusal;                                                                              \
        type *made = __real_##name args;                                                                               \
        if ((void *)made != MAP_FAILED) watch(made);                                                                   \
        return made;                                                                                                   \
    }

#define WRAP_CALL(type, name, params, args, refusal)                                                                   \
    DECLARE(type, name, params)                                                                                        \
    {                                                                                                                  \
        return fails(#name) ? refusal : __real_##name args;                                                            \
    }

#define WRAP_FREE(type, name)                                                                                          \
    DECLARE(void, name, (type * p))                                                                                    \
    {                                                                                                                  \
        (void)forget(p);                                                                                               \
        __real_##name(p);                                                                                              \
    }

WRAP_MAKER(void, malloc, (size_t n), (n), NULL)
WRAP_MAKER(void, calloc, (size_t n_items, size_t n), (n_items, n), NULL)
WRAP_MAKER(void, aligned_alloc, (size_t alignment, size_t n), (alignment, n), NULL)
WRAP_MAKER(void, mmap64, (void *p, size_t n, int protection, int flags, int fd, off_t offset),
           (p, n, protection, flags, fd, offset), MAP_FAILED)
WRAP_MAKER(char, strdup, (const char *text), (text), NULL)
WRAP_MAKER(pcre2_match_data, pcre2_match_data_create_8, (uint32_t n, pcre2_general_context *general), (n, general),
           NULL)
WRAP_MAKER(pcre2_match_context, pcre2_match_context_create_8, (pcre2_general_context * general), (general), NULL)

WRAP_CALL(FILE *, fopen64, (const char *path, const char *mode), (path, mode), NULL)
WRAP_CALL(int, pthread_create, (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg),
          (thread, attributes, run, arg), EAGAIN)
WRAP_CALL(int, pcre2_match_8,
          (const pcre2_code *code, PCRE2_SPTR text, PCRE2_SIZE n, PCRE2_SIZE start, uint32_t options,
           pcre2_match_data *data, pcre2_match_context *context),
          (code, text, n, start, options, data, context), PCRE2_ERROR_NOMEMORY)

WRAP_FREE(void, free)
WRAP_FREE(pcre2_code, pcre2_code_free_8)
WRAP_FREE(pcre2_match_data, pcre2_match_data_free_8)
WRAP_FREE(pcre2_match_context, pcre2_match_context_free_8)

DECLARE(int, munmap, (void *p, size_t n))
{
    (void)forget(p);
    return __real_munmap(p, n);
}

DECLARE(void *, realloc, (void *p, size_t n))
{
    if (fails("realloc")) return NULL;
    bool was = forget(p);
    void *made = __real_realloc(p, n);
    if (made || was) watch(made ? made : p);
    return made;
}

DECLARE(pcre2_code *, pcre2_compile_8,
        (PCRE2_SPTR pattern, PCRE2_SIZE n, uint32_t options, int *code, PCRE2_SIZE *at, pcre2_compile_context *context))
{
    if (fails("pcre2_compile")) {
        *code = PCRE2_ERROR_HEAP_FAILED;
        *at = 0;
        return NULL;
    }
    pcre2_code *made = __real_pcre2_compile_8(pattern, n, options, code, at, context);
    watch(made);
    return made;
}
