/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays on the heap that grow to twice their size. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ARRAY_FIRST = 64 };

/*
 * array: the address of a pointer to *capacity elements of size bytes, or to NULL; afterwards there is room for wanted
 * ones. false: no memory, or more than max; nothing has changed.
 */
static inline bool array_reserve(void *array, uint32_t *capacity, uint64_t wanted, uint32_t max, size_t size)
{
    void *old, *grown;
    if (wanted <= *capacity) return true;
    if (wanted > max) return false;
    uint64_t larger = *capacity ? (uint64_t)*capacity * 2 : ARRAY_FIRST;
    if (larger < wanted) larger = wanted;
    if (larger > max) larger = max;
    memcpy(&old, array, sizeof old);
    grown = realloc(old, larger * size);
    if (!grown) return false;
    memcpy(array, &grown, sizeof grown);
    *capacity = (uint32_t)larger;
    return true;
}
