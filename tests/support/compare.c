/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/compare.h"

#include <math.h>
#include <stdio.h>

static bool same_class(float got, float want)
{
    if (isnan(want)) return isnan(got);
    if (isinf(want)) return got == want;
    return isfinite(got);
}

bool compare_floats(const float *got, const float *want, size_t n, Tolerance tolerance, char *text, size_t text_size)
{
    double dot = 0, got2 = 0, want2 = 0;
    for (size_t i = 0; i < n; i++) {
        double difference = fabs((double)got[i] - want[i]);
        bool close = !isfinite(want[i]) || difference <= tolerance.abs || difference <= tolerance.rel * fabs(want[i]);
        if (!same_class(got[i], want[i]) || !close) {
            snprintf(text, text_size, "element %zu of %zu is %.9g, want %.9g", i, n, got[i], want[i]);
            return false;
        }
        if (!isfinite(want[i])) continue;
        dot += (double)got[i] * want[i];
        got2 += (double)got[i] * got[i];
        want2 += (double)want[i] * want[i];
    }
    if (want2 == 0 && got2 == 0) return true;
    double cosine = dot / sqrt(got2 * want2);
    if (cosine >= tolerance.min_cosine) return true;
    snprintf(text, text_size, "cosine over %zu elements is %.9f, want %.9f", n, cosine, tolerance.min_cosine);
    return false;
}
