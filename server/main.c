/* SPDX-License-Identifier: Apache-2.0 */
/* longwave: picks the subcommand. Wiring only; each subcommand is one file in server/cmd/ and one row here and one of
 * config_commands. */
#include "config/config.h"
#include "engine/model/gguf_guard.h"
#include "server/cmd/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * Read by jemalloc, and MALLOC_CONF after it. Few threads allocate: an arena for each of them would be a tenth of what
 * a server at rest has beside its model and KV memory. Their caches stay: without, grammars compile a tenth slower.
 */
extern const char *malloc_conf;
const char *malloc_conf = "narenas:1";

static const struct {
    CommandId id;
    CmdMain run;
} mains[] = {
    {CMD_SERVE, cmd_serve}, {CMD_GENERATE, cmd_generate}, {CMD_TOKENIZE, cmd_tokenize},   {CMD_INSPECT, cmd_inspect},
    {CMD_BENCH, cmd_bench}, {CMD_BENCH_SERVE, cmd_bench_serve}, {CMD_EVAL, cmd_eval}, {CMD_CALIBRATE, cmd_calibrate},
};

/* Made from the table of options. */
static const struct {
    const char *flag;
    void (*print)(void);
} texts[] = {
    {"--options-example", config_print_example},
    {"--options-reference", config_print_reference},
    {"--options-man", config_print_man},
    {"--options-man-conf", config_print_man_conf},
    {"--options-completion", config_print_completion},
};

/* Words that the arguments begin with if they name the command, else 0. */
static int count_words(const char *name, int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        size_t n = strcspn(name, " ");
        if (strlen(argv[i]) != n || strncmp(argv[i], name, n) != 0) return 0;
        if (!name[n]) return i + 1;
        name += n + 1;
    }
    return 0;
}

/* The one with the longest name: 'bench serve' is not 'bench'. */
static CmdMain find_main(int argc, char **argv, int *ret_n_words)
{
    CmdMain found = NULL;
    *ret_n_words = 0;
    for (size_t i = 0; i < sizeof mains / sizeof *mains; i++) {
        int n = count_words(config_command_name(mains[i].id), argc, argv);
        if (n <= *ret_n_words) continue;
        *ret_n_words = n;
        found = mains[i].run;
    }
    return found;
}

static void usage(FILE *out)
{
    fputs("usage: longwave COMMAND [OPTIONS]\n\ncommands:\n", out);
    for (size_t i = 0; i < config_n_commands; i++)
        fprintf(out, "  %-12s %s\n", config_commands[i].name, config_commands[i].what);
    fputs("\n'longwave COMMAND --help' lists a command's options; 'longwave --version' prints the version,\n"
          "'longwave --options-example' an example configuration, '--options-reference' the reference in Markdown,\n"
          "'--options-man', '--options-man-conf' and '--options-completion' manual pages and completion for bash.\n",
          out);
}

/* Or the next file or socket would get the number, and what is meant for a person would go into it. */
static bool keep_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) continue;
        /* The wrong way round: reading or writing still fails. */
        if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return false;
    }
    return true;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        usage(stdout);
        return 0;
    }
    if (!strcmp(argv[1], "--version")) {
        puts("longwave " LW_VERSION);
        return 0;
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(argv[1], texts[i].flag)) continue;
        texts[i].print();
        return 0;
    }
    int n_words;
    CmdMain cmd = find_main(argc - 1, argv + 1, &n_words);
    if (cmd) return cmd(argc - 1 - n_words, argv + 1 + n_words);
    fprintf(stderr, "longwave: unknown command '%s'\n", argv[1]);
    usage(stderr);
    return 2;
}

int main(int argc, char **argv)
{
    if (!keep_standard_streams()) return 1;
    gguf_guard_install();
    int status = run(argc, argv);
    if (!ferror(stdout) && !fflush(stdout)) return status;
    if (!status) fprintf(stderr, "longwave: cannot write the output: %s\n", strerror(errno));
    return status ? status : 1;
}
