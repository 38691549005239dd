/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One comparator for kernel results: NaN and infinities must stand at the same places, every finite element must be
 * within abs or within rel of its twin, and the two vectors must point the same way.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef struct Tolerance {
    double abs, rel;   /* an element passes when |got - want| <= abs or <= rel * |want| */
    double min_cosine; /* over the finite elements */
} Tolerance;

/* On failure writes one line with the first bad place or the cosine to text. */
bool compare_floats(const float *got, const float *want, size_t n, Tolerance tolerance, char *text, size_t text_size);
