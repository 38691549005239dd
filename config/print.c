/* SPDX-License-Identifier: Apache-2.0 */
#include "config/print.h"

#include <stdio.h>
#include <string.h>

const char *print_default_text(const ConfigOption *option)
{
    return option->shown ? option->shown : option->fallback ? option->fallback : "none";
}

void print_choices(const OptionChoice *choices, const char *between)
{
    for (const OptionChoice *choice = choices; choice && choice->name; choice++)
        printf("%s%s", choice == choices ? "" : between, choice->name);
}

static void print_help_line(const ConfigOption *option)
{
    char flag[64], left[96];
    option_flag_text(option, flag);
    char letter[8] = "    ";
    if (option->letter) snprintf(letter, sizeof letter, "-%c, ", option->letter);
    int n = snprintf(left, sizeof left, "  %s%s%s%s", letter, flag, option->metavar ? " " : "",
                     option->metavar ? option->metavar : "");
    printf("%s%*s%s", left, n < 34 ? 34 - n : 2, "", option->help);
    if (option->choices) {
        fputs(": ", stdout);
        print_choices(option->choices, ", ");
    }
    if (option->kind != OPTION_FLAG && (option->fallback || option->shown)) printf(" [%s]", print_default_text(option));
    bool is_on = option->kind == OPTION_FLAG && option->fallback && !strcmp(option->fallback, "on");
    if (is_on) printf(" [on; %s=off]", flag);
    putchar('\n');
}

void config_print_help(CommandId command, const char *program)
{
    const char *what = "";
    for (size_t i = 0; i < config_n_commands; i++)
        if (config_commands[i].id == command) what = config_commands[i].what;
    printf("usage: %s %s [OPTIONS]\n\n%s\n\noptions:\n", program, config_command_name(command), what);
    for (size_t i = 0; i < config_n_options; i++)
        if (config_options[i].commands & command) print_help_line(&config_options[i]);
    puts("  -h, --help                      this text\n\n"
         "Each option can also come from the environment (LONGWAVE_PORT for --port); those that last, from a file\n"
         "(--config). The command line wins over the environment, the environment over the file.");
}

void print_sections(void (*heading)(const char *section), void (*one)(const ConfigOption *option))
{
    const char *section = NULL;
    for (size_t i = 0; i < config_n_options; i++) {
        const ConfigOption *option = &config_options[i];
        if (!option->section) continue;
        if (!section || strcmp(section, option->section)) heading(option->section);
        section = option->section;
        one(option);
    }
}

static void example_heading(const char *section)
{
    printf("\n[%s]\n", section);
}

/* Words of a comment, in lines of COMMENT_COLUMNS where they fit; *column: where the line ends, 0 before the first. */
static void print_words(const char *text, size_t *column)
{
    enum { COMMENT_COLUMNS = 100 };
    while (*text) {
        size_t n_blanks = strspn(text, " "), n = strcspn(text + n_blanks, " ");
        if (*column == 0 || (n_blanks && *column + n_blanks + n > COMMENT_COLUMNS)) {
            printf("%s# ", *column ? "\n" : "");
            *column = 2;
            text += n_blanks;
            n_blanks = 0;
        }
        printf("%.*s", (int)(n_blanks + n), text);
        *column += n_blanks + n;
        text += n_blanks + n;
    }
}

static void example_option(const ConfigOption *option)
{
    size_t column = 0;
    print_words(option->help, &column);
    for (const OptionChoice *choice = option->choices; choice && choice->name; choice++) {
        print_words(choice == option->choices ? " (" : ", ", &column);
        print_words(choice->name, &column);
    }
    if (option->choices) print_words(")", &column);
    if (option->shown) {
        print_words("; by default: ", &column);
        print_words(option->shown, &column);
    }
    printf("\n#%s =%s%s\n", option->name, option->fallback ? " " : "", option->fallback ? option->fallback : "");
}

void config_print_example(void)
{
    puts("# longwave: example configuration, with the defaults. Use it with --config PATH.");
    print_sections(example_heading, example_option);
}

void print_commands(uint32_t commands)
{
    bool first = true;
    for (size_t i = 0; i < config_n_commands; i++)
        if (commands & config_commands[i].id) {
            printf("%s%s", first ? "" : ", ", config_commands[i].name);
            first = false;
        }
}

void print_values(const ConfigOption *option, const char *tick)
{
    static const OptionChoice flags[] = {{"on", 1}, {"off", 0}, {NULL, 0}};
    static const char *const unit[] = {
        [OPTION_TEXT] = "text",           [OPTION_INTEGER] = "number",         [OPTION_TOKENS] = "tokens",
        [OPTION_BYTES] = "size",          [OPTION_SECONDS] = "time",           [OPTION_REAL] = "number",
        [OPTION_LIST] = "list of tokens", [OPTION_SHARE] = "fraction or size",
    };
    if (option->kind == OPTION_CHOICE || option->kind == OPTION_FLAG) {
        char between[8];
        snprintf(between, sizeof between, "%s, %s", tick, tick);
        fputs(tick, stdout);
        print_choices(option->kind == OPTION_FLAG ? flags : option->choices, between);
        fputs(tick, stdout);
        return;
    }
    fputs(unit[option->kind], stdout);
    if (option->kind == OPTION_REAL)
        printf(", %g to %g", option->real_min, option->real_max);
    else if (option->kind != OPTION_TEXT)
        printf(", %llu to %llu", (unsigned long long)option->min, (unsigned long long)option->max);
}

static void reference_option(const ConfigOption *option)
{
    char flag[64];
    option_flag_text(option, flag);
    printf("| `%s`", flag);
    if (option->letter) printf(", `-%c`", option->letter);
    fputs(" | ", stdout);
    print_values(option, "`");
    const char *tick = option->fallback && !option->shown ? "`" : "";
    printf(" | %s%s%s | ", tick, print_default_text(option), tick);
    print_commands(option->commands);
    printf(" | %s%s |\n", option->help, option->reloads ? " *" : "");
}

static void reference_heading(const char *section)
{
    printf("\n## [%s]\n\n| option | value | default | commands | meaning |\n|---|---|---|---|---|\n", section);
}

void config_print_reference(void)
{
    puts(
        "# Options\n\n"
        "Made by `longwave --options-reference` from the table in `config/options.c`; a test keeps it current.\n\n"
        "An option is given on the command line (`--max-body 8MiB`, `--max-body=8MiB`, `--max_body 8MiB`), in the\n"
        "environment (`LONGWAVE_MAX_BODY=8MiB`) or in an INI file named by `--config` (`max_body = 8MiB` in its\n"
        "section). The command line wins over the environment, the environment over the file. An unknown key is an\n"
        "error, in the file and on the command line.\n\n"
        "Sizes and token counts take K, M, G as powers of 1024 (sizes also KiB, MiB, GiB, TiB); times take s, m, h.\n\n"
        "On SIGHUP a server reads the file again and takes what is marked with * from it; it names what else has\n"
        "changed in its log. A file with an error changes nothing.");
    print_sections(reference_heading, reference_option);
    puts("\n## This run only: not in a file\n\n| option | value | default | commands | meaning "
         "|\n|---|---|---|---|---|");
    for (size_t i = 0; i < config_n_options; i++)
        if (!config_options[i].section) reference_option(&config_options[i]);
}
