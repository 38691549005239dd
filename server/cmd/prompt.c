/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cmd/prompt.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool read_all(FILE *file, const char *name, Buffer *text, Error *error)
{
    char block[1 << 16];
    size_t n;
    while ((n = fread(block, 1, sizeof block, file)) > 0)
        if (!buffer_append(text, block, n, error)) return error_prefix(error, "'%s'", name);
    return !ferror(file) || error_set_param(error, ERR_IO, "file", "'%s': %s", name, strerror(errno));
}

bool cmd_read_prompt(const Config *config, Buffer *text, Error *error)
{
    if (!config->prompt == !config->file)
        return error_set_param(error, ERR_INVALID, "prompt", "give the text as -p TEXT or as -f FILE");
    if (config->prompt) return buffer_append_text(text, config->prompt, error);
    if (!strcmp(config->file, "-")) return read_all(stdin, "standard input", text, error);
    FILE *file = fopen(config->file, "rb");
    if (!file) return error_set_param(error, ERR_IO, "file", "'%s': %s", config->file, strerror(errno));
    bool ok = read_all(file, config->file, text, error);
    fclose(file);
    return ok;
}
