/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/golden.h"

#include <stdio.h>
#include <stdlib.h>

static void fail(const char *path, const char *what)
{
    fprintf(stderr, "%s: %s\n", path, what);
    abort();
}

cJSON *golden_load(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", LW_GOLDEN_DIR, name);
    FILE *file = fopen(path, "rb");
    if (!file) fail(path, "cannot be opened");
    if (fseek(file, 0, SEEK_END)) fail(path, "cannot be read");
    long n = ftell(file);
    rewind(file);
    char *text = n < 0 ? NULL : malloc((size_t)n + 1);
    if (!text || fread(text, 1, (size_t)n, file) != (size_t)n) fail(path, "cannot be read");
    fclose(file);
    cJSON *json = cJSON_ParseWithLength(text, (size_t)n);
    if (!json) fail(path, "is not JSON");
    free(text);
    return json;
}

static const char *path_in(const char *variable)
{
    const char *path = getenv(variable);
    return path && *path ? path : NULL;
}

const char *test_model_path(void)
{
    return path_in("LONGWAVE_TEST_MODEL");
}

const char *test_gemma_path(void)
{
    return path_in("LONGWAVE_TEST_GEMMA");
}
