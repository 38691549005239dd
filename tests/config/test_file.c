/* SPDX-License-Identifier: Apache-2.0 */
#include "config/file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool apply(const char *text, size_t n, Config *config, Error *error)
{
    *config = (Config){0};
    arena_init(&config->arena, 4096, 1 << 20);
    return config_file_apply("c.ini", text, n, config, error);
}

Test(file, blanks_comments_and_endings)
{
    static const char text[] =
        "# comment\r\n; another\r\n[server]\r\n   port = 81 ; behind a value\r\n\tmax-queue=5\r\n\r\n"
        "[model]\r\nmodel = /a path/with blanks.gguf  \r\nthreads:3\n[log]";
    Config config;
    Error error;
    cr_assert(apply(text, strlen(text), &config, &error), "%s", error.text);
    cr_expect_eq(config.port, 81);
    cr_expect_eq(config.max_queue, 5);
    cr_expect_eq(config.threads, 3);
    cr_expect_str_eq(config.model, "/a path/with blanks.gguf");
    config_done(&config);
    cr_assert(apply("", 0, &config, &error));
    config_done(&config);
}

Test(file, mistakes_name_file_and_line)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"[server]\nprot = 1", "c.ini:2: unknown key 'prot', did you mean 'port'?"},
        {"[server]\nzzzzzzzz = 1", "c.ini:2: unknown key 'zzzzzzzz'"},
        {"[server]\n\nport = 1x", "c.ini:3: port: '1x' is not a whole number"},
        {"[server]\nport =", "c.ini:2: port: '' is not a whole number"},
        {"[model]\nport = 1", "c.ini:2: 'port' belongs in section [server], not [model]"},
        {"port = 1", "c.ini:1: 'port' belongs in section [server], not []"},
        {"[server]\nport = 1\nport = 2", "c.ini:3: 'port' was set in line 2 already"},
        {"[server]\nmax_queue = 1\nmax-queue = 2", "c.ini:3: 'max_queue' was set in line 2 already"},
        {"[server]\nport = 1\nnonsense\n", "c.ini:3: neither [section] nor key = value"},
        {"[server\n", "c.ini:1: neither [section] nor key = value"},
        {"[model]\nprompt = x", "c.ini:2: 'prompt' belongs on the command line"},
        {"[server]\nport = 1\n  max_queue = x", "c.ini:3: max_queue: 'x' is not a whole number"},
        {"[server]\nport = 0\nmax_queue = x\nzzz\n", "c.ini:2: port: '0' is not between 1 and 65535"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Config config;
        Error error = {0};
        cr_assert_not(apply(rows[i].text, strlen(rows[i].text), &config, &error), "row %zu", i);
        cr_expect_str_eq(error.text, rows[i].message);
        cr_expect_eq(error.code, ERR_INVALID);
        config_done(&config);
    }
}

Test(file, nul_byte)
{
    Config config;
    Error error;
    cr_assert_not(apply("[server]\nport = 8\0"
                        "0\n",
                        19, &config, &error));
    cr_expect_str_eq(error.text, "c.ini:2: a NUL byte");
    config_done(&config);
}

/* inih would hand out the first 200 bytes of a line and take the rest for a line of its own. */
Test(file, long_line_is_refused_and_not_cut)
{
    char text[1000];
    int n = snprintf(text, sizeof text, "[model]\nmodel = %0500d\n", 1);
    Config config;
    Error error;
    cr_assert_not(apply(text, (size_t)n, &config, &error));
    cr_expect(strncmp(error.text, "c.ini:2: the line has more than ", 32) == 0, "%s", error.text);
    cr_expect_eq(error.code, ERR_TOO_LARGE);
    config_done(&config);
}

Test(file, big_files_and_folders_are_refused)
{
    Config config = {0};
    Error error;
    char path[] = "/tmp/longwave-file-XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    for (int i = 0; i < CONFIG_FILE_MAX_BYTES / 16 + 1; i++) fputs("# fifteen bytes\n", file);
    fclose(file);
    cr_expect_not(config_file_load(path, &config, &error));
    cr_expect_eq(error.code, ERR_TOO_LARGE);
    remove(path);
    cr_expect_not(config_file_load("/tmp", &config, &error));
    cr_expect_str_eq(error.text, "/tmp: Is a directory");
}
