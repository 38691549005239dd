/* SPDX-License-Identifier: Apache-2.0 */
/* Subcommands: argv holds the options only; the return value is the exit status (0 fine, 1 failed, 2 wrong usage). */
#pragma once
#include "config/config.h"

typedef int (*CmdMain)(int argc, char **argv);

int cmd_serve(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_bench_serve(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_calibrate(int argc, char **argv);

/* config_load, and what only the engine knows of an option's values: an error is wrong usage all the same. */
LW_CHECK bool cmd_load_config(CommandId command, int argc, char **argv, Config *ret_config, bool *ret_help,
                              Error *error);
