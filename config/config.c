/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include "config/file.h"
#include "config/value.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_OPTIONS = 192, ARENA_BLOCK_BYTES = 4096, ARENA_MAX_BYTES = 256 << 20 };

/* What the command line says, before any of it is applied: the file named there comes first. */
typedef struct CommandLine {
    CommandId command;
    const char *value[MAX_OPTIONS]; /* by option; NULL: not given */
    bool help;
} CommandLine;

static bool unknown_option(CommandId command, const char *shown, size_t n, const char *name, size_t n_name,
                           Error *error)
{
    const char *near = option_nearest(name, n_name, command, false);
    char flag[64] = "";
    if (near) option_flag_text(option_find(near, strlen(near)), flag);
    return error_set_param(error, ERR_INVALID, shown, "unknown option '%.*s'%s%s%s", (int)n, shown,
                           near ? ", did you mean '" : "", flag, near ? "'?" : "");
}

/* --name VALUE, --name=VALUE, -x VALUE, -xVALUE, or a lone flag. */
static bool split_argument(CommandId command, const char *arg, const ConfigOption **ret_option, const char **ret_value,
                           Error *error)
{
    if (arg[0] != '-' || !arg[1]) return error_set_param(error, ERR_INVALID, arg, "unexpected argument '%s'", arg);
    bool is_long = arg[1] == '-';
    size_t n = is_long ? strcspn(arg, "=") : 2;
    const ConfigOption *option = is_long ? option_find(arg + 2, n - 2) : option_find_letter(arg[1]);
    if (!option) return unknown_option(command, arg, n, arg + (is_long ? 2 : 1), n - (is_long ? 2 : 1), error);
    if (!(option->commands & command))
        return error_set_param(error, ERR_INVALID, option->name, "'%s' has no option '%.*s'",
                               config_command_name(command), (int)n, arg);
    *ret_option = option;
    *ret_value = !arg[n] ? NULL : is_long ? arg + n + 1 : arg + n;
    return true;
}

static bool read_command_line(int argc, char **argv, CommandLine *line, Error *error)
{
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            line->help = true;
            return true;
        }
        const ConfigOption *option = NULL;
        const char *value = NULL;
        if (!split_argument(line->command, argv[i], &option, &value, error)) return false;
        if (!value && option->kind == OPTION_FLAG) value = "on";
        if (!value && i + 1 == argc)
            return error_set_param(error, ERR_INVALID, option->name, "option '%s' wants a value: %s", argv[i],
                                   option->metavar);
        line->value[option - config_options] = value ? value : argv[++i];
    }
    return true;
}

static bool apply_defaults(Config *config, Error *error)
{
    arena_init(&config->arena, ARENA_BLOCK_BYTES, ARENA_MAX_BYTES);
    for (size_t i = 0; i < config_n_options; i++) {
        const ConfigOption *option = &config_options[i];
        if (option->fallback && !option_set_value(option, option->fallback, config, error)) return false;
        if (option->seen_offset) *(bool *)((char *)config + option->seen_offset) = false;
    }
    return true;
}

static bool apply_file(const CommandLine *line, Config *config, Error *error)
{
    const ConfigOption *option = option_find("config", strlen("config"));
    const char *path = line->value[option - config_options];
    if (!path) path = getenv("LONGWAVE_CONFIG");
    return !path || config_file_load(path, config, error);
}

static bool apply_environment(CommandId command, Config *config, Error *error)
{
    for (size_t i = 0; i < config_n_options; i++) {
        const ConfigOption *option = &config_options[i];
        if (!(option->commands & command)) continue;
        char name[64];
        option_environment_text(option, name);
        const char *value = getenv(name);
        if (value && !option_set_value(option, value, config, error))
            return error_prefix(error, "environment %s", name);
    }
    return true;
}

static bool apply_command_line(const CommandLine *line, Config *config, Error *error)
{
    /* First all rivals: what the command line itself says of both stays. */
    for (size_t i = 0; i < config_n_options; i++)
        if (line->value[i] && config_options[i].rival_offset)
            *(const char **)((char *)config + config_options[i].rival_offset) = NULL;
    for (size_t i = 0; i < config_n_options; i++) {
        const ConfigOption *option = &config_options[i];
        char flag[64];
        option_flag_text(option, flag);
        if (line->value[i] && !option_set_value(option, line->value[i], config, error))
            return error_prefix(error, "%s", flag);
    }
    return true;
}

static bool check_required(CommandId command, const Config *config, Error *error)
{
    for (size_t i = 0; i < config_n_options; i++) {
        const ConfigOption *option = &config_options[i];
        if (!(option->required & command) || *(const char *const *)((const char *)config + option->offset)) continue;
        char flag[64];
        option_flag_text(option, flag);
        return error_set_param(error, ERR_INVALID, option->name, "'%s' wants %s %s", config_command_name(command), flag,
                               option->metavar);
    }
    return true;
}

bool config_load(CommandId command, int argc, char **argv, Config *ret_config, bool *ret_help, Error *error)
{
    if (config_n_options > MAX_OPTIONS) return error_set(error, ERR_INTERNAL, "more than %d options", MAX_OPTIONS);
    CommandLine line = {.command = command};
    Config config = {0};
    if (!read_command_line(argc, argv, &line, error)) return false;
    bool ok = apply_defaults(&config, error);
    if (ok && !line.help)
        ok = apply_file(&line, &config, error) && apply_environment(command, &config, error) &&
             apply_command_line(&line, &config, error) && check_required(command, &config, error);
    if (!ok) {
        config_done(&config);
        return false;
    }
    *ret_config = config;
    *ret_help = line.help;
    return true;
}

static bool differs(const ConfigOption *option, const Config *a, const Config *b)
{
    const char *left = (const char *)a + option->offset, *right = (const char *)b + option->offset;
    if (option->kind != OPTION_TEXT) return memcmp(left, right, option->width);
    const char *left_text = *(const char *const *)left, *right_text = *(const char *const *)right;
    return !left_text || !right_text ? left_text != right_text : strcmp(left_text, right_text);
}

void config_compare(CommandId command, const Config *a, const Config *b,
                    void (*visit)(void *arg, const char *name, bool reloads), void *arg)
{
    for (size_t i = 0; i < config_n_options; i++)
        if ((config_options[i].commands & command) && differs(&config_options[i], a, b))
            visit(arg, config_options[i].name, config_options[i].reloads);
}

void config_done(Config *config)
{
    arena_done(&config->arena);
}
