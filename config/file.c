/* SPDX-License-Identifier: Apache-2.0 */
#include "config/file.h"

#include "base/buffer.h"
#include "config/value.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>

enum { MAX_OPTIONS = 128 };

typedef struct FileReader {
    const char *path;
    const char *at, *end;
    unsigned line; /* of the last line handed out */
    unsigned seen_line[MAX_OPTIONS];
    Config *config;
    bool failed;
    Error *error; /* the first one */
} FileReader;

static void fail(FileReader *reader, const Error *why)
{
    if (reader->failed) return;
    reader->failed = true;
    *reader->error = *why;
    error_prefix(reader->error, "%s:%u", reader->path, reader->line);
}

/*
 * fgets for inih over our bytes. inih takes an indented line for more of the value above and cuts long lines without a
 * word, so blanks in front are dropped here and a long line is refused.
 */
static char *next_line(char *out, int room, void *stream)
{
    FileReader *reader = stream;
    if (reader->at == reader->end || reader->failed) return NULL;
    const char *newline = memchr(reader->at, '\n', (size_t)(reader->end - reader->at));
    const char *stop = newline ? newline : reader->end;
    const char *start = reader->at;
    reader->at = newline ? newline + 1 : reader->end;
    reader->line++;
    while (start < stop && (*start == ' ' || *start == '\t' || *start == '\r')) start++;
    size_t n = (size_t)(stop - start);
    Error why;
    if (memchr(start, '\0', n)) {
        error_set(&why, ERR_INVALID, "a NUL byte");
        fail(reader, &why);
        return NULL;
    }
    if (n + 3 > (size_t)room) {
        error_set(&why, ERR_TOO_LARGE, "the line has more than %d bytes", room - 3);
        fail(reader, &why);
        return NULL;
    }
    memcpy(out, start, n);
    memcpy(out + n, "\n", 2);
    return out;
}

static bool check_place(const FileReader *reader, const ConfigOption *option, const char *section, const char *key,
                        Error *error)
{
    if (!option || !option->section) {
        const char *near = option_nearest(key, strlen(key), UINT32_MAX, true);
        if (option) return error_set_param(error, ERR_INVALID, option->name, "'%s' belongs on the command line", key);
        if (!near) return error_set_param(error, ERR_INVALID, key, "unknown key '%s'", key);
        return error_set_param(error, ERR_INVALID, key, "unknown key '%s', did you mean '%s'?", key, near);
    }
    if (strcmp(section, option->section))
        return error_set_param(error, ERR_INVALID, option->name, "'%s' belongs in section [%s], not [%s]", option->name,
                               option->section, section);
    unsigned before = reader->seen_line[option - config_options];
    if (before)
        return error_set_param(error, ERR_INVALID, option->name, "'%s' was set in line %u already", option->name,
                               before);
    return true;
}

static int on_pair(void *user, const char *section, const char *key, const char *value)
{
    FileReader *reader = user;
    if (reader->failed) return 1;
    Error why;
    const ConfigOption *option = option_find(key, strlen(key));
    if (!check_place(reader, option, section, key, &why)) {
        fail(reader, &why);
        return 1;
    }
    reader->seen_line[option - config_options] = reader->line;
    if (!option_set_value(option, value, reader->config, &why)) {
        error_prefix(&why, "%s", option->name);
        fail(reader, &why);
    }
    return 1;
}

bool config_file_apply(const char *path, const char *text, size_t n, Config *config, Error *error)
{
    if (config_n_options > MAX_OPTIONS) return error_set(error, ERR_INTERNAL, "more than %d options", MAX_OPTIONS);
    FileReader reader = {.path = path, .at = text, .end = text + n, .config = config, .error = error};
    int bad_line = ini_parse_stream(next_line, &reader, on_pair, &reader);
    if (reader.failed) return false;
    if (bad_line > 0) return error_set(error, ERR_INVALID, "%s:%d: neither [section] nor key = value", path, bad_line);
    if (bad_line < 0) return error_set(error, ERR_NO_MEMORY, "%s: no memory to read it", path);
    return true;
}

bool config_file_load(const char *path, Config *config, Error *error)
{
    FILE *file = fopen(path, "re");
    if (!file) return error_set_param(error, ERR_IO, "config", "%s: %s", path, strerror(errno));
    Buffer text;
    buffer_init(&text, CONFIG_FILE_MAX_BYTES);
    bool ok = true;
    char piece[4096];
    size_t n;
    while (ok && (n = fread(piece, 1, sizeof piece, file)) > 0) ok = buffer_append(&text, piece, n, error);
    if (!ok)
        error_prefix(error, "%s", path);
    else if (ferror(file))
        ok = error_set_param(error, ERR_IO, "config", "%s: %s", path, strerror(errno));
    fclose(file);
    ok = ok && config_file_apply(path, text.n ? text.data : "", text.n, config, error);
    buffer_done(&text);
    return ok;
}
