/* SPDX-License-Identifier: Apache-2.0 */
/* Completion for bash. */
#include "config/print.h"

#include <stdio.h>
#include <string.h>

static void print_flags(CommandId command)
{
    for (size_t i = 0; i < config_n_options; i++) {
        char flag[64];
        if (!(config_options[i].commands & command)) continue;
        option_flag_text(&config_options[i], flag);
        printf("%s ", flag);
    }
}

/* Those that make the name of another command. */
static void print_second_words(const char *first)
{
    size_t n = strlen(first);
    for (size_t i = 0; i < config_n_commands; i++)
        if (!strncmp(config_commands[i].name, first, n) && config_commands[i].name[n] == ' ')
            printf("%s ", config_commands[i].name + n + 1);
}

/* What follows an option: its words, a file or folder, or nothing that could be known. */
static void print_case(const ConfigOption *option)
{
    char flag[64];
    option_flag_text(option, flag);
    bool is_path = option->metavar && !strcmp(option->metavar, "PATH");
    if (!option->choices && !is_path) return;
    printf("    %s%s", flag, option->letter ? "|" : "");
    if (option->letter) printf("-%c", option->letter);
    if (is_path) {
        puts(") compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\")); return ;;");
        return;
    }
    fputs(") COMPREPLY=($(compgen -W \"", stdout);
    print_choices(option->choices, " ");
    puts("\" -- \"$word\")); return ;;");
}

void config_print_completion(void)
{
    puts("# Completion of longwave for bash, made by longwave --options-completion.\n"
         "_longwave()\n{\n"
         "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words=\"--help --version\"\n"
         "    COMPREPLY=()\n"
         "    case $before in");
    for (size_t i = 0; i < config_n_options; i++) print_case(&config_options[i]);
    /* A command of two words before the one that its first word names. */
    puts("    esac\n    case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in");
    for (size_t i = 0; i < 2 * config_n_commands; i++) {
        const ConfigCommand *command = &config_commands[i % config_n_commands];
        bool is_long = strchr(command->name, ' ');
        if (is_long != (i < config_n_commands)) continue;
        printf("    \"%s\"%s) words=\"", command->name, is_long ? "" : "\" \"*");
        print_flags(command->id);
        if (!is_long) print_second_words(command->name);
        puts("--help\" ;;");
    }
    fputs("    esac\n    [ \"$COMP_CWORD\" -gt 1 ] || words+=\"", stdout);
    for (size_t i = 0; i < config_n_commands; i++)
        if (!strchr(config_commands[i].name, ' ')) printf(" %s", config_commands[i].name);
    puts("\"\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\ncomplete -F _longwave longwave");
}
