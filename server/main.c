/* SPDX-License-Identifier: Apache-2.0 */
/* longwave: picks the subcommand. Wiring only; each subcommand is one file in server/cmd/ and one row here. */
#include "config/config.h"
#include "server/cmd/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    CmdMain run;
    const char *what;
} commands[] = {
    {"serve", cmd_serve, "serve a model over the OpenAI HTTP API"},
    {"generate", cmd_generate, "answer one prompt on the terminal"},
    {"inspect", cmd_inspect, "show what a GGUF file or a named shape holds and needs"},
    {"tokenize", cmd_tokenize, "show the token ids of a text"},
    {"bench", cmd_bench, "measure how fast a model or the kernels are on this machine"},
    {NULL, NULL, NULL},
};

static void usage(FILE *out)
{
    fputs("usage: longwave COMMAND [OPTIONS]\n\ncommands:\n", out);
    for (size_t i = 0; commands[i].name; i++) fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].what);
    fputs("\n'longwave COMMAND --help' lists a command's options; 'longwave --version' prints the version,\n"
          "'longwave --options-example' an example configuration, '--options-reference' the reference in Markdown.\n",
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
    if (!strcmp(argv[1], "--options-reference")) {
        config_print_reference();
        return 0;
    }
    if (!strcmp(argv[1], "--options-example")) {
        config_print_example();
        return 0;
    }
    for (size_t i = 0; commands[i].name; i++)
        if (!strcmp(argv[1], commands[i].name)) return commands[i].run(argc - 2, argv + 2);
    fprintf(stderr, "longwave: unknown command '%s'\n", argv[1]);
    usage(stderr);
    return 2;
}

int main(int argc, char **argv)
{
    if (!keep_standard_streams()) return 1;
    int status = run(argc, argv);
    if (!ferror(stdout) && !fflush(stdout)) return status;
    if (!status) fprintf(stderr, "longwave: cannot write the output: %s\n", strerror(errno));
    return status ? status : 1;
}
