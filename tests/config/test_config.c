/* SPDX-License-Identifier: Apache-2.0 */
/* config_load as a whole: sources, their order, and what each mistake is called. */
#include "config/options.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOAD(command, config, help, error, ...)                                                                        \
    config_load(command, (int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)), (char *[]){__VA_ARGS__}, config,     \
                help, error)

static const char *write_file(const char *text)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/longwave-config-XXXXXX");
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return path;
}

static void clear_environment(void)
{
    for (size_t i = 0; i < config_n_options; i++) {
        char name[64];
        option_environment_text(&config_options[i], name);
        unsetenv(name);
    }
}

TestSuite(config, .init = clear_environment);

Test(config, defaults)
{
    Config config;
    Error error;
    bool help = true;
    cr_assert(LOAD(CMD_SERVE, &config, &help, &error, "-m", "a.gguf"), "%s", error.text);
    cr_assert_not(help);
    cr_assert_str_eq(config.model, "a.gguf");
    cr_assert_str_eq(config.host, "127.0.0.1");
    cr_assert_eq(config.port, 8080);
    cr_assert_str_eq(config.kv_type, "f16");
    cr_assert_eq(config.max_body, 32u << 20);
    cr_assert_eq(config.max_queue_tokens, 4u << 20);
    cr_assert_eq(config.drain_timeout_s, 60);
    cr_assert_eq(config.request_timeout_s, 0);
    cr_assert_eq(config.log_level, LOG_INFO);
    cr_assert_null(config.api_key);
    config_done(&config);
}

Test(config, forms_of_the_command_line)
{
    Config config;
    Error error;
    bool help;
    cr_assert(LOAD(CMD_GENERATE, &config, &help, &error, "-mx.gguf", "--prefill-chunk=32", "--kv_type", "bf16", "-c",
                   "4K", "-p", "--raw is text here", "--raw", "--json=off", "-n", "7", "--temperature", "0", "--seed",
                   "18446744073709551615"),
              "%s", error.text);
    cr_assert_str_eq(config.model, "x.gguf");
    cr_assert_eq(config.prefill_chunk, 32);
    cr_assert_str_eq(config.kv_type, "bf16");
    cr_assert_eq(config.context, 4096);
    cr_assert_str_eq(config.prompt, "--raw is text here");
    cr_assert(config.raw);
    cr_assert_not(config.json);
    cr_assert_eq(config.max_tokens, 7);
    cr_assert_eq(config.temperature, 0);
    cr_assert(config.has_seed);
    cr_assert_eq(config.seed, UINT64_MAX);
    config_done(&config);
}

Test(config, later_sources_win)
{
    const char *path = write_file("[model]\nmodel = file.gguf\nthreads = 1\nctx = 1K\n[server]\nport = 1000\n");
    setenv("LONGWAVE_THREADS", "2", 1);
    setenv("LONGWAVE_CTX", "2K", 1);
    setenv("LONGWAVE_CONFIG", path, 1);
    Config config;
    Error error;
    bool help;
    cr_assert(LOAD(CMD_SERVE, &config, &help, &error, "-c", "3K", "-c", "4K"), "%s", error.text);
    cr_assert_str_eq(config.model, "file.gguf");
    cr_assert_eq(config.threads, 2);
    cr_assert_eq(config.context, 4096);
    cr_assert_eq(config.port, 1000);
    cr_assert_not(config.has_seed);
    config_done(&config);
    unlink(path);
}

Test(config, one_file_serves_all_commands)
{
    const char *path = write_file("[server]\nport = 1000\n[model]\nmodel = file.gguf\n");
    Config config;
    Error error;
    bool help;
    cr_assert(LOAD(CMD_TOKENIZE, &config, &help, &error, "--config", (char *)path, "-p", "x"), "%s", error.text);
    cr_assert_str_eq(config.config, path);
    config_done(&config);
    unlink(path);
}

Test(config, a_shape_or_a_file_of_the_command_line_wins_over_the_other_from_elsewhere)
{
    Config config;
    Error error;
    bool help;
    setenv("LONGWAVE_MODEL", "env.gguf", 1);
    cr_assert(config_load(CMD_INSPECT, 2, (char *[]){"--shape", "s", NULL}, &config, &help, &error), "%s", error.text);
    cr_assert_null(config.model);
    cr_assert_str_eq(config.shape, "s");
    config_done(&config);
    setenv("LONGWAVE_SHAPE", "env-shape", 1);
    cr_assert(config_load(CMD_INSPECT, 2, (char *[]){"-m", "m.gguf", NULL}, &config, &help, &error), "%s", error.text);
    cr_assert_null(config.shape);
    cr_assert_str_eq(config.model, "m.gguf");
    config_done(&config);
    char *both[] = {"--shape", "s", "-m", "m.gguf", NULL};
    cr_assert(config_load(CMD_INSPECT, 4, both, &config, &help, &error), "%s", error.text);
    cr_assert_str_eq(config.shape, "s");
    cr_assert_str_eq(config.model, "m.gguf");
    config_done(&config);
}

