/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <criterion/criterion.h>
#include <string.h>

static bool all_zero(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i]) return false;
    return true;
}

Test(arena, memory_is_zeroed_aligned_and_apart)
{
    Arena arena;
    arena_init(&arena, 256, SIZE_MAX);
    char *last = NULL;
    for (size_t n = 0; n < 600; n++) {
        char *p = arena_alloc(&arena, n);
        cr_assert_not_null(p);
        cr_assert_eq((uintptr_t)p % 16, 0);
        cr_assert_neq(p, last);
        cr_assert(all_zero(p, n));
        memset(p, 0xAA, n);
        last = p;
    }
    arena_done(&arena);
}

Test(arena, maximum)
{
    Arena arena;
    arena_init(&arena, 64, 64);
    cr_assert_null(arena_alloc(&arena, 65));
    cr_assert_not_null(arena_alloc(&arena, 48));
    cr_assert_null(arena_alloc(&arena, 17));
    cr_assert_not_null(arena_alloc(&arena, 16));
    cr_assert_null(arena_alloc(&arena, 0), "even nothing takes a place of its own");
    arena_done(&arena);
}

Test(arena, sizes_that_overflow)
{
    Arena arena;
    arena_init(&arena, 64, SIZE_MAX);
    cr_expect_null(arena_alloc(&arena, SIZE_MAX));
    cr_expect_null(arena_alloc(&arena, SIZE_MAX - 15));
    cr_expect_null(arena_array(&arena, SIZE_MAX / 2, 3));
    cr_expect_null(arena_array(&arena, 1ull << 33, 1ull << 33));
    cr_expect_null(arena_copy(&arena, "", SIZE_MAX));
    cr_expect_not_null(arena_array(&arena, 0, SIZE_MAX));
    arena_done(&arena);
}

Test(arena, copies)
{
    Arena arena;
    arena_init(&arena, 64, SIZE_MAX);
    cr_expect_str_eq(arena_strdup(&arena, "text"), "text");
    char *bytes = arena_copy(&arena, "a\0b", 3);
    cr_expect_arr_eq(bytes, "a\0b", 4, "a NUL stands behind");
    cr_expect_str_eq(arena_copy(&arena, NULL, 0), "");
    arena_done(&arena);
}
