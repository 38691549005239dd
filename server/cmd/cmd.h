/* SPDX-License-Identifier: Apache-2.0 */
/* Subcommands: argv holds the options only; the return value is the exit status (0 fine, 1 failed, 2 wrong usage). */
#pragma once

typedef int (*CmdMain)(int argc, char **argv);

int cmd_serve(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_bench(int argc, char **argv);
