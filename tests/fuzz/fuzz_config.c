/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration files: any bytes give a Config or an error that names the file, never a crash. */
#include "config/file.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    Config config = {0};
    Error error = {0};
    arena_init(&config.arena, 4096, 1 << 20);
    if (!config_file_apply("fuzz.ini", (const char *)data, n, &config, &error) &&
        (error.code == ERR_NONE || strncmp(error.text, "fuzz.ini", 8)))
        abort();
    config_done(&config);
    return 0;
}