Test(config, environment_of_other_commands_is_ignored)
{
    setenv("LONGWAVE_PORT", "tcp://10.0.0.1:80", 1); /* what Kubernetes sets for a service called longwave */
    Config config;
    Error error;
    bool help;
    cr_assert(LOAD(CMD_GENERATE, &config, &help, &error, "-m", "x"), "%s", error.text);
    config_done(&config);
    cr_assert_not(LOAD(CMD_SERVE, &config, &help, &error, "-m", "x"));
    cr_assert_str_eq(error.text, "environment LONGWAVE_PORT: 'tcp://10.0.0.1:80' is not a whole number");
}

Test(config, help)
{
    Config config;
    Error error;
    bool help = false;
    cr_assert(LOAD(CMD_SERVE, &config, &help, &error, "--port", "1", "--help", "--nonsense"), "%s", error.text);
    cr_assert(help);
    config_done(&config);
    help = false;
    cr_assert(LOAD(CMD_INSPECT, &config, &help, &error, "-h"), "%s", error.text);
    cr_assert(help);
    config_done(&config);
}

Test(config, wrong_command_lines)
{
    static const struct {
        CommandId command;
        const char *args[3];
        const char *text;
    } rows[] = {
        {CMD_SERVE, {"-m", "x", "--tempature=1"}, "unknown option '--tempature'"},
        {CMD_GENERATE, {"-m", "x", "--tempature=1"}, "unknown option '--tempature', did you mean '--temperature'?"},
        {CMD_SERVE, {"-m", "x", "--max-bodi"}, "unknown option '--max-bodi', did you mean '--max-body'?"},
        {CMD_SERVE, {"-m", "x", "-Z"}, "unknown option '-Z'"},
        {CMD_SERVE, {"-m", "x", "--"}, "unknown option '--'"},
        {CMD_SERVE, {"-m", "x", "y"}, "unexpected argument 'y'"},
        {CMD_SERVE, {"-m", "x", "-"}, "unexpected argument '-'"},
        {CMD_SERVE, {"-m", "x", ""}, "unexpected argument ''"},
        {CMD_INSPECT, {"-m", "x", "--port=1"}, "'inspect' has no option '--port'"},
        {CMD_SERVE, {"-m", "x", "--port"}, "option '--port' wants a value: PORT"},
        {CMD_SERVE, {"-m", "x", "--port=70000"}, "--port: '70000' is not between 1 and 65535"},
        {CMD_SERVE, {"-m", "x", "--port="}, "--port: '' is not a whole number"},
        {CMD_SERVE, {"-m", "x", "--config=/nonexistent"}, "/nonexistent: No such file or directory"},
        {CMD_SERVE, {"--model="}, "--model: wants a value that is not empty"},
        {CMD_SERVE, {"--port=1"}, "'serve' wants --model PATH"},
        {CMD_GENERATE, {"-m", "x", "--raw=maybe"}, "--raw: 'maybe' is not on or off"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int argc = 0;
        char *argv[3];
        while (argc < 3 && rows[i].args[argc]) {
            argv[argc] = (char *)rows[i].args[argc];
            argc++;
        }
        Config config = {.port = 4711};
        bool help = false;
        Error error;
        cr_assert_not(config_load(rows[i].command, argc, argv, &config, &help, &error), "row %zu", i);
        cr_expect_str_eq(error.text, rows[i].text, "row %zu: %s", i, error.text);
        cr_expect_eq(config.port, 4711, "a failed load left its mark");
        cr_expect(error.code == ERR_INVALID || error.code == ERR_IO);
    }
}

/* "name " or "name* " for each option that differs. */
static void note(void *arg, const char *name, bool reloads)
{
    char *text = arg;
    size_t n = strlen(text);
    snprintf(text + n, 256 - n, "%s%s ", name, reloads ? "*" : "");
}

Test(config, compare_names_what_differs)
{
    Config a, b;
    Error error;
    bool help;
    char names[256] = "";
    cr_assert(LOAD(CMD_SERVE, &a, &help, &error, "-m", "a.gguf", "--max-queue", "7"), "%s", error.text);
    cr_assert(LOAD(CMD_SERVE, &b, &help, &error, "-m", "b.gguf", "--log-level", "warn", "--api-key-file", "k",
                   "--max-body", "1M"),
              "%s", error.text);
    config_compare(CMD_SERVE, &a, &b, note, names);
    cr_expect_str_eq(names, "model api_key_file* max_body max_queue* log_level* ");
    *names = '\0';
    config_compare(CMD_GENERATE, &a, &b, note, names);
    cr_expect_str_eq(names, "model ");
    *names = '\0';
    config_compare(CMD_SERVE, &a, &a, note, names);
    cr_expect_str_eq(names, "");
    config_done(&a);
    config_done(&b);
}
