/* SPDX-License-Identifier: Apache-2.0 */
/* Manual pages in the language of man(7). */
#include "config/print.h"

#include <stdio.h>

/* Dashes and backslashes that are meant as such, and no line that begins like a request. */
static void put(const char *text)
{
    if (*text == '.' || *text == '\'') fputs("\\&", stdout);
    for (; *text; text++) {
        if (*text == '-' || *text == '\\') putchar('\\');
        putchar(*text == '\\' ? 'e' : *text);
    }
}

static void put_help(const ConfigOption *option)
{
    put(option->help);
    fputs(". ", stdout);
    if (option->kind != OPTION_TEXT) {
        fputs("Values: ", stdout);
        print_values(option, "");
        fputs(". ", stdout);
    }
    fputs("Default: ", stdout);
    put(print_default_text(option));
    puts(".");
}

static void man_option(const ConfigOption *option)
{
    char flag[64];
    option_flag_text(option, flag);
    fputs(".TP\n.BR ", stdout);
    if (option->letter) printf("\\-%c \", \" ", option->letter);
    put(flag);
    if (option->metavar) printf(" \" \\fI%s\\fR\"", option->metavar);
    putchar('\n');
    put_help(option);
    fputs("Commands: ", stdout);
    print_commands(option->commands);
    puts(".");
}

static void man_section(const char *section)
{
    printf(".SS [%s]\n", section);
}

static void key_option(const ConfigOption *option)
{
    printf(".TP\n.BR %s \" = \\fI%s\\fR\"\n", option->name, option->metavar ? option->metavar : "on|off");
    put_help(option);
    if (option->reloads) puts("Taken from the file on reload.");
}

void config_print_man(void)
{
    puts(".\\\" Made by longwave \\-\\-options\\-man.\n"
         ".TH LONGWAVE 1 \"\" \"longwave " LW_VERSION "\"\n"
         ".SH NAME\nlongwave \\- serve GGUF language models over the OpenAI HTTP API\n"
         ".SH SYNOPSIS\n.B longwave\n.I COMMAND\n.RI [ OPTIONS ]\n"
         ".SH DESCRIPTION\n"
         "One native program that answers chat and completion requests with a transformer from a GGUF file, on a GPU "
         "or\n"
         "on the CPU, and keeps very long contexts fast.\n.SH COMMANDS");
    for (size_t i = 0; i < config_n_commands; i++) {
        printf(".TP\n.B %s\n", config_commands[i].name);
        put(config_commands[i].what);
        puts(".");
    }
    puts(".SH OPTIONS\n"
         "Each may also come from the environment\n"
         "(\\fBLONGWAVE_PORT\\fR for \\fB\\-\\-port\\fR), and those with a section from a file, see\n"
         ".BR longwave.conf (5).\n"
         "The command line wins over the environment, the environment over the file.");
    print_sections(man_section, man_option);
    puts(".SS This run only");
    for (size_t i = 0; i < config_n_options; i++)
        if (!config_options[i].section) man_option(&config_options[i]);
    puts(".SH SIGNALS\n"
         ".TP\n.B SIGTERM, SIGINT\nServe takes no new requests, answers the open ones and ends; a second one ends "
         "them.\n"
         ".TP\n.B SIGHUP\nServe reads its configuration again.\n"
         ".SH EXIT STATUS\n0: well; 1: it failed, and stderr says why; 2: the options make no sense.\n"
         ".SH FILES\n.TP\n.I /etc/longwave/longwave.conf\nOptions of the service.\n"
         ".SH SEE ALSO\n.BR longwave.conf (5),\n.BR systemctl (1)");
}

void config_print_man_conf(void)
{
    puts(
        ".\\\" Made by longwave \\-\\-options\\-man\\-conf.\n"
        ".TH LONGWAVE.CONF 5 \"\" \"longwave " LW_VERSION "\"\n"
        ".SH NAME\nlongwave.conf \\- options of longwave in a file\n"
        ".SH DESCRIPTION\n"
        "Sections in brackets, below them lines of the form \\fIkey\\fR = \\fIvalue\\fR; what begins with # or ; is a\n"
        "comment. The file is named by \\fB\\-\\-config\\fR. An unknown key, a key in another section or twice, and a\n"
        "value outside of its range are errors, which name the line.\n"
        "Sizes and token counts take K, M and G as powers of 1024, sizes also KiB, MiB, GiB and TiB; times s, m, h.\n"
        ".SH KEYS");
    print_sections(man_section, key_option);
    puts(".SH SEE ALSO\n.BR longwave (1)");
}
